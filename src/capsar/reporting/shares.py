"""Tallies -> shares of polarities with intervals, corrected for the model's confusion.

What is counted is what the model told. If it takes class t for class k with rate `C[t, k]`, shares
pi of true classes are told as `C' pi` on average, so told shares p are corrected as `C'^-1 p`, and
brought back among shares where that leaves them. The rates are known from some examples only, and
the told shares from some reviews: both are drawn anew many times, and an interval holds the middle
95 % of what comes out.

Drawn are Dirichlet values around the counts, with half a count more a class (Jeffreys). The counts
of mentions are first divided by the design effect: how much more the shares vary, because mentions
cluster in reviews, than they would if every mention were a review of its own.

A model that tells at least 8 of 100 as neutral, whatever they are, cannot have told 2: where hardly
any draw can be corrected within 0 and 1, the rates are not those of these reviews. Moving to the
nearest shares would then give 0, and be sure of it. Such a group keeps its shares as told, and its
interval holds what correcting would have made of them as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capsar.labels import CLASSES, Polarity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from capsar.reporting.confusion import Confusion
    from capsar.reporting.tally import Tally

LEVEL = 0.95
_EDGES = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
_DRAWS = 1000
_CELLS_AT_ONCE = 256
_REVIEWS_FOR_OWN_EFFECT = 100
_PRIOR = 0.5
_NET = np.array(
    [{Polarity.POSITIVE: 1.0, Polarity.NEGATIVE: -1.0}.get(one, 0.0) for one in CLASSES]
)


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of each polarity, and the share of positive less that of negative mentions."""

    share: NDArray[np.float64]
    """(..., C)"""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    net: NDArray[np.float64]
    """(...)"""
    net_low: NDArray[np.float64]
    net_high: NDArray[np.float64]
    corrected: NDArray[np.bool_]
    """(...): whether they are corrected; if not, they are as told."""


def estimate_shares(tally: Tally, confusion: Confusion | None, *, seed: int = 0) -> Shares:
    """Return shares of all groups of a tally.

    Args:
        tally: Of groups of any shape; along its first axis design effects are alike (aspects).
        confusion: Of the model; without it, shares are those that it told.
        seed: Of the draws.
    """
    chance = np.random.default_rng(seed)
    undo = _drawn_corrections(confusion, chance)  # (D, C, C)
    exact = np.linalg.inv(confusion.rates.T) if confusion else np.eye(len(CLASSES))
    counts = (tally.mentions / _design_effects(tally)[..., None]).reshape(-1, len(CLASSES))
    bounds = np.full((len(counts), 2, len(CLASSES) + 1), np.nan)
    fits = np.zeros(len(counts), dtype=np.bool_)
    here = np.flatnonzero(tally.total.reshape(-1))
    for first in range(0, len(here), _CELLS_AT_ONCE):
        cells = here[first : first + _CELLS_AT_ONCE]
        bounds[cells], fits[cells] = _interval(counts[cells], undo, chance)
    corrected = (fits & (confusion is not None)).reshape(tally.total.shape)
    told = tally.observed()
    share = np.where(corrected[..., None], nearest_shares(told @ exact.T), told)
    share[tally.total == 0] = np.nan
    bounds = bounds.reshape(*tally.total.shape, 2, len(CLASSES) + 1)
    low, high = bounds[..., 0, :], bounds[..., 1, :]
    net = share @ _NET
    return Shares(share, low[..., :-1], high[..., :-1], net, low[..., -1], high[..., -1], corrected)


def nearest_shares(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest points (..., C) that are shares: none below 0, together 1.

    >>> nearest_shares(np.array([1.1, -0.2, 0.1])).round(3).tolist()
    [1.0, 0.0, 0.0]
    """
    falling = -np.sort(-points, axis=-1)
    excess = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, points.shape[-1] + 1)
    kept = (falling > excess).sum(-1, keepdims=True)
    threshold = np.take_along_axis(excess, kept - 1, axis=-1)
    nearest: NDArray[np.float64] = np.maximum(points - threshold, 0)
    return nearest


def _drawn_corrections(
    confusion: Confusion | None, chance: np.random.Generator
) -> NDArray[np.float64]:
    """Return what undoes the confusion (D, C, C), as it may be in truth."""
    if confusion is None:
        return np.broadcast_to(np.eye(len(CLASSES)), (_DRAWS, len(CLASSES), len(CLASSES)))
    rates = np.stack(
        [chance.dirichlet(np.array(row) + _PRIOR, _DRAWS) for row in confusion.counts], axis=1
    )
    # A draw that cannot be undone is as good as no knowledge: pinv gives a bounded answer.
    return np.asarray(np.linalg.pinv(np.swapaxes(rates, 1, 2), rcond=1e-3), dtype=np.float64)


def _interval(
    counts: NDArray[np.float64], undo: NDArray[np.float64], chance: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the bounds (n, 2, C + 1) of the shares, and of their net, of n groups.

    And whether (n) enough draws can be corrected: a share can only be 0 from end to end of its
    interval, and sure to be, where fewer can.
    """
    size = (len(counts), len(undo), counts.shape[1])
    told = chance.standard_gamma(np.broadcast_to(counts[:, None] + _PRIOR, size))
    told /= told.sum(-1, keepdims=True)
    points = np.einsum("dij,ndj->ndi", undo, told)  # (n, D, C)
    fits = (points >= 0).all(-1).mean(-1) > _EDGES[0]
    bounds = _middle(nearest_shares(points))
    as_told = _middle(told[~fits])
    bounds[~fits, 0] = np.minimum(bounds[~fits, 0], as_told[:, 0])
    bounds[~fits, 1] = np.maximum(bounds[~fits, 1], as_told[:, 1])
    return bounds, fits


def _middle(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bounds (n, 2, C + 1) of what is drawn (n, D, C), and of its net."""
    values = np.concatenate([shares, (shares @ _NET)[..., None]], axis=-1)
    return np.moveaxis(np.quantile(values, _EDGES, axis=1), 0, 1)


def _design_effects(tally: Tally) -> NDArray[np.float64]:
    """Return how much more the shares of each group vary than if mentions were reviews.

    Of few reviews it cannot be told; groups of few take that of their whole row.
    """
    clustered = np.trace(tally.scatter(), axis1=-2, axis2=-1)
    alone = tally.total * (1 - (tally.observed() ** 2).sum(-1))
    own = _ratio(clustered, alone)
    if tally.total.ndim < 2:  # noqa: PLR2004
        return own
    others = tuple(range(1, tally.total.ndim))
    pooled = _ratio(clustered.sum(others, keepdims=True), alone.sum(others, keepdims=True))
    return np.where(tally.reviews >= _REVIEWS_FOR_OWN_EFFECT, own, np.maximum(pooled, 1))


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(np.divide(above, below, out=np.ones_like(above), where=below > 0), 1)
