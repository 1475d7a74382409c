"""Tallies -> shares of polarities with intervals, corrected for the model's confusion.

What is counted is what the model told. If it takes class t for class k with rate `C[t, k]`, shares
pi of true classes are told as `C' pi` on average, so told shares p are corrected as `C'^-1 p`. None
of it is known exactly, so all of it is drawn anew many times:

- the told shares, from a Dirichlet distribution around the counts;
- the rates, from others around the examples they were measured on;
- the rates among these reviews, if they were measured on other ones, around those;
- the rates of one aspect, around those of all: nobody is neutral about the staff.

A draw that leaves the range from 0 to 1 cannot be, and is left out. A share is the mean of what
remains, and its interval holds the middle 95 %. The counts of mentions are first divided by the
design effect: how much more the shares vary, because mentions cluster in reviews, than they would
if every mention were a review of its own.

Where hardly one remains, the rates are not those of these reviews: a model that tells at least 8 of
100 as neutral, whatever they are, cannot have told 2. Such a group keeps its shares as told, and
its interval holds the nearest that correcting could make of them as well.
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
ALIKE_ASPECTS = 4.0
"""How much the rates of one aspect are those of all: the concentration of a Dirichlet
distribution. `experiments/aspect_confusion.py` measures it."""
ALIKE_CORPORA = 15.0
"""The same of all aspects together, where rates were measured on other reviews than these."""
_EDGES = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
_DRAWS, _MORE_DRAWS = 2000, 20_000
"""Of every group, and of one whose shares can hardly be corrected."""
_ENOUGH, _LEAST = 100, 20
"""Draws that remain: below which more are made, and below which nothing is corrected."""
_CELLS_AT_ONCE = 256
_REVIEWS_FOR_OWN_EFFECT = 100
_PRIOR = 0.5
_LEAST_PARAMETER = 1e-3
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


def estimate_shares(
    tally: Tally, confusion: Confusion | None, *, of_aspects: bool = False, seed: int = 0
) -> Shares:
    """Return shares of all groups of a tally.

    Args:
        tally: Of groups of any shape; along its first axis design effects are alike (aspects).
        confusion: Of the model; without it, shares are those that it told.
        of_aspects: Whether each group is of a single aspect.
        seed: Of the draws.
    """
    chance = np.random.default_rng(seed)
    shape, here = tally.total.shape, np.flatnonzero(tally.total.reshape(-1))
    counts = (tally.mentions / _design_effects(tally)[..., None]).reshape(-1, len(CLASSES))
    share = np.full(counts.shape, np.nan)
    share[here] = tally.observed().reshape(counts.shape)[here]
    bounds = np.full((len(counts), 2, len(CLASSES) + 1), np.nan)
    corrected = np.zeros(len(counts), dtype=np.bool_)
    undo = _drawn_corrections(confusion, chance, of_aspects=of_aspects) if confusion else None
    for cells in _parts(here, _CELLS_AT_ONCE):
        bounds[cells], *_ = _middle(_drawn_shares(counts[cells], _DRAWS, chance))
        if confusion is None or undo is None:
            continue
        _widen(bounds, cells, nearest_shares(share[cells] @ np.linalg.inv(confusion.rates)))
        left = cells
        for draws, least in ((_DRAWS, _ENOUGH), (_MORE_DRAWS, _LEAST)):
            for some in _parts(left, _CELLS_AT_ONCE * _DRAWS // draws):
                told = _drawn_shares(counts[some], draws, chance)
                points = np.einsum("dij,ndj->ndi", undo[:draws], told)
                middle, means, number = _middle(points, (points >= 0).all(-1))
                good = number >= least
                done = some[good]
                bounds[done], share[done], corrected[done] = middle[good], means[good], True
            left = left[~corrected[left]]
    low, high = np.moveaxis(bounds.reshape(*shape, 2, len(CLASSES) + 1), -2, 0)
    share = share.reshape(*shape, len(CLASSES))
    return Shares(
        share, low[..., :-1], high[..., :-1], share @ _NET, low[..., -1], high[..., -1],
        corrected.reshape(shape),
    )  # fmt: skip


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


def _parts(cells: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    return [cells[first : first + size] for first in range(0, len(cells), size)]


def _drawn_corrections(
    confusion: Confusion, chance: np.random.Generator, *, of_aspects: bool
) -> NDArray[np.float64]:
    """Return what undoes the confusion (D, C, C), as it may be in truth."""
    rows = [chance.dirichlet(np.array(row) + _PRIOR, _MORE_DRAWS) for row in confusion.counts]
    rates = np.stack(rows, axis=1)
    if confusion.elsewhere:
        rates = _around(rates, ALIKE_CORPORA, chance)
    if of_aspects:
        rates = _around(rates, ALIKE_ASPECTS, chance)
    # A draw that cannot be undone is as good as no knowledge: pinv gives a bounded answer.
    return np.asarray(np.linalg.pinv(np.swapaxes(rates, 1, 2), rcond=1e-3), dtype=np.float64)


def _around(
    rates: NDArray[np.float64], alike: float, chance: np.random.Generator
) -> NDArray[np.float64]:
    drawn = chance.standard_gamma(np.maximum(alike * rates, _LEAST_PARAMETER))
    drawn /= drawn.sum(-1, keepdims=True)
    return drawn


def _drawn_shares(
    counts: NDArray[np.float64], draws: int, chance: np.random.Generator
) -> NDArray[np.float64]:
    """Return what might have been told (n, D, C) of n groups."""
    size = (len(counts), draws, counts.shape[1])
    told = chance.standard_gamma(np.broadcast_to(counts[:, None] + _PRIOR, size))
    told /= told.sum(-1, keepdims=True)
    return told


def _middle(
    shares: NDArray[np.float64], possible: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return bounds (n, 2, C + 1) of what is drawn (n, D, C) and possible, and of its net.

    And its mean (n, C), and how many draws (n) that are.
    """
    if possible is None:
        possible = np.ones(shares.shape[:2], dtype=np.bool_)
    number = possible.sum(1)
    some = np.maximum(number, 1)[:, None]
    means = (shares * possible[..., None]).sum(1) / some
    values = np.concatenate([shares, (shares @ _NET)[..., None]], axis=-1)
    values[~possible] = np.inf  # sorted, these come last
    values.sort(axis=1)
    places = np.rint(np.array(_EDGES) * (some - 1)).astype(np.int64)
    return np.take_along_axis(values, places[..., None], axis=1), means, number


def _widen(
    bounds: NDArray[np.float64], cells: NDArray[np.int64], shares: NDArray[np.float64]
) -> None:
    """Let the intervals of some groups hold these shares (n, C) as well."""
    values = np.concatenate([shares, (shares @ _NET)[:, None]], axis=-1)
    bounds[cells, 0] = np.minimum(bounds[cells, 0], values)
    bounds[cells, 1] = np.maximum(bounds[cells, 1], values)


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
