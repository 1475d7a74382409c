"""`evaluate`: polarity metrics of the network in training, or of the analyzer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.evaluation.metrics import (
    Intervals,
    PolarityMetrics,
    bootstrap_intervals,
    compute_metrics,
)
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from capsar.schema import Example


class Predictor(Protocol):
    """A model that predicts capsule lengths from examples."""

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C); the longest is the predicted class."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Polarity metrics and their confidence intervals."""

    metrics: PolarityMetrics
    intervals: Intervals
    excluded: int
    """Examples without an aspect in the text, or with a class the network lacks (conflict)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as a JSON object."""
        return asdict(self)


def labeled(examples: Iterable[Example]) -> list[Example]:
    """Return the examples with an aspect in the text and a polarity that the network predicts."""
    return [e for e in examples if e.spans and e.polarity in CLASSES]


def compute_predictions(
    predictor: Predictor, examples: Sequence[Example]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the true and the predicted class of each example, as indices (n)."""
    truth = np.array([CLASSES.index(e.polarity) for e in examples], dtype=np.int64)
    predicted = predictor.predict_lengths(examples).argmax(-1).astype(np.int64)
    return truth, predicted


def evaluate(predictor: Predictor, examples: Sequence[Example], *, seed: int = 0) -> Evaluation:
    """Evaluate predicted polarities on labeled examples.

    Args:
        predictor: The model.
        examples: Labeled examples; those that are not `labeled` are excluded and counted.
        seed: Seed of the bootstrap.
    """
    chosen = labeled(examples)
    truth, predicted = compute_predictions(predictor, chosen)
    return Evaluation(
        metrics=compute_metrics(truth, predicted),
        intervals=bootstrap_intervals(truth, predicted, seed=seed),
        excluded=len(examples) - len(chosen),
    )
