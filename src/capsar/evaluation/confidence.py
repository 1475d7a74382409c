"""Calibration of confidences: expected calibration error, Brier score, log loss, risk-coverage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import Predictor, labeled
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.schema import Example

BINS = 15
COVERAGES = tuple(round(0.1 * step, 1) for step in range(1, 11))
_SIMULATIONS = 2000
_PERCENTILE = 95
_COVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Predictions of similar confidence."""

    number: int
    confidence: float
    """Mean."""
    accuracy: float


@dataclass(frozen=True, slots=True)
class CalibrationMetrics:
    """How well confidences match accuracy."""

    num_examples: int
    accuracy: float
    confidence: float
    """Mean."""
    ece: float
    """Expected calibration error: mean distance of confidence and accuracy over bins of equal
    size."""
    ece_bound: float
    """95th percentile of the error of a perfectly calibrated model with the same confidences."""
    brier: float
    """Mean squared distance of the class probabilities from the one-hot truth, from 0 to 2."""
    log_loss: float
    accuracy_at_80: float
    """Accuracy of the 80 % of predictions with the highest confidence."""
    risk_coverage: dict[str, float]
    """Error rate of the most confident predictions, by the share of predictions kept."""
    bins: tuple[ReliabilityBin, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON object."""
        return asdict(self)


def evaluate_calibration(
    probabilities: NDArray[np.float64],
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    *,
    seed: int = 0,
) -> CalibrationMetrics:
    """Evaluate predicted probabilities.

    Args:
        probabilities: Probability of each class (n, C).
        truth: The true class (n).
        predicted: The predicted class (n); its probability is the confidence.
        seed: Seed of the simulation behind `ece_bound`.

    Raises:
        DataError: If there are no examples.
    """
    if not len(truth):
        raise DataError("There is no example with a known class to evaluate confidences on")
    rows = np.arange(len(truth))
    confidence = probabilities[rows, predicted]
    right = truth == predicted
    one_hot = np.eye(probabilities.shape[1])[truth]
    of_truth = np.maximum(probabilities[rows, truth], np.finfo(np.float64).tiny)
    return CalibrationMetrics(
        num_examples=len(truth),
        accuracy=float(right.mean()),
        confidence=float(confidence.mean()),
        ece=calibration_error(confidence, right),
        ece_bound=error_bound(confidence, seed=seed),
        brier=float(((probabilities - one_hot) ** 2).sum(1).mean()),
        log_loss=float(-np.log(of_truth).mean()),
        accuracy_at_80=1 - risk_at(confidence, right, _COVERAGE),
        risk_coverage={f"{share:g}": risk_at(confidence, right, share) for share in COVERAGES},
        bins=tuple(
            ReliabilityBin(len(some), float(confidence[some].mean()), float(right[some].mean()))
            for some in equal_mass(confidence)
        ),
    )


def equal_mass(confidence: NDArray[np.float64], bins: int = BINS) -> list[NDArray[np.int64]]:
    """Return the examples of each bin of equal size, sorted by confidence (stable)."""
    order = np.argsort(confidence, kind="stable")
    return [part for part in np.array_split(order, bins) if len(part)]


def calibration_error(
    confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS
) -> float:
    """Return the mean distance of confidence and accuracy in bins of equal size.

    >>> confidence, right = np.array([0.6, 0.6, 0.9, 0.9]), np.array([True, False, True, True])
    >>> round(calibration_error(confidence, right, bins=2), 3)
    0.1
    """
    gaps = [
        abs(float((confidence[some] - right[some]).sum())) for some in equal_mass(confidence, bins)
    ]
    return sum(gaps) / len(confidence)


def error_bound(confidence: NDArray[np.float64], *, seed: int = 0) -> float:
    """Return the 95th percentile of the calibration error of a perfectly calibrated model.

    Each prediction of that model is right with the probability of its confidence, so its error is
    due to the sample size alone.
    """
    bins = equal_mass(confidence)
    starts = np.cumsum([0, *map(len, bins)])[:-1]
    ordered = confidence[np.concatenate(bins)]
    generator = np.random.default_rng(seed)
    errors = np.zeros(_SIMULATIONS)
    for number in range(_SIMULATIONS):
        right = generator.random(len(ordered)) < ordered
        errors[number] = np.abs(np.add.reduceat(ordered - right, starts)).sum() / len(ordered)
    return float(np.percentile(errors, _PERCENTILE))


def risk_at(confidence: NDArray[np.float64], right: NDArray[np.bool_], coverage: float) -> float:
    """Return the error rate of the `coverage` most confident predictions (at least one).

    >>> confidence, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, True])
    >>> risk_at(confidence, right, 0.5), round(risk_at(confidence, right, 0.75), 4)
    (0.0, 0.3333)
    """
    kept = max(1, round(coverage * len(confidence)))
    most_confident = np.argsort(-confidence, kind="stable")[:kept]
    return float(1 - right[most_confident].mean())


class Calibrated(Predictor, Protocol):
    """A predictor that also computes probabilities from lengths."""

    def calibrate(self, lengths: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the probabilities of lengths (n, C), or `None` without a calibration."""
        ...  # pragma: no cover


def evaluate_confidence(
    predictor: Calibrated, examples: Sequence[Example]
) -> dict[str, CalibrationMetrics]:
    """Evaluate confidences with the aspect given, before and after calibration.

    `uncalibrated` takes each length's share of the sum of lengths; `calibrated` is present if the
    model has a calibration.
    """
    chosen = labeled(examples)
    lengths = predictor.predict_lengths(chosen)
    truth = np.array([CLASSES.index(e.polarity) for e in chosen if e.polarity], dtype=np.int64)
    predicted = lengths.argmax(-1).astype(np.int64)
    shares = (lengths / lengths.sum(1, keepdims=True)).astype(np.float64)
    metrics = {"uncalibrated": evaluate_calibration(shares, truth, predicted)}
    probabilities = predictor.calibrate(lengths)
    if probabilities is not None:
        metrics["calibrated"] = evaluate_calibration(probabilities, truth, predicted)
    return metrics
