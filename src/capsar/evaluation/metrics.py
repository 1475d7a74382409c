"""Accuracy, macro-F1, figures per class, confusion, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import DataError
from capsar.labels import CLASSES, Polarity

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """How well one class is told."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, slots=True)
class Figures:
    """How well polarities are told."""

    num_examples: int
    accuracy: float
    macro_f1: float
    """Mean F1 of the three classes, each counting the same."""
    classes: dict[Polarity, ClassFigures]
    confusion: tuple[tuple[int, ...], ...]
    """Examples by true class (row) and predicted class (column), in the order of `CLASSES`."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """95 % bootstrap intervals: how far a figure may move with another sample of the same size."""

    accuracy: tuple[float, float]
    macro_f1: tuple[float, float]


def compute_figures(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> Figures:
    """Compare class indices (n) with the true ones (n).

    Raises:
        DataError: If there is nothing to compare.
    """
    if not len(truth):
        raise DataError("There is no example with a known class to evaluate on")
    confusion = _confusion(truth, predicted)
    right, support = np.diag(confusion), confusion.sum(1)
    precision = right / np.maximum(confusion.sum(0), 1)
    recall = right / np.maximum(support, 1)
    f1 = _f1(confusion)
    return Figures(
        num_examples=len(truth),
        accuracy=float((truth == predicted).mean()),
        macro_f1=float(np.mean(f1)),
        classes={
            polarity: ClassFigures(
                float(precision[i]), float(recall[i]), float(f1[i]), int(support[i])
            )
            for i, polarity in enumerate(CLASSES)
        },
        confusion=tuple(map(tuple, confusion.tolist())),
    )


def bootstrap_intervals(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], *, seed: int = 0
) -> Intervals:
    """Return percentile intervals of accuracy and macro-F1 over resampled examples.

    How often each kind of right and wrong answer comes in a resample is drawn at once, so that a
    million examples take no longer than a hundred.
    """
    confusion = _confusion(truth, predicted)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(truth), confusion.ravel() / len(truth), size=_RESAMPLES)
    resamples = drawn.reshape(_RESAMPLES, *confusion.shape)

    def interval(figures: NDArray[np.float64]) -> tuple[float, float]:
        low, high = np.percentile(figures, (2.5, 97.5))
        return float(low), float(high)

    accuracies = np.trace(resamples, axis1=1, axis2=2) / len(truth)
    return Intervals(interval(accuracies), interval(_f1(resamples).mean(1)))


def _confusion(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count examples by true class (row) and predicted class (column)."""
    size = len(CLASSES)
    return np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)


def _f1(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the F1 of each class (…, C) of counts (…, C, C); of a class that none names, 0."""
    named = confusion.sum(-1) + confusion.sum(-2)
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    return np.asarray(2 * right / np.maximum(named, 1), dtype=np.float64)
