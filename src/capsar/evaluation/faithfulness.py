"""Do the words that an explanation names make the answer? Comprehensiveness and sufficiency.

As in ERASER (DeYoung et al., 2020), for the predicted class: *comprehensiveness* is how much its
capsule shortens when the words that rank highest are removed, *sufficiency* how much when only
these are kept; both as the mean over the best 5, 10, 20 and 50 % of the words. High is good of the
first, low of the second. A word is removed from the list of words that are read; the words of the
aspect are not ranked and never removed, so that the question stays the same.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import judgeable
from capsar.text import segment, words_within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.evaluation.detection import OpenedSentence

    Ranker = Callable[[Sequence[Example], NDArray[np.int64]], list[NDArray[np.float32]]]

SHARES = (0.05, 0.1, 0.2, 0.5)
"""Of the words that can be removed; rounded up to whole words."""
DRAWS = 3
_RESAMPLES = 2000
_MEASURES = ("comprehensiveness", "sufficiency")


class Explainer(Protocol):
    """Whatever says why, and can be asked again with fewer words."""

    def open_examples(self, examples: Sequence[Example]) -> list[OpenedSentence]:
        """Return capsule lengths (C) and each word's share in each capsule (C, T)."""
        ...  # pragma: no cover

    def predict_words(
        self, examples: Sequence[Example], kept: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Return the capsule lengths (n, C) of examples of which only some words are read."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference over examples, with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """How much the words that are named make the answer; each figure by the name of its ranking."""

    num_examples: int
    left_out: int
    """Examples whose only words are those of the aspect."""
    length: float
    """The mean length of the predicted capsule, all words read."""
    comprehensiveness: dict[str, float]
    sufficiency: dict[str, float]
    differences: dict[str, Difference]
    """Of *because* to each other ranking: `comprehensiveness_vs_random` and so on."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON holds them: *because* by the name of the measure alone."""
        found: dict[str, Any] = {
            "num_examples": self.num_examples,
            "left_out": self.left_out,
            "length": self.length,
        }
        for measure in _MEASURES:
            for name, value in getattr(self, measure).items():
                found[measure if name == "because" else f"{measure}_{name}"] = value
        return found | {name: asdict(value) for name, value in self.differences.items()}


def judge_faithfulness(
    explainer: Explainer,
    examples: Sequence[Example],
    *,
    rankers: dict[str, Ranker] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Faithfulness:
    """Judge *because* against words drawn at random, and against other rankings.

    Args:
        explainer: What is judged.
        examples: Of which those with an aspect in the text are asked; labels are not used.
        rankers: Other ways to score the words of examples, given their predicted classes (n).
        draws: How many random orders of each example's words are averaged.
        seed: Of these, and of the bootstrap.

    Raises:
        DataError: If no example has words besides its aspect.
    """
    asked = judgeable(examples)
    chosen = [example for example in asked if _removable(example)[0]]
    if not chosen:
        raise DataError("There is no example with words besides its aspect to remove")
    opened = explainer.open_examples(chosen)
    predicted = np.array([one.lengths.argmax() for one in opened], dtype=np.int64)  # (n)
    full = np.array([one.lengths.max() for one in opened])  # (n)
    chance = np.random.default_rng(seed)

    def drops_of(scores: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        return _drops(explainer, chosen, scores, predicted, full)

    because = [one.scores[k] for one, k in zip(opened, predicted, strict=True)]
    drops = {"because": drops_of(because)}
    drops |= {name: drops_of(rank(chosen, predicted)) for name, rank in (rankers or {}).items()}
    orders = [[np.asarray(chance.random(len(one))) for one in because] for _ in range(draws)]
    drops["random"] = np.mean([drops_of(order) for order in orders], axis=0)  # (2, n)
    measured = [{name: float(some[i].mean()) for name, some in drops.items()} for i in range(2)]
    rows = chance.integers(0, len(chosen), (_RESAMPLES, len(chosen)))  # the same for every figure
    differences = {
        f"{measure}_vs_{name}": _difference(drops["because"][i] - drops[name][i], rows)
        for i, measure in enumerate(_MEASURES)
        for name in drops
        if name != "because"
    }
    return Faithfulness(
        num_examples=len(chosen),
        left_out=len(asked) - len(chosen),
        length=float(full.mean()),
        comprehensiveness=measured[0],
        sufficiency=measured[1],
        differences=differences,
    )


def _removable(example: Example) -> tuple[list[int], list[int]]:
    """The words that can be removed, and those of the aspect."""
    words = segment(example.text)
    aspect = {i for s in example.spans for i in words_within(words, s.start, s.end)}
    return [i for i in range(len(words)) if i not in aspect], sorted(aspect)


def _drops(
    explainer: Explainer,
    examples: Sequence[Example],
    scores: Sequence[NDArray[Any]],
    predicted: NDArray[np.int64],
    full: NDArray[Any],
) -> NDArray[np.float64]:
    """Return how much the predicted capsule shortens without the best words, and with only them.

    Returns:
        The two measures of each example (2, n), as means over the shares.
    """
    drops = np.zeros((2, len(examples)))
    rows = np.arange(len(examples))
    ranked: list[tuple[list[int], list[int]]] = []
    for example, score in zip(examples, scores, strict=True):
        words, aspect = _removable(example)
        best_first = np.argsort(-score[words], kind="stable")
        ranked.append(([words[i] for i in best_first], aspect))
    for share in SHARES:
        without: list[list[int]] = []
        alone: list[list[int]] = []
        for words, aspect in ranked:
            number = math.ceil(share * len(words))
            without.append(sorted(aspect + words[number:]))
            alone.append(sorted(aspect + words[:number]))
        for i, kept in enumerate((without, alone)):
            lengths = explainer.predict_words(examples, kept)[rows, predicted]  # (n)
            drops[i] += (full - lengths) / len(SHARES)
    return drops


def _difference(values: NDArray[np.float64], rows: NDArray[np.int64]) -> Difference:
    means = np.array([values[some].mean() for some in rows])
    low, high = np.percentile(means, [2.5, 97.5])
    return Difference(float(values.mean()), float(low), float(high))
