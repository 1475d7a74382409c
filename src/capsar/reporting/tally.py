"""`Tally`: what a share and its interval need to know of the mentions of an aspect.

Mentions in one review are not independent, so reviews are the units. Of each review only how many
mentions it has of each polarity matters, and of all reviews only the sums of these numbers and of
their products. Tallies of separate reviews therefore add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.labels import CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = len(CLASSES)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over reviews, for any number of groups of reviews at once."""

    reviews: NDArray[np.float64]
    """(...) Reviews with at least one mention."""
    mentions: NDArray[np.float64]
    """(..., C) Mentions of each polarity, in the order of `CLASSES`."""
    products: NDArray[np.float64]
    """(..., C, C) Sums over reviews of `y_k * y_l`, where `y_k` is a review's mentions of k."""
    unsure: NDArray[np.float64]
    """(...) Mentions whose polarity, or which as an aspect, the model was not sure of."""

    @staticmethod
    def zeros(*shape: int) -> Tally:
        """Return tallies of nothing."""
        return Tally(
            np.zeros(shape),
            np.zeros((*shape, SIZE)),
            np.zeros((*shape, SIZE, SIZE)),
            np.zeros(shape),
        )

    def __getitem__(self, index: Any) -> Tally:  # noqa: ANN401  (whatever numpy takes)
        return Tally(
            self.reviews[index], self.mentions[index], self.products[index], self.unsure[index]
        )

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.reviews + other.reviews,
            self.mentions + other.mentions,
            self.products + other.products,
            self.unsure + other.unsure,
        )

    def __sub__(self, other: Tally) -> Tally:
        return Tally(
            self.reviews - other.reviews,
            self.mentions - other.mentions,
            self.products - other.products,
            self.unsure - other.unsure,
        )

    def sum(self, axis: int | tuple[int, ...]) -> Tally:
        """Return the tallies of joined groups; axes are counted from the front."""
        return Tally(
            self.reviews.sum(axis),
            self.mentions.sum(axis),
            self.products.sum(axis),
            self.unsure.sum(axis),
        )

    @property
    def total(self) -> NDArray[np.float64]:
        """(...) Mentions of any polarity."""
        total: NDArray[np.float64] = self.mentions.sum(-1)
        return total

    def observed(self) -> NDArray[np.float64]:
        """Return the shares (..., C) as they were told; zeros where there is no mention."""
        shares: NDArray[np.float64] = self.mentions / np.maximum(self.total, 1)[..., None]
        return shares

    def scatter(self) -> NDArray[np.float64]:
        """Return sums over reviews (..., C, C) of what each adds to the spread of the shares.

        A review with mentions y, in all m, strays from the shares p by `y - p m`: these are the
        residuals of a ratio, and the sum of their products, over the squared number of mentions,
        is the covariance of the shares that clusters are allowed for in.
        """
        shares = self.observed()
        with_size = self.products.sum(-1)  # (..., C): sums of y m
        size_squared = with_size.sum(-1)  # (...): sums of m m
        cross = with_size[..., :, None] * shares[..., None, :]
        outer = shares[..., :, None] * shares[..., None, :]
        spread = self.products - cross - np.swapaxes(cross, -1, -2)
        scattered: NDArray[np.float64] = spread + outer * size_squared[..., None, None]
        few = np.maximum(self.reviews, 2)
        scattered *= (few / (few - 1))[..., None, None]
        return scattered

    def covariance(self) -> NDArray[np.float64]:
        """Return the covariance (..., C, C) of the shares, reviews being the units."""
        scattered = self.scatter()
        scattered /= np.maximum(self.total, 1)[..., None, None] ** 2
        return scattered
