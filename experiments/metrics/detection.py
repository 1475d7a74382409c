"""Aspect detection: do the words that a capsule ranks highest belong to the sentence's aspects?

The unit is a distinct sentence with at least one term of a known class. No aspect is given: every
active capsule (or the longest one if none is active) ranks the words of the sentence. Metrics are
averaged over the rankings of a sentence, then over sentences.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import labeled
from capsar.inference.decoding import CapsuleScores, active_capsules
from capsar.schema import CLASSES
from capsar.tokenizer import tokenize_words, words_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from capsar.schema import Example, Polarity

_DEPTH = 5


class Gold(StrEnum):
    """The words that a capsule must find."""

    ALL = "all"
    """The words of every term of the sentence."""
    SAME_POLARITY = "same-polarity"
    """The words of terms with its polarity; a capsule without such a term scores 0."""


@dataclass(frozen=True, slots=True)
class GoldSentence:
    """A sentence and the words of its terms, as positions."""

    text: str
    num_words: int
    terms: dict[Polarity, frozenset[int]]
    """By polarity; only polarities that occur."""

    @property
    def words(self) -> frozenset[int]:
        """The words of every term."""
        return frozenset().union(*self.terms.values())


@dataclass(frozen=True, slots=True)
class RankingMetrics:
    """Metrics of a ranking of words."""

    p_at_1: float
    r_at_5: float
    map: float
    r_at_5_ceiling: float
    """Recall of a perfect ranking: some sentences have more than five gold words."""


@dataclass(frozen=True, slots=True)
class DetectionStatistics:
    """Statistics of the ranked sentences."""

    num_sentences: int
    gold_words: float
    """Mean number per sentence, over all its terms."""
    sentence_words: float
    """Mean number of words per sentence."""
    none_active: float
    """Share of sentences without an active capsule, for which the longest is used."""
    active_capsules: float
    """Mean number of rankings per sentence."""


def gold_sentences(examples: Iterable[Example]) -> list[GoldSentence]:
    """Collect the terms of each distinct sentence, in order of first occurrence.

    Examples that are not `labeled` are excluded.
    """
    by_text: dict[str, list[Example]] = {}
    for example in labeled(examples):
        by_text.setdefault(example.text, []).append(example)
    found = []
    for text, terms in by_text.items():
        spans = tokenize_words(text)
        words: dict[Polarity, set[int]] = {}
        for term in terms:
            if term.polarity is not None:
                gold = words.setdefault(term.polarity, set())
                gold.update(w for s in term.spans for w in words_within(spans, s.start, s.end))
        by_polarity = {polarity: frozenset(gold) for polarity, gold in words.items() if gold}
        if by_polarity:
            found.append(GoldSentence(text, len(spans), by_polarity))
    return found


def rank_words(scores: NDArray[np.float32]) -> list[int]:
    """Return word positions, best first; ties keep the order of the text.

    >>> rank_words(np.array([0.1, 0.7, 0.7, 0.9], dtype=np.float32))
    [3, 1, 2, 0]
    """
    return [int(word) for word in np.argsort(-scores, kind="stable")]


def evaluate_ranking(ranking: Sequence[int], gold: frozenset[int]) -> RankingMetrics:
    """Evaluate one ranking of word positions; without gold words all metrics are 0.

    >>> evaluate_ranking([3, 1, 0, 2], frozenset({0, 3})).map == (1 / 1 + 2 / 3) / 2
    True
    """
    if not gold:
        return RankingMetrics(0.0, 0.0, 0.0, 0.0)
    hits = [word in gold for word in ranking]
    ranks = [rank for rank, hit in enumerate(hits, start=1) if hit]
    precisions = (number / rank for number, rank in enumerate(ranks, start=1))
    return RankingMetrics(
        p_at_1=float(hits[0]),
        r_at_5=sum(hits[:_DEPTH]) / len(gold),
        map=sum(precisions) / len(gold),
        r_at_5_ceiling=min(_DEPTH, len(gold)) / len(gold),
    )


def evaluate_detection(
    sentences: Sequence[GoldSentence], scores: Sequence[CapsuleScores], gold: Gold
) -> RankingMetrics:
    """Evaluate the rankings of each sentence's active capsules.

    Raises:
        DataError: If there is no sentence.
    """
    _check(sentences, scores)
    rows = []
    for sentence, found in zip(sentences, scores, strict=True):
        rankings = [
            evaluate_ranking(rank_words(found.scores[capsule]), _gold_of(sentence, capsule, gold))
            for capsule in active_capsules(found.lengths)[0]
        ]
        rows.append(np.mean([astuple(metrics) for metrics in rankings], axis=0))
    return RankingMetrics(*(float(value) for value in np.mean(rows, axis=0)))


def describe_detection(
    sentences: Sequence[GoldSentence], scores: Sequence[CapsuleScores]
) -> DetectionStatistics:
    """Return statistics of sentences, gold words and active capsules.

    Raises:
        DataError: If there is no sentence.
    """
    _check(sentences, scores)
    active = [active_capsules(found.lengths) for found in scores]
    return DetectionStatistics(
        num_sentences=len(sentences),
        gold_words=float(np.mean([len(sentence.words) for sentence in sentences])),
        sentence_words=float(np.mean([sentence.num_words for sentence in sentences])),
        none_active=float(np.mean([not some for _, some in active])),
        active_capsules=float(np.mean([len(which) for which, _ in active])),
    )


def scale_by_norm(
    scores: Sequence[CapsuleScores], vectors: Sequence[NDArray[np.float32]], *, power: int = 1
) -> list[CapsuleScores]:
    """Turn cosines into dot products in which only the reconstruction is normalized, or back.

    Args:
        scores: Word scores.
        vectors: The fixed word vectors of each sentence (T, E).
        power: 1 turns cosines into dot products, -1 dot products into cosines.
    """
    norms = [np.linalg.norm(words, axis=-1) for words in vectors]
    return [
        CapsuleScores(found.lengths, found.scores * np.where(norm > 0, norm, 1.0) ** power)
        for found, norm in zip(scores, norms, strict=True)
    ]


def rank_by_centroid(
    scores: Sequence[CapsuleScores],
    vectors: Sequence[NDArray[np.float32]],
    centroid: NDArray[np.float32],
) -> list[CapsuleScores]:
    """Score words by the cosine to one vector: a baseline without a network.

    The capsule lengths are kept, so both methods are evaluated with the same active capsules.

    Args:
        scores: Capsule scores of a network.
        vectors: The fixed word vectors of each sentence (T, E).
        centroid: The mean aspect vector of the training data (E).
    """
    direction = centroid / max(float(np.linalg.norm(centroid)), 1e-8)
    baseline = []
    for found, words in zip(scores, vectors, strict=True):
        norms = np.maximum(np.linalg.norm(words, axis=-1), 1e-8)  # (T)
        cosines = (words @ direction / norms).astype(np.float32)  # (T)
        baseline.append(CapsuleScores(found.lengths, np.tile(cosines, (len(CLASSES), 1))))
    return baseline


def _gold_of(sentence: GoldSentence, capsule: int, gold: Gold) -> frozenset[int]:
    if gold is Gold.ALL:
        return sentence.words
    return sentence.terms.get(CLASSES[capsule], frozenset())


def _check(sentences: Sequence[GoldSentence], scores: Sequence[CapsuleScores]) -> None:
    if not sentences:
        raise DataError("There is no sentence with an aspect to find")
    for sentence, found in zip(sentences, scores, strict=True):
        if found.scores.shape[-1] != sentence.num_words:
            raise DataError(
                f"A sentence of {sentence.num_words} words needs as many scores, "
                f"got {found.scores.shape[-1]}"
            )
