"""Accuracy, macro-F1, figures per class, confusion, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.errors import DataError, MissingExtraError
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
    try:
        from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
    except ImportError as error:
        raise MissingExtraError("train", "Evaluation") from error

    if not len(truth):
        raise DataError("There is no example with a known class to evaluate on")
    indices = list(range(len(CLASSES)))
    precision, recall, f1, support = precision_recall_fscore_support(
        truth, predicted, labels=indices, zero_division=0
    )
    confusion = confusion_matrix(truth, predicted, labels=indices)
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
        confusion=tuple(tuple(int(count) for count in row) for row in confusion),
    )


def bootstrap_intervals(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], *, seed: int = 0
) -> Intervals:
    """Return percentile intervals of accuracy and macro-F1 over resampled examples."""
    try:
        from scipy.stats import bootstrap
    except ImportError as error:
        raise MissingExtraError("train", "Evaluation") from error

    def interval(statistic: object) -> tuple[float, float]:
        found = bootstrap(
            (truth, predicted),
            statistic,
            paired=True,
            vectorized=False,
            n_resamples=_RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        return float(found.low), float(found.high)

    def accuracy(true: NDArray[np.int64], guess: NDArray[np.int64]) -> float:
        return float((true == guess).mean())

    if len(truth) == 1:
        only = accuracy(truth, predicted)
        return Intervals((only, only), (fast_macro_f1(truth, predicted),) * 2)
    return Intervals(interval(accuracy), interval(fast_macro_f1))


def fast_macro_f1(truth: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
    """Return macro-F1 alone, for the thousands of resamples that need nothing else."""
    size = len(CLASSES)
    confusion = np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)
    right = np.diag(confusion)
    told = confusion.sum(0) + confusion.sum(1)
    return float(np.mean(2 * right / np.maximum(told, 1)))
