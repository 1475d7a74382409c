"""Aspect extraction: are the spans that a model finds by itself those of the sentence's terms?

And is their polarity right? The unit is a distinct sentence, with or without a term. A span is
right if both its ends are; spans are counted as a multiset, so that one told twice is right once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from capsar.errors import DataError
from capsar.labels import CLASSES, Polarity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.data.example import Example

Place = tuple[int, int]


class Told(Protocol):
    """An aspect that a model found: where it stands, and what is felt about it."""

    @property
    def start(self) -> int: ...  # noqa: D102

    @property
    def end(self) -> int: ...  # noqa: D102

    @property
    def polarity(self) -> Polarity: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class TermSentence:
    """A sentence and its terms, which may be none."""

    text: str
    terms: dict[Place, Polarity | None]
    """Each span once, with its class; nothing where that is no class of the network: *conflict*,
    not known, or two judgements that differ."""


@dataclass(frozen=True, slots=True)
class SpanFigures:
    """How many spans were there, were found, and were right."""

    gold: int
    found: int
    right: int
    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, gold: int, found: int, right: int) -> SpanFigures:
        """Work out the shares; 0 where there is nothing to share.

        >>> SpanFigures.of(4, 2, 1).f1 == 2 * 1 / (4 + 2)
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
    """How well a model finds aspects by itself."""

    num_sentences: int
    num_without: int
    """Sentences without any term."""
    spans: SpanFigures
    """Exact spans, over all sentences."""
    spans_with_terms: SpanFigures
    """The same, over the sentences that have a term."""
    joint: SpanFigures
    """Span and polarity, over all sentences. A term of no class (*conflict*) is no gold here, and a
    span found there is neither right nor wrong."""
    false_per_100: float | None
    """Aspects told per 100 sentences that have none; nothing where there is no such sentence."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON holds them."""
        return asdict(self)


def term_sentences(examples: Iterable[Example]) -> list[TermSentence]:
    """Gather the terms of each distinct sentence, in the order in which sentences come.

    Terms of *conflict* count, and so do sentences without any term.
    """
    by_text: dict[str, dict[Place, Polarity | None]] = {}
    for example in examples:
        terms = by_text.setdefault(example.text, {})
        polarity = example.polarity if example.polarity in CLASSES else None
        for span in example.spans:
            place = (span.start, span.end)
            same = terms.get(place, polarity) == polarity
            terms[place] = polarity if same else None
    return [TermSentence(text, terms) for text, terms in by_text.items()]


def judge_extraction(
    sentences: Sequence[TermSentence], found: Sequence[Sequence[Told]]
) -> Extraction:
    """Judge the aspects found in each sentence.

    Raises:
        DataError: If there is no sentence.
    """
    if not sentences:
        raise DataError("There is no sentence to find aspects in")
    counts = Counter[str]()
    for sentence, aspects in zip(sentences, found, strict=True):
        told = Counter((aspect.start, aspect.end) for aspect in aspects)
        kind = "with" if sentence.terms else "without"
        counts[f"{kind} sentences"] += 1
        counts[f"{kind} gold"] += len(sentence.terms)
        counts[f"{kind} found"] += told.total()
        counts[f"{kind} right"] += sum(place in sentence.terms for place in told)
        judged = {place: p for place, p in sentence.terms.items() if p is not None}
        unjudged = sentence.terms.keys() - judged.keys()
        pairs = Counter(
            (aspect.start, aspect.end, aspect.polarity)
            for aspect in aspects
            if (aspect.start, aspect.end) not in unjudged
        )
        counts["joint gold"] += len(judged)
        counts["joint found"] += pairs.total()
        counts["joint right"] += sum((*place, p) in pairs for place, p in judged.items())
    names = ("gold", "found", "right")
    num_without = counts["without sentences"]
    return Extraction(
        num_sentences=len(sentences),
        num_without=num_without,
        spans=SpanFigures.of(*(counts[f"with {n}"] + counts[f"without {n}"] for n in names)),
        spans_with_terms=SpanFigures.of(*(counts[f"with {n}"] for n in names)),
        joint=SpanFigures.of(*(counts[f"joint {n}"] for n in names)),
        false_per_100=100 * counts["without found"] / num_without if num_without else None,
    )
