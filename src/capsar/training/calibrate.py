"""Fitting a calibration on dev: several kinds are compared, the best of them is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression, minimize

from capsar.calibration import KINDS, Calibration, cubes, log_odds, sizes_of
from capsar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    _Fit = Callable[[NDArray[np.floating], NDArray[np.int64]], Calibration]

FEW_EXAMPLES = 100
"""With fewer dev examples there is too little to choose a kind by."""
FEWEST_SENTENCES = 10
"""With fewer, nothing is fitted."""
_FOLDS = 5
_PULL = 1e-3
"""How strongly weights are drawn to 1 and offsets to 0."""
_USUAL = 0.5
"""A weight as the models that ship have them, fitted on some thousand examples."""
_FEW_PULL = 8.0
"""How strongly the weight of few examples is drawn there, over their number: a deviation of .25."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A calibration, and why it is this kind."""

    calibration: Calibration
    log_losses: dict[str, float]
    """Of each kind, on examples that it was not fitted on (cross-validated)."""
    probabilities: NDArray[np.float64]
    """Of the dev examples (n, C), each by a fit that did not see it."""


def fit_calibration(
    scores: NDArray[np.floating],
    truth: NDArray[np.int64],
    groups: Sequence[str],
    *,
    few: bool = False,
) -> Fitted | None:
    """Return the kind of calibration with the least cross-validated log loss, fitted on all.

    Of few examples it is a cautious temperature (`fit_few`), whatever the others would reach.

    Args:
        scores: Of each class, from 0 to 1 (n, C).
        truth: The true class (n).
        groups: What belongs together (the sentence): never parted by a fold.
        few: Whether there are too few examples to choose a kind.

    Returns:
        Nothing where there are too few examples to fit and compare.

    Raises:
        ConfigError: If a score is not a number: the network's last step went too far.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    if len(names) < FEWEST_SENTENCES:
        return None
    if not np.isfinite(scores).all():
        raise ConfigError(
            "The network's last answers are not numbers; lower train.learning_rate or set "
            "train.clip_norm"
        )
    fits: dict[str, _Fit] = {kind: partial(fit_kind, kind) for kind in KINDS}
    if few:
        fits = {"temperature": fit_few}
    folds = np.array([names[group] % _FOLDS for group in groups])
    held_out = {kind: np.zeros(scores.shape) for kind in fits}
    for fold in range(_FOLDS):
        inside, outside = folds != fold, folds == fold
        for kind, fit in fits.items():
            made = fit(scores[inside], truth[inside])
            held_out[kind][outside] = made.apply(scores[outside])
    losses = {kind: log_loss(held_out[kind], truth) for kind in fits}
    best = min(fits, key=losses.__getitem__)  # of equal ones, the one of fewer numbers
    return Fitted(fits[best](scores, truth), losses, held_out[best])


def highest_of(number: int) -> float:
    """Return the highest probability that so many examples can show, were all of them right.

    >>> highest_of(8)
    0.9
    """
    return (number + 1) / (number + 2)


def fit_few(scores: NDArray[np.floating], truth: NDArray[np.int64]) -> Calibration:
    """Fit a temperature that stays near the usual one, and promises no more than it has seen."""
    number = len(truth)
    made = fit_kind("temperature", scores, truth, pull=_FEW_PULL / number, toward=_USUAL)
    return replace(made, most=round(highest_of(number), 6))


def fit_kind(
    kind: str,
    scores: NDArray[np.floating],
    truth: NDArray[np.int64],
    *,
    pull: float = _PULL,
    toward: float = 1.0,
) -> Calibration:
    """Fit one kind of calibration, its weights drawn so strongly towards a number."""
    odds, classes = log_odds(scores), scores.shape[1]
    if kind == "isotonic":
        return Calibration(
            kind, steps=tuple(_steps(odds[:, i], truth == i) for i in range(classes))
        )
    num_weights, num_bends, num_offsets = sizes_of(kind, classes)
    rising = num_weights + num_bends
    raised = cubes(odds)

    def loss(numbers: NDArray[np.float64]) -> float:
        logits = odds * numbers[:num_weights]
        if num_bends:
            logits = logits + raised * numbers[num_weights:rising]
        if num_offsets:
            logits = logits + numbers[rising:]
        highest = logits.max(1, keepdims=True)
        total = np.log(np.exp(logits - highest).sum(1)) + highest[:, 0]
        away = pull * float(((numbers - start) ** 2).sum())
        return float((total - logits[np.arange(len(truth)), truth]).mean()) + away

    start = np.concatenate([np.full(num_weights, toward), np.zeros(num_bends + num_offsets)])
    # Weights below zero would turn the order of scores round.
    bounds = [(0.0, None)] * rising + [(None, None)] * num_offsets
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x.round(6).tolist()
    bends = tuple(found[num_weights:rising])
    return Calibration(kind, tuple(found[:num_weights]), tuple(found[rising:]), bends=bends)


def log_loss(probabilities: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Return the mean negative log of what the true class was given."""
    return float(-np.log(probabilities[np.arange(len(truth)), truth]).mean())


def _steps(
    odds: NDArray[np.float64], is_true: NDArray[np.bool_]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A rising line through where a class is true; only the points at which it turns."""
    x, place, counts = np.unique(odds, return_inverse=True, return_counts=True)
    shares = np.bincount(place, is_true) / counts
    y = isotonic_regression(shares, weights=counts).x
    turns = np.ones(len(y), dtype=bool)
    turns[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return tuple(x[turns].round(6).tolist()), tuple(y[turns].round(6).tolist())
