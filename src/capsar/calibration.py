"""Calibration: scores -> probabilities.

Capsule lengths and the scores of extracted spans are not probabilities. A calibration is fitted on
validation data at the end of training and stored in the bundle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    _Fit = Callable[[NDArray[np.floating], NDArray[np.int64]], "Calibration"]

KINDS = ("temperature", "vector")
"""In increasing number of parameters."""
FEW_EXAMPLES = 100
"""With fewer validation examples, a regularized temperature is fitted instead of the best kind."""
MIN_SENTENCES = 10
"""With fewer validation sentences, nothing is fitted."""
_EPS = 1e-4
"""Scores are clipped to this distance from 0 and 1."""
_FOLDS = 5
_L2 = 1e-3
"""Regularization of weights towards 1 and of offsets towards 0."""
_FEW_L2 = 8.0
"""Regularization with few examples, divided by their number: a standard deviation of .25."""
_FEW_WEIGHT = 0.5
"""The weight that few examples are regularized towards: typical of models with much data."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from class scores between 0 and 1 to probabilities.

    `temperature` is the softmax of the scores' log-odds times one weight. `vector` has one weight
    and one offset per class.
    """

    kind: str
    weights: tuple[float, ...] = ()
    """One, or one per class."""
    offsets: tuple[float, ...] = ()
    """None, or one per class."""
    max_confidence: float = 1.0
    """The maximum probability; if below one, probabilities are shrunk towards uniform."""

    def apply(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the probabilities of scores (n, C); each row sums to one.

        >>> halves = Calibration("temperature", (1.0,)).apply(np.array([[0.5, 0.5]]))
        >>> halves.tolist()
        [[0.5, 0.5]]
        """
        logits = log_odds(scores) * np.array(self.weights) + np.array(self.offsets or 0.0)
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(1, keepdims=True)
        if self.max_confidence < 1:
            uniform = 1 / probabilities.shape[1]
            scale = (self.max_confidence - uniform) / (1 - uniform)
            probabilities = uniform + (probabilities - uniform) * scale
        return probabilities

    def as_dict(self) -> dict[str, Any]:
        """Return the calibration as a JSON object."""
        content: dict[str, Any] = {
            "kind": self.kind,
            "weights": list(self.weights),
            "offsets": list(self.offsets),
        }
        return content | (
            {"max_confidence": self.max_confidence} if self.max_confidence < 1 else {}
        )

    @classmethod
    def from_dict(cls, content: Any, num_classes: int) -> Calibration:  # noqa: ANN401  (JSON)
        """Read a calibration from the configuration of a bundle.

        Raises:
            ArtifactError: If it is invalid.
        """
        try:
            calibration = cls(
                kind=str(content["kind"]),
                weights=tuple(map(float, content["weights"])),
                offsets=tuple(map(float, content["offsets"])),
                max_confidence=float(content.get("max_confidence", 1.0)),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ArtifactError(
                f"config.json has no valid calibration ({error!r}). Export the model again."
            ) from error
        numbers = (*calibration.weights, *calibration.offsets)
        expected = (num_classes, num_classes) if calibration.kind == "vector" else (1, 0)
        if not (
            calibration.kind in KINDS
            and (len(calibration.weights), len(calibration.offsets)) == expected
            and 1 / num_classes < calibration.max_confidence <= 1
            and np.isfinite(numbers).all()
        ):
            raise ArtifactError(
                f"config.json has a calibration {calibration.kind!r} that does not fit "
                f"{num_classes} classes. Export the model again."
            )
        return calibration


def log_odds(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the log-odds of scores, clipped away from 0 and 1."""
    clipped = np.clip(np.asarray(scores, dtype=np.float64), _EPS, 1 - _EPS)
    return np.log(clipped) - np.log1p(-clipped)


def binary_scores(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return scores of the positive class (n) as scores of both classes (n, 2)."""
    positive = np.asarray(scores, dtype=np.float64)
    return np.stack([1 - positive, positive], axis=1)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted calibration and its cross-validated results."""

    calibration: Calibration
    log_losses: dict[str, float]
    """The cross-validated log loss of each kind."""
    probabilities: NDArray[np.float64]
    """The cross-validated probabilities of the validation examples (n, C)."""


def fit_calibration(
    scores: NDArray[np.floating],
    truth: NDArray[np.int64],
    groups: Sequence[str],
    *,
    few: bool = False,
) -> Fitted | None:
    """Fit the kind of calibration with the lowest cross-validated log loss on all examples.

    Args:
        scores: Of each class, from 0 to 1 (n, C).
        truth: The true class (n).
        groups: The group (sentence) of each example; folds do not split groups.
        few: Whether to fit a regularized temperature with a maximum confidence, because there are
            too few examples to choose a kind.

    Returns:
        None if there are fewer than `MIN_SENTENCES` groups.

    Raises:
        ConfigError: If a score is not finite: training diverged.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    if len(names) < MIN_SENTENCES:
        return None
    if not np.isfinite(scores).all():
        raise ConfigError(
            "The network's predictions are not finite: training diverged. Lower "
            "train.learning_rate or set train.max_grad_norm"
        )
    fits: dict[str, _Fit] = {kind: partial(fit_kind, kind) for kind in KINDS}
    if few:
        fits = {"temperature": _fit_few}
    folds = np.array([names[group] % _FOLDS for group in groups])
    held_out = {kind: np.zeros(scores.shape) for kind in fits}
    for fold in range(_FOLDS):
        inside, outside = folds != fold, folds == fold
        for kind, fit in fits.items():
            held_out[kind][outside] = fit(scores[inside], truth[inside]).apply(scores[outside])
    losses = {kind: log_loss(held_out[kind], truth) for kind in fits}
    best = min(fits, key=losses.__getitem__)  # the first of equal ones has fewer parameters
    return Fitted(fits[best](scores, truth), losses, held_out[best])


def max_confidence(num_examples: int) -> float:
    """Return the highest confidence that so many examples support, even if all are correct.

    >>> max_confidence(8)
    0.9
    """
    return (num_examples + 1) / (num_examples + 2)


def _fit_few(scores: NDArray[np.floating], truth: NDArray[np.int64]) -> Calibration:
    """Fit a temperature that is regularized towards a typical one, with a maximum confidence."""
    number = len(truth)
    fitted = fit_kind("temperature", scores, truth, l2=_FEW_L2 / number, prior=_FEW_WEIGHT)
    return replace(fitted, max_confidence=round(max_confidence(number), 6))


def fit_kind(
    kind: str,
    scores: NDArray[np.floating],
    truth: NDArray[np.int64],
    *,
    l2: float = _L2,
    prior: float = 1.0,
) -> Calibration:
    """Fit one kind of calibration by regularized maximum likelihood.

    Args:
        kind: One of `KINDS`.
        scores: Of each class (n, C).
        truth: The true class (n).
        l2: Strength of the regularization.
        prior: The value that weights are regularized towards.
    """
    from scipy.optimize import minimize

    odds = log_odds(scores)
    num_weights, num_offsets = (odds.shape[1],) * 2 if kind == "vector" else (1, 0)
    start = np.concatenate([np.full(num_weights, prior), np.zeros(num_offsets)])

    def loss(parameters: NDArray[np.float64]) -> float:
        logits = odds * parameters[:num_weights]
        if num_offsets:
            logits = logits + parameters[num_weights:]
        highest = logits.max(1, keepdims=True)
        normalizers = np.log(np.exp(logits - highest).sum(1)) + highest[:, 0]
        penalty = l2 * float(((parameters - start) ** 2).sum())
        return float((normalizers - logits[np.arange(len(truth)), truth]).mean()) + penalty

    # A negative weight would reverse the order of scores.
    bounds = [(0.0, None)] * num_weights + [(None, None)] * num_offsets
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x.round(6).tolist()
    return Calibration(kind, tuple(found[:num_weights]), tuple(found[num_weights:]))


def log_loss(probabilities: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Return the mean negative log probability of the true classes."""
    return float(-np.log(probabilities[np.arange(len(truth)), truth]).mean())
