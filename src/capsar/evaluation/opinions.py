"""Compare opinion phrases with annotated ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.tokenizer import Span


@dataclass(frozen=True, slots=True)
class OpinionMetrics:
    """Precision, recall and F1 of pairs of an aspect and a phrase."""

    num_aspects: int
    precision: float
    recall: float
    f1: float
    """A phrase is right if its offsets are."""
    overlap_f1: float
    """A phrase is right if it shares a word with one of the other side."""


def evaluate_opinions(
    found: Sequence[Sequence[Span]], gold: Sequence[Sequence[Span]]
) -> OpinionMetrics:
    """Compare the phrases found for each aspect with the annotated ones.

    >>> evaluate_opinions([[(0, 2), (5, 6)]], [[(0, 2), (4, 7)]]).f1
    0.5
    """
    right = near_found = near_gold = 0
    for some, others in zip(found, gold, strict=True):
        right += len({*some} & {*others})
        near_found += sum(_touches(span, others) for span in some)
        near_gold += sum(_touches(span, some) for span in others)
    num_found, num_gold = sum(map(len, found)), sum(map(len, gold))
    precision, recall = right / max(1, num_found), right / max(1, num_gold)
    near = (near_found / max(1, num_found), near_gold / max(1, num_gold))
    return OpinionMetrics(len(gold), precision, recall, _f1(precision, recall), _f1(*near))


def _touches(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
