"""Polarity metrics: accuracy, macro-F1, per-class metrics, confusion, confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import DataError
from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """Metrics of one class."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, slots=True)
class PolarityMetrics:
    """Metrics of predicted polarities."""

    num_examples: int
    accuracy: float
    macro_f1: float
    """Unweighted mean F1 of the three classes."""
    classes: dict[Polarity, ClassMetrics]
    confusion: tuple[tuple[int, ...], ...]
    """Examples by true class (row) and predicted class (column), in the order of `CLASSES`."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """95 % bootstrap confidence intervals."""

    accuracy: tuple[float, float]
    macro_f1: tuple[float, float]


def compute_metrics(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> PolarityMetrics:
    """Compute metrics from true (n) and predicted (n) class indices.

    Raises:
        DataError: If there are no examples.
    """
    if not len(truth):
        raise DataError("There is no example with a known class to evaluate on")
    confusion = _confusion(truth, predicted)
    right, support = np.diag(confusion), confusion.sum(1)
    precision = right / np.maximum(confusion.sum(0), 1)
    recall = right / np.maximum(support, 1)
    f1 = _f1(confusion)
    return PolarityMetrics(
        num_examples=len(truth),
        accuracy=float((truth == predicted).mean()),
        macro_f1=float(np.mean(f1)),
        classes={
            polarity: ClassMetrics(
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

    Confusion matrices are drawn from a multinomial, so the time does not depend on the number of
    examples.
    """
    confusion = _confusion(truth, predicted)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(truth), confusion.ravel() / len(truth), size=_RESAMPLES)
    resamples = drawn.reshape(_RESAMPLES, *confusion.shape)

    def interval(values: NDArray[np.float64]) -> tuple[float, float]:
        """Return the 95 % percentile interval."""
        low, high = np.percentile(values, (2.5, 97.5))
        return float(low), float(high)

    accuracies = np.trace(resamples, axis1=1, axis2=2) / len(truth)
    return Intervals(interval(accuracies), interval(_f1(resamples).mean(1)))


def _confusion(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count examples by true class (row) and predicted class (column)."""
    size = len(CLASSES)
    return np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)


def _f1(confusion: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the F1 of each class (…, C) from counts (…, C, C); 0 for a class that never occurs."""
    named = confusion.sum(-1) + confusion.sum(-2)
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    return np.asarray(2 * right / np.maximum(named, 1), dtype=np.float64)
