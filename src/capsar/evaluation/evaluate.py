"""`evaluate`: the one way to a figure, for the network in training and for the analyzer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.evaluation.metrics import Figures, Intervals, bootstrap_intervals, compute_figures
from capsar.labels import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from capsar.data.example import Example


class Predictor(Protocol):
    """Whatever tells capsule lengths from examples."""

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C); the longest is the predicted class."""
        ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures, and how sure they are."""

    figures: Figures
    intervals: Intervals
    left_out: int
    """Examples without an aspect in the text, or of no class of the network (conflict)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as JSON holds it."""
        return asdict(self)


def judgeable(examples: Iterable[Example]) -> list[Example]:
    """Return the examples that task A is about: an aspect in the text, of one of the classes."""
    return [e for e in examples if e.spans and e.polarity in CLASSES]


def compute_predictions(
    predictor: Predictor, examples: Sequence[Example]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the true and the predicted class of each example, as indices (n)."""
    truth = np.array([CLASSES.index(e.polarity) for e in examples], dtype=np.int64)
    predicted = predictor.predict_lengths(examples).argmax(-1).astype(np.int64)
    return truth, predicted


def evaluate(predictor: Predictor, examples: Sequence[Example], *, seed: int = 0) -> Evaluation:
    """Judge a predictor on labelled examples.

    Args:
        predictor: What is judged.
        examples: Labelled examples; those without an aspect in the text, or of no class of the
            network, are left out and counted.
        seed: Of the bootstrap.
    """
    chosen = judgeable(examples)
    truth, predicted = compute_predictions(predictor, chosen)
    return Evaluation(
        figures=compute_figures(truth, predicted),
        intervals=bootstrap_intervals(truth, predicted, seed=seed),
        left_out=len(examples) - len(chosen),
    )
