"""Counts of mentions -> shares of polarities with intervals, and significance tests.

Mentions in one review are not independent, so reviews are the sampling units. `AspectCounts` keeps
sums over reviews of the mentions per polarity and of their products; both add up over files.

Intervals are quantiles of Dirichlet draws around the counts, with half a count added per polarity
(Jeffreys' prior). Counts are first divided by the design effect: how much more the shares vary
because mentions cluster in reviews than they would if every mention were a review of its own.
Shares are those of the predictions; intervals cover sampling error, not errors of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.schema import CLASSES, Polarity

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_REVIEWS = 20
"""Smaller groups are not compared."""
LEVEL = 0.95
"""Of intervals."""
_QUANTILES = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
_DRAWS = 2000
_GROUPS_AT_ONCE = 256
_REVIEWS_FOR_OWN_EFFECT = 100
_PRIOR = 0.5
_LEAST_SPREAD = 0.05
"""Of mentions per review, relative to independent ones: nearly every review has one."""
_NUM_CLASSES = len(CLASSES)
_NET = np.array(
    [{Polarity.POSITIVE: 1.0, Polarity.NEGATIVE: -1.0}.get(one, 0.0) for one in CLASSES]
)


@dataclass(frozen=True, slots=True)
class AspectCounts:
    """Sums over reviews, for groups of reviews in an array of any shape."""

    reviews: NDArray[np.float64]
    """(...) Reviews with at least one mention."""
    mentions: NDArray[np.float64]
    """(..., C) Mentions of each polarity, in the order of `CLASSES`."""
    products: NDArray[np.float64]
    """(..., C, C) Sums over reviews of `y_k * y_l`, where `y_k` is a review's mentions of k."""
    low_confidence: NDArray[np.float64]
    """(...) Mentions below the minimum confidence."""

    @staticmethod
    def zeros(*shape: int) -> AspectCounts:
        """Return empty counts."""
        return AspectCounts(
            np.zeros(shape),
            np.zeros((*shape, _NUM_CLASSES)),
            np.zeros((*shape, _NUM_CLASSES, _NUM_CLASSES)),
            np.zeros(shape),
        )

    def __getitem__(self, index: Any) -> AspectCounts:  # noqa: ANN401  (any numpy index)
        return AspectCounts(*(array[index] for array in self._arrays()))

    def __add__(self, other: AspectCounts) -> AspectCounts:
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return AspectCounts(*(one + two for one, two in pairs))

    def __sub__(self, other: AspectCounts) -> AspectCounts:
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return AspectCounts(*(one - two for one, two in pairs))

    def sum(self, axis: int | tuple[int, ...]) -> AspectCounts:
        """Return the counts of joined groups; axes are counted from the front."""
        return AspectCounts(*(array.sum(axis) for array in self._arrays()))

    def _arrays(self) -> tuple[NDArray[np.float64], ...]:
        return self.reviews, self.mentions, self.products, self.low_confidence

    @property
    def total(self) -> NDArray[np.float64]:
        """(...) Mentions of any polarity."""
        total: NDArray[np.float64] = self.mentions.sum(-1)
        return total

    def shares(self) -> NDArray[np.float64]:
        """Return the share (..., C) of each polarity; zeros where there is no mention."""
        shares: NDArray[np.float64] = self.mentions / np.maximum(self.total, 1)[..., None]
        return shares

    def scatter(self) -> NDArray[np.float64]:
        """Return the sums (..., C, C) over reviews of the products of ratio residuals.

        The residual of a review with mentions y, m in total, is `y - p m` for shares p. The sum
        over the squared number of mentions is the cluster-robust covariance of the shares.
        """
        shares = self.shares()
        with_size = self.products.sum(-1)  # (..., C): sums of y m
        size_squared = with_size.sum(-1)  # (...): sums of m m
        cross = with_size[..., :, None] * shares[..., None, :]
        outer = shares[..., :, None] * shares[..., None, :]
        scatter: NDArray[np.float64] = self.products - cross - np.swapaxes(cross, -1, -2)
        scatter += outer * size_squared[..., None, None]
        reviews = np.maximum(self.reviews, 2)
        scatter *= (reviews / (reviews - 1))[..., None, None]
        return scatter

    def covariance(self) -> NDArray[np.float64]:
        """Return the covariance (..., C, C) of the shares with reviews as sampling units."""
        covariance = self.scatter()
        covariance /= np.maximum(self.total, 1)[..., None, None] ** 2
        return covariance


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares (..., C + 1) of each polarity with intervals; last, positive minus negative share.

    Or rates (..., C), without a last one.
    """

    share: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def estimate_shares(counts: AspectCounts, seed: int = 0) -> Shares:
    """Return the shares of all groups with intervals; NaN for groups without a mention.

    Args:
        counts: Of groups of any shape; small groups share a design effect along the first axis.
        seed: Of the draws.
    """
    random = np.random.default_rng(seed)
    effective = (counts.mentions / _design_effects(counts)[..., None]).reshape(-1, _NUM_CLASSES)
    share = _with_net(counts.shares().reshape(-1, _NUM_CLASSES))
    bounds = np.full((2, *share.shape), np.nan)
    present = counts.total.reshape(-1) > 0
    share[~present] = np.nan
    for first in range(0, len(share), _GROUPS_AT_ONCE):
        groups = first + np.flatnonzero(present[first : first + _GROUPS_AT_ONCE])
        size = (len(groups), _DRAWS, _NUM_CLASSES)
        drawn = random.standard_gamma(np.broadcast_to(effective[groups, None] + _PRIOR, size))
        drawn /= drawn.sum(-1, keepdims=True)
        bounds[:, groups] = np.quantile(_with_net(drawn), _QUANTILES, axis=1, method="nearest")
    # The prior keeps draws off 0 and 1: extend an interval to a share of 0 or 1 itself.
    low, high = np.minimum(bounds[0], share), np.maximum(bounds[1], share)
    shape = (*counts.total.shape, _NUM_CLASSES + 1)
    return Shares(share.reshape(shape), low.reshape(shape), high.reshape(shape))


def estimate_rates(counts: AspectCounts, reviews: int, seed: int = 0) -> Shares:
    """Return the mentions of each polarity per review (..., C) with intervals.

    Quantiles of gamma draws around the counts, with half a mention added. Counts are first divided
    by how much more they vary from review to review than those of independent mentions.

    Args:
        counts: Of groups of any shape.
        reviews: The number of all reviews, with a mention or not.
        seed: Of the draws.
    """
    total = counts.mentions
    squares = np.diagonal(counts.products, axis1=-2, axis2=-1)
    spread = (squares - total**2 / max(1, reviews)) / np.maximum(total, 1)
    effect = np.maximum(spread, _LEAST_SPREAD)[..., None]
    size = (*total.shape, _DRAWS)
    drawn = np.random.default_rng(seed).standard_gamma(
        np.broadcast_to(total[..., None] / effect + _PRIOR, size)
    )
    low, high = np.quantile(drawn * effect, _QUANTILES, axis=-1, method="nearest") / max(1, reviews)
    rate = total / max(1, reviews)
    return Shares(rate, np.minimum(low, rate), np.maximum(high, rate))


def _with_net(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([shares, (shares @ _NET)[..., None]], axis=-1)


def _design_effects(counts: AspectCounts) -> NDArray[np.float64]:
    """Return the ratio of each group's variance to that of independent mentions, at least 1.

    Groups of few reviews use the effect of their whole row.
    """
    clustered = np.trace(counts.scatter(), axis1=-2, axis2=-1)
    independent = counts.total * (1 - (counts.shares() ** 2).sum(-1))
    own = _effect(clustered, independent)
    if counts.total.ndim < 2:  # noqa: PLR2004
        return own
    others = tuple(range(1, counts.total.ndim))
    pooled = _effect(clustered.sum(others, keepdims=True), independent.sum(others, keepdims=True))
    return np.where(counts.reviews >= _REVIEWS_FOR_OWN_EFFECT, own, pooled)


def _effect(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(np.divide(above, below, out=np.ones_like(above), where=below > 0), 1)


def compare_shares(one: AspectCounts, other: AspectCounts) -> NDArray[np.float64]:
    """Return the p-values (...) of equal shares in two groups; NaN where a group is too small.

    Hotelling's test with cluster-robust covariances and the degrees of freedom of the smaller
    group. Half a review per polarity is added to both groups, so that a polarity without mentions
    has a variance as well.
    """
    shape = one.reviews.shape
    added = AspectCounts(
        np.full(shape, _PRIOR * _NUM_CLASSES),
        np.full((*shape, _NUM_CLASSES), _PRIOR),
        _PRIOR * np.broadcast_to(np.eye(_NUM_CLASSES), (*shape, _NUM_CLASSES, _NUM_CLASSES)),
        np.zeros(shape),
    )
    first, second = one + added, other + added
    step = (first.shares() - second.shares())[..., :-1]
    covariance = (first.covariance() + second.covariance())[..., :-1, :-1]
    distance = (step * np.linalg.solve(covariance, step[..., None])[..., 0]).sum(-1)
    fewest = np.minimum(one.reviews, other.reviews)
    freedom = np.maximum(fewest - 1, 2)
    # The tail of the F distribution with 2 and freedom - 1 degrees of freedom.
    p_values: NDArray[np.float64] = (1 + distance / freedom) ** (-(freedom - 1) / 2)
    return np.where(fewest >= MIN_REVIEWS, p_values, np.nan)


def adjust_p_values(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return q-values by the procedure of Benjamini and Hochberg; NaN is not counted as a test.

    >>> adjust_p_values(np.array([0.01, 0.04, 0.03, np.nan])).round(3).tolist()
    [0.03, 0.04, 0.04, nan]
    """
    q_values = np.full(p_values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p_values.reshape(-1)))
    values = p_values.reshape(-1)[tested]
    order = np.argsort(values)
    stepped = values[order] * len(values) / np.arange(1, len(values) + 1)
    stepped = np.minimum.accumulate(stepped[::-1])[::-1]
    q_values.reshape(-1)[tested[order]] = np.minimum(stepped, 1)
    return q_values
