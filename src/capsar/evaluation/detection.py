"""Aspect detection: are the words that a capsule is about those of the sentence's aspects?

The unit is a distinct sentence with at least one term of a known class. Nobody names the aspect:
every active capsule (or, where none is, the longest) ranks the words of the sentence. Figures are
averaged over the rankings of a sentence, then over sentences.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import judgeable
from capsar.labels import CLASSES
from capsar.text import segment, words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.labels import Polarity

ACTIVE_LENGTH = 0.5
"""A sentiment capsule longer than this is active (the paper's example)."""
_DEPTH = 5


class Gold(StrEnum):
    """Which words a capsule must find."""

    ALL = "all"
    """Those of every term of the sentence."""
    SAME_POLARITY = "same-polarity"
    """Those of the terms that carry its polarity; a capsule without such a term is wrong."""


@dataclass(frozen=True, slots=True)
class GoldSentence:
    """A sentence and the words of its terms, as positions."""

    text: str
    num_words: int
    terms: dict[Polarity, frozenset[int]]
    """By polarity; only polarities that some term has."""

    @property
    def words(self) -> frozenset[int]:
        """The words of every term."""
        return frozenset().union(*self.terms.values())


@dataclass(frozen=True, slots=True)
class OpenedSentence:
    """What the capsules of a sentence hold, nobody having named the aspect."""

    lengths: NDArray[np.float32]
    """Of the sentiment capsules (C)."""
    scores: NDArray[np.float32]
    """How much each capsule is about each word (C, T)."""


class Detector(Protocol):
    """Whatever opens the capsules of sentences."""

    def open_sentences(self, texts: Sequence[str]) -> list[OpenedSentence]:
        """Return lengths and word scores of each text, without an aspect."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class RankingFigures:
    """How well words are ranked."""

    p_at_1: float
    r_at_5: float
    map: float
    r_at_5_ceiling: float
    """What a perfect ranking reaches: some sentences have more than five gold words."""


@dataclass(frozen=True, slots=True)
class DetectionStatistics:
    """What was ranked."""

    num_sentences: int
    gold_words: float
    """Mean number a sentence, over all its terms."""
    sentence_words: float
    """Mean length of a sentence."""
    none_active: float
    """Share of sentences without an active capsule, for which the longest stands in."""
    active_capsules: float
    """Mean number of rankings a sentence."""


def gold_sentences(examples: Iterable[Example]) -> list[GoldSentence]:
    """Gather the terms of each distinct sentence, in the order in which sentences come.

    Examples without an aspect in the text, or of no class of the network (conflict), do not count.
    """
    by_text: dict[str, list[Example]] = {}
    for example in judgeable(examples):
        by_text.setdefault(example.text, []).append(example)
    found = []
    for text, terms in by_text.items():
        spans = segment(text)
        words: dict[Polarity, set[int]] = {}
        for term in terms:
            if term.polarity is not None:
                gold = words.setdefault(term.polarity, set())
                gold.update(w for s in term.spans for w in words_within(spans, s.start, s.end))
        gathered = {polarity: frozenset(gold) for polarity, gold in words.items() if gold}
        if gathered:
            found.append(GoldSentence(text, len(spans), gathered))
    return found


def active_capsules(lengths: NDArray[np.float32]) -> tuple[list[int], bool]:
    """Return the capsules that rank, and whether any is active; if none is, the longest ranks."""
    active = np.flatnonzero(lengths > ACTIVE_LENGTH).tolist()
    return (active, True) if active else ([int(lengths.argmax())], False)


def rank_words(scores: NDArray[np.float32]) -> list[int]:
    """Return word positions, best first; of equal words the earlier one.

    >>> rank_words(np.array([0.1, 0.7, 0.7, 0.9], dtype=np.float32))
    [3, 1, 2, 0]
    """
    return [int(word) for word in np.argsort(-scores, kind="stable")]


def judge_ranking(ranking: Sequence[int], gold: frozenset[int]) -> RankingFigures:
    """Judge one ranking of word positions; without gold words everything is 0.

    >>> judge_ranking([3, 1, 0, 2], frozenset({0, 3})).map == (1 / 1 + 2 / 3) / 2
    True
    """
    if not gold:
        return RankingFigures(0.0, 0.0, 0.0, 0.0)
    hits = [word in gold for word in ranking]
    places = [place for place, hit in enumerate(hits, start=1) if hit]
    precisions = (number / place for number, place in enumerate(places, start=1))
    return RankingFigures(
        p_at_1=float(hits[0]),
        r_at_5=sum(hits[:_DEPTH]) / len(gold),
        map=sum(precisions) / len(gold),
        r_at_5_ceiling=min(_DEPTH, len(gold)) / len(gold),
    )


def judge_detection(
    sentences: Sequence[GoldSentence], opened: Sequence[OpenedSentence], gold: Gold
) -> RankingFigures:
    """Judge the rankings of each sentence's active capsules.

    Raises:
        DataError: If there is no sentence.
    """
    _check(sentences, opened)
    rows = []
    for sentence, found in zip(sentences, opened, strict=True):
        rankings = [
            judge_ranking(rank_words(found.scores[capsule]), _gold_of(sentence, capsule, gold))
            for capsule in active_capsules(found.lengths)[0]
        ]
        rows.append(np.mean([astuple(figures) for figures in rankings], axis=0))
    return RankingFigures(*(float(value) for value in np.mean(rows, axis=0)))


def describe_detection(
    sentences: Sequence[GoldSentence], opened: Sequence[OpenedSentence]
) -> DetectionStatistics:
    """Say how long sentences and gold sets are, and how many capsules rank.

    Raises:
        DataError: If there is no sentence.
    """
    _check(sentences, opened)
    active = [active_capsules(found.lengths) for found in opened]
    return DetectionStatistics(
        num_sentences=len(sentences),
        gold_words=float(np.mean([len(sentence.words) for sentence in sentences])),
        sentence_words=float(np.mean([sentence.num_words for sentence in sentences])),
        none_active=float(np.mean([not some for _, some in active])),
        active_capsules=float(np.mean([len(which) for which, _ in active])),
    )


def scale_by_norm(
    opened: Sequence[OpenedSentence], vectors: Sequence[NDArray[np.float32]]
) -> list[OpenedSentence]:
    """Turn cosines into dot products in which only the reconstruction is normalised.

    Args:
        opened: Sentences scored by cosine.
        vectors: The fixed word vectors of each (T, E).
    """
    return [
        OpenedSentence(found.lengths, found.scores * np.linalg.norm(words, axis=-1))
        for found, words in zip(opened, vectors, strict=True)
    ]


def rank_by_centroid(
    opened: Sequence[OpenedSentence],
    vectors: Sequence[NDArray[np.float32]],
    centroid: NDArray[np.float32],
) -> list[OpenedSentence]:
    """Score words by the cosine to one vector instead: the control that needs no network.

    Only which capsules are active is kept, so that both are judged on the same rankings; it makes
    no difference where gold is the words of all terms.

    Args:
        opened: Sentences that a network opened.
        vectors: The fixed word vectors of each (T, E).
        centroid: The mean aspect vector of the training data (E).
    """
    direction = centroid / max(float(np.linalg.norm(centroid)), 1e-8)
    controls = []
    for found, words in zip(opened, vectors, strict=True):
        norms = np.maximum(np.linalg.norm(words, axis=-1), 1e-8)  # (T)
        scores = (words @ direction / norms).astype(np.float32)  # (T)
        controls.append(OpenedSentence(found.lengths, np.tile(scores, (len(CLASSES), 1))))
    return controls


def _gold_of(sentence: GoldSentence, capsule: int, gold: Gold) -> frozenset[int]:
    if gold is Gold.ALL:
        return sentence.words
    return sentence.terms.get(CLASSES[capsule], frozenset())


def _check(sentences: Sequence[GoldSentence], opened: Sequence[OpenedSentence]) -> None:
    if not sentences:
        raise DataError("There is no sentence with an aspect to find")
    for sentence, found in zip(sentences, opened, strict=True):
        if found.scores.shape[-1] != sentence.num_words:
            raise DataError(
                f"A sentence of {sentence.num_words} words needs as many scores, "
                f"got {found.scores.shape[-1]}"
            )
