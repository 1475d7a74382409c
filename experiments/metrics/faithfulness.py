"""Faithfulness of attributions: comprehensiveness and sufficiency.

As in ERASER (DeYoung et al., 2020), for the predicted class: *comprehensiveness* is how much its
capsule shortens when the highest-ranked words are removed, *sufficiency* how much when only these
are kept; both are means over the best 5, 10, 20 and 50 % of the words. High comprehensiveness and
low sufficiency are good. Words are removed from the input; the words of the aspect are not ranked
and never removed, so the aspect stays the same.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import labeled
from capsar.tokenizer import tokenize_words, words_within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from capsar.inference.decoding import CapsuleScores
    from capsar.schema import Example

    Ranker = Callable[[Sequence[Example], NDArray[np.int64]], list[NDArray[np.float32]]]

SHARES = (0.05, 0.1, 0.2, 0.5)
"""Shares of the removable words, rounded up to whole words."""
DRAWS = 3
_RESAMPLES = 2000
_MEASURES = ("comprehensiveness", "sufficiency")


class Explainer(Protocol):
    """A model with attributions that can predict from a subset of the words."""

    def score_examples(self, examples: Sequence[Example]) -> list[CapsuleScores]:
        """Return capsule lengths (C) and the attribution of each word to each capsule (C, T)."""
        ...  # pragma: no cover

    def predict_words(
        self, examples: Sequence[Example], kept: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """Return the capsule lengths (n, C) of examples reduced to some of their words."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """A mean difference over examples, with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Faithfulness:
    """Faithfulness metrics, by the name of the ranking."""

    num_examples: int
    excluded: int
    """Examples whose only words are those of the aspect."""
    length: float
    """Mean length of the predicted capsule on the whole sentence."""
    comprehensiveness: dict[str, float]
    sufficiency: dict[str, float]
    differences: dict[str, MeanDifference]
    """The reference minus each other ranking: `comprehensiveness_vs_random` and so on."""

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object; those of attributions have no suffix."""
        found: dict[str, Any] = {
            "num_examples": self.num_examples,
            "excluded": self.excluded,
            "length": self.length,
        }
        for measure in _MEASURES:
            for name, value in getattr(self, measure).items():
                found[measure if name == "attributions" else f"{measure}_{name}"] = value
        return found | {name: asdict(value) for name, value in self.differences.items()}


def evaluate_faithfulness(
    explainer: Explainer,
    examples: Sequence[Example],
    *,
    rankers: dict[str, Ranker] | None = None,
    reference: str = "attributions",
    draws: int = DRAWS,
    seed: int = 0,
) -> Faithfulness:
    """Compare rankings of words: attributions, others, and random ones.

    Args:
        explainer: The model.
        examples: Examples with an aspect in the text; labels are not used otherwise.
        rankers: Other ways to score the words of examples, given their predicted classes (n).
        reference: The ranking that is compared with all others.
        draws: Number of random rankings per example to average.
        seed: Seed of the random rankings and of the bootstrap.

    Raises:
        DataError: If no example has words besides its aspect.
    """
    candidates = labeled(examples)
    chosen = [example for example in candidates if _removable(example)[0]]
    if not chosen:
        raise DataError("There is no example with words besides its aspect to remove")
    scores = explainer.score_examples(chosen)
    predicted = np.array([one.lengths.argmax() for one in scores], dtype=np.int64)  # (n)
    full = np.array([one.lengths.max() for one in scores])  # (n)
    generator = np.random.default_rng(seed)

    def drops_of(ranked: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        return _drops(explainer, chosen, ranked, predicted, full)

    attributions = [one.scores[k] for one, k in zip(scores, predicted, strict=True)]
    drops = {"attributions": drops_of(attributions)}
    drops |= {name: drops_of(rank(chosen, predicted)) for name, rank in (rankers or {}).items()}
    orders = [
        [np.asarray(generator.random(len(one))) for one in attributions] for _ in range(draws)
    ]
    drops["random"] = np.mean([drops_of(order) for order in orders], axis=0)  # (2, n)
    measured = [{name: float(some[i].mean()) for name, some in drops.items()} for i in range(2)]
    rows = generator.integers(
        0, len(chosen), (_RESAMPLES, len(chosen))
    )  # the same for every metric
    differences = {
        f"{measure}_vs_{name}": _difference(drops[reference][i] - drops[name][i], rows)
        for i, measure in enumerate(_MEASURES)
        for name in drops
        if name != reference
    }
    return Faithfulness(
        num_examples=len(chosen),
        excluded=len(candidates) - len(chosen),
        length=float(full.mean()),
        comprehensiveness=measured[0],
        sufficiency=measured[1],
        differences=differences,
    )


def _removable(example: Example) -> tuple[list[int], list[int]]:
    """Return the words that can be removed, and those of the aspect."""
    words = tokenize_words(example.text)
    aspect = {i for s in example.spans for i in words_within(words, s.start, s.end)}
    return [i for i in range(len(words)) if i not in aspect], sorted(aspect)


def _drops(
    explainer: Explainer,
    examples: Sequence[Example],
    scores: Sequence[NDArray[Any]],
    predicted: NDArray[np.int64],
    full: NDArray[Any],
) -> NDArray[np.float64]:
    """Return comprehensiveness and sufficiency of each example (2, n)."""
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


def _difference(values: NDArray[np.float64], rows: NDArray[np.int64]) -> MeanDifference:
    means = np.array([values[some].mean() for some in rows])
    low, high = np.percentile(means, [2.5, 97.5])
    return MeanDifference(float(values.mean()), float(low), float(high))
