"""Compare opinion phrases with annotated ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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
    counts = [count_matches(*pair) for pair in zip(found, gold, strict=True)]
    num_found, num_gold, right, near_found, near_gold = np.sum(counts, 0) if counts else [0] * 5
    precision, recall = float(right / max(1, num_found)), float(right / max(1, num_gold))
    near = (float(near_found / max(1, num_found)), float(near_gold / max(1, num_gold)))
    return OpinionMetrics(len(gold), precision, recall, _f1(precision, recall), _f1(*near))


def count_matches(found: Sequence[Span], gold: Sequence[Span]) -> tuple[int, int, int, int, int]:
    """Return the phrases found and annotated, equal ones, and those of each that overlap.

    >>> count_matches([(0, 2), (5, 6)], [(0, 2), (4, 7), (8, 9)])
    (2, 3, 1, 2, 2)
    """
    near_found = sum(_touches(span, gold) for span in found)
    near_gold = sum(_touches(span, found) for span in gold)
    return len(found), len(gold), len({*found} & {*gold}), near_found, near_gold


def _touches(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] < end and start < span[1] for start, end in others)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
