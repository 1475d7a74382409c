"""Aspect extraction: exact-match metrics of extracted spans, with and without their polarity.

The unit is a distinct sentence, with or without terms. A span is right if both its ends are. Spans
are counted as a multiset: a span that is predicted twice is right once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from capsar.errors import DataError
from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.schema import Example

Offsets = tuple[int, int]


class PredictedAspect(Protocol):
    """An extracted aspect."""

    @property
    def start(self) -> int: ...  # noqa: D102

    @property
    def end(self) -> int: ...  # noqa: D102

    @property
    def polarity(self) -> Polarity: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class TermSentence:
    """A sentence and its gold terms, possibly none."""

    text: str
    terms: dict[Offsets, Polarity | None]
    """The polarity of each span; `None` if it is not a class of the network: *conflict*, unknown,
    or two annotations that differ."""


@dataclass(frozen=True, slots=True)
class SpanMetrics:
    """Counts of gold, predicted and right spans, and the ratios between them."""

    gold: int
    found: int
    right: int
    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, gold: int, found: int, right: int) -> SpanMetrics:
        """Compute the ratios of counts; 0 where the denominator is 0.

        >>> SpanMetrics.of(4, 2, 1).f1 == 2 * 1 / (4 + 2)
        True
        """
        return cls(
            gold=gold,
            found=found,
            right=right,
            precision=right / found if found else 0.0,
            recall=right / gold if gold else 0.0,
            f1=2 * right / (gold + found) if gold + found else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Extraction:
    """Metrics of aspect extraction."""

    num_sentences: int
    num_without: int
    """Sentences without any term."""
    spans: SpanMetrics
    """Exact spans, over all sentences."""
    spans_with_terms: SpanMetrics
    """Exact spans, over the sentences that have a term."""
    joint: SpanMetrics
    """Span and polarity, over all sentences. A term without a class (*conflict*) is not gold here,
    and a span predicted there is neither right nor wrong."""
    false_per_100: float | None
    """Aspects predicted per 100 sentences that have none; `None` without such sentences."""

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        return asdict(self)


def term_sentences(examples: Iterable[Example]) -> list[TermSentence]:
    """Collect the terms of each distinct sentence, in order of first occurrence.

    Terms of *conflict* and sentences without any term are included.
    """
    by_text: dict[str, dict[Offsets, Polarity | None]] = {}
    for example in examples:
        terms = by_text.setdefault(example.text, {})
        polarity = example.polarity if example.polarity in CLASSES else None
        for span in example.spans:
            offsets = (span.start, span.end)
            same = terms.get(offsets, polarity) == polarity
            terms[offsets] = polarity if same else None
    return [TermSentence(text, terms) for text, terms in by_text.items()]


def evaluate_spans(
    sentences: Sequence[TermSentence], predicted: Sequence[Sequence[PredictedAspect]]
) -> Extraction:
    """Evaluate the aspects predicted for each sentence.

    Raises:
        DataError: If there is no sentence.
    """
    if not sentences:
        raise DataError("There is no sentence to find aspects in")
    with_terms, without, joint = Counter[str](), Counter[str](), Counter[str]()
    for sentence, aspects in zip(sentences, predicted, strict=True):
        spans = Counter((aspect.start, aspect.end) for aspect in aspects)
        counts = with_terms if sentence.terms else without
        counts["sentences"] += 1
        counts["gold"] += len(sentence.terms)
        counts["found"] += spans.total()
        counts["right"] += sum(offsets in sentence.terms for offsets in spans)
        gold = {offsets: p for offsets, p in sentence.terms.items() if p is not None}
        ignored = sentence.terms.keys() - gold.keys()
        pairs = Counter(
            (aspect.start, aspect.end, aspect.polarity)
            for aspect in aspects
            if (aspect.start, aspect.end) not in ignored
        )
        joint["gold"] += len(gold)
        joint["found"] += pairs.total()
        joint["right"] += sum((*offsets, p) in pairs for offsets, p in gold.items())
    num_without = without["sentences"]
    return Extraction(
        num_sentences=len(sentences),
        num_without=num_without,
        spans=_span_metrics(with_terms + without),
        spans_with_terms=_span_metrics(with_terms),
        joint=_span_metrics(joint),
        false_per_100=100 * without["found"] / num_without if num_without else None,
    )


def _span_metrics(counts: Counter[str]) -> SpanMetrics:
    return SpanMetrics.of(counts["gold"], counts["found"], counts["right"])
