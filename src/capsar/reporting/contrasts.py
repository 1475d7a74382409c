"""Do two groups of reviews speak differently of an aspect? Many questions, few false alarms.

Compared are the shares as told. If the model confuses classes at the same rates in both groups,
told shares are alike exactly if true ones are, so the test needs no correction and loses nothing by
what is not known about the confusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capsar.reporting.tally import SIZE, Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_REVIEWS = 20
"""A group of fewer is not compared."""
_ADDED = 0.5


def compare(one: Tally, other: Tally) -> NDArray[np.float64]:
    """Return the chance (...) of so large a difference between shares if there were none.

    Hotelling's test with covariances that allow for clusters, and with the degrees of freedom of
    the smaller group. Half a review of each polarity is added to both, so that a polarity which
    nobody told has a spread too. NaN where a group is too small.
    """
    added = _added(one.reviews.shape)
    first, second = one + added, other + added
    step = (first.observed() - second.observed())[..., :-1]
    spread = (first.covariance() + second.covariance())[..., :-1, :-1]
    distance = (step * np.linalg.solve(spread, step[..., None])[..., 0]).sum(-1)
    fewest = np.minimum(one.reviews, other.reviews)
    freedom = np.maximum(fewest - 1, 2)
    # The F distribution with 2 and freedom - 1 degrees, which has this simple tail.
    chances: NDArray[np.float64] = (1 + distance / freedom) ** (-(freedom - 1) / 2)
    return np.where(fewest >= FEWEST_REVIEWS, chances, np.nan)


def false_discovery_rates(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each test the rate of false alarms among all that are at least as clear.

    Benjamini and Hochberg's step-up procedure; NaN stays NaN and is no test.

    >>> false_discovery_rates(np.array([0.01, 0.04, 0.03, np.nan])).round(3).tolist()
    [0.03, 0.04, 0.04, nan]
    """
    rates = np.full(chances.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(chances.reshape(-1)))
    values = chances.reshape(-1)[tested]
    order = np.argsort(values)
    stepped = values[order] * len(values) / np.arange(1, len(values) + 1)
    stepped = np.minimum.accumulate(stepped[::-1])[::-1]
    rates.reshape(-1)[tested[order]] = np.minimum(stepped, 1)
    return rates


def _added(shape: tuple[int, ...]) -> Tally:
    ones = np.ones(shape)
    return Tally(
        _ADDED * SIZE * ones,
        _ADDED * np.ones((*shape, SIZE)),
        _ADDED * np.broadcast_to(np.eye(SIZE), (*shape, SIZE, SIZE)),
        0 * ones,
    )
