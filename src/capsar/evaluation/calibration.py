"""Is a confidence what it says? Calibration error with its bound, Brier, log loss, coverage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from capsar.errors import DataError
from capsar.evaluation.evaluate import judgeable
from capsar.labels import CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.data.example import Example

BINS = 15
COVERAGES = tuple(round(0.1 * step, 1) for step in range(1, 11))
_SIMULATIONS = 2000
_PERCENTILE = 95
_COVERAGE = 0.8


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers of like confidence."""

    number: int
    confidence: float
    """Mean."""
    accuracy: float


@dataclass(frozen=True, slots=True)
class CalibrationFigures:
    """How well confidences fit what happens."""

    num_examples: int
    accuracy: float
    confidence: float
    """Mean."""
    ece: float
    """Expected calibration error: the mean distance of confidence and accuracy over bins of equal
    mass."""
    ece_bound: float
    """What a perfectly calibrated model of the same confidences stays below 19 times in 20."""
    brier: float
    """Mean squared distance of all classes' probabilities from the truth: 0 to 2."""
    log_loss: float
    accuracy_at_80: float
    """Of the 80 % of answers that are surest."""
    risk_coverage: dict[str, float]
    """The share of wrong answers among the surest, by the share of answers that are given."""
    bins: tuple[ReliabilityBin, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON holds them."""
        return asdict(self)


def judge_calibration(
    probabilities: NDArray[np.float64],
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    *,
    seed: int = 0,
) -> CalibrationFigures:
    """Judge the probability that each answer is given.

    Args:
        probabilities: Of each class (n, C).
        truth: The true class (n).
        predicted: The class that was told (n); its probability is the confidence.
        seed: Of the simulation behind the bound.

    Raises:
        DataError: If there is nothing to judge.
    """
    if not len(truth):
        raise DataError("There is no example with a known class to judge confidences on")
    rows = np.arange(len(truth))
    confidence = probabilities[rows, predicted]
    right = truth == predicted
    expected = np.eye(probabilities.shape[1])[truth]
    given = np.maximum(probabilities[rows, truth], np.finfo(np.float64).tiny)
    return CalibrationFigures(
        num_examples=len(truth),
        accuracy=float(right.mean()),
        confidence=float(confidence.mean()),
        ece=calibration_error(confidence, right),
        ece_bound=error_bound(confidence, seed=seed),
        brier=float(((probabilities - expected) ** 2).sum(1).mean()),
        log_loss=float(-np.log(given).mean()),
        accuracy_at_80=1 - risk_at(confidence, right, _COVERAGE),
        risk_coverage={f"{share:g}": risk_at(confidence, right, share) for share in COVERAGES},
        bins=tuple(
            ReliabilityBin(len(some), float(confidence[some].mean()), float(right[some].mean()))
            for some in equal_mass(confidence)
        ),
    )


def equal_mass(confidence: NDArray[np.float64], bins: int = BINS) -> list[NDArray[np.int64]]:
    """Cut examples into bins of equal number by confidence; of equal ones, in their order."""
    order = np.argsort(confidence, kind="stable")
    return [part for part in np.array_split(order, bins) if len(part)]


def calibration_error(
    confidence: NDArray[np.float64], right: NDArray[np.bool_], bins: int = BINS
) -> float:
    """Return the mean distance of confidence and accuracy in bins of equal mass.

    >>> sure, right = np.array([0.6, 0.6, 0.9, 0.9]), np.array([True, False, True, True])
    >>> round(calibration_error(sure, right, bins=2), 3)
    0.1
    """
    gaps = [
        abs(float((confidence[some] - right[some]).sum())) for some in equal_mass(confidence, bins)
    ]
    return sum(gaps) / len(confidence)


def error_bound(
    confidence: NDArray[np.float64],
    *,
    seed: int = 0,
    bins: int = BINS,
    simulations: int = _SIMULATIONS,
) -> float:
    """Return the 95th percentile of the calibration error of a perfectly calibrated model.

    It has these confidences, and each answer is right with just that probability: what error is
    left is that of the size of the sample.
    """
    order = np.concatenate(equal_mass(confidence, bins))
    sizes = [len(some) for some in equal_mass(confidence, bins)]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ordered = confidence[order]
    generator = np.random.default_rng(seed)
    errors = np.zeros(simulations)
    for number in range(simulations):
        right = generator.random(len(ordered)) < ordered
        errors[number] = np.abs(np.add.reduceat(ordered - right, starts)).sum() / len(ordered)
    return float(np.percentile(errors, _PERCENTILE))


def risk_at(confidence: NDArray[np.float64], right: NDArray[np.bool_], coverage: float) -> float:
    """Return the share of wrong answers among the surest `coverage` of all; at least one counts.

    >>> sure, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, True])
    >>> risk_at(sure, right, 0.5), round(risk_at(sure, right, 0.75), 4)
    (0.0, 0.3333)
    """
    kept = max(1, round(coverage * len(confidence)))
    surest = np.argsort(-confidence, kind="stable")[:kept]
    return float(1 - right[surest].mean())


class Calibrated(Protocol):
    """Whatever tells capsule lengths from examples, and probabilities from lengths."""

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C)."""
        ...  # pragma: no cover

    def calibrate(self, lengths: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the probabilities of lengths (n, C), if that is known."""
        ...  # pragma: no cover


def judge_confidence(
    predictor: Calibrated, examples: Sequence[Example]
) -> dict[str, CalibrationFigures]:
    """Judge confidences with the aspect given, beside those of lengths as they are.

    `uncalibrated`: each length's share of their sum. `calibrated`: what the model says, if it has a
    calibration.
    """
    chosen = judgeable(examples)
    lengths = predictor.predict_lengths(chosen)
    truth = np.array([CLASSES.index(e.polarity) for e in chosen if e.polarity], dtype=np.int64)
    predicted = lengths.argmax(-1).astype(np.int64)
    shares = (lengths / lengths.sum(1, keepdims=True)).astype(np.float64)
    judged = {"uncalibrated": judge_calibration(shares, truth, predicted)}
    probabilities = predictor.calibrate(lengths)
    if probabilities is not None:
        judged["calibrated"] = judge_calibration(probabilities, truth, predicted)
    return judged
