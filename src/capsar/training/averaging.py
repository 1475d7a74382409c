"""A running mean of weights: less noisy than the weights of whichever step came last."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from capsar.training.networks import trained_weights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from capsar.training.networks import Network


class Average:
    """The exponential mean of a network's trained weights, over the steps so far.

    The first steps count little: the decay rises from 0.1 to what is asked for.

    Args:
        decay: What the mean keeps of itself at each step; 0 makes it the last weights.
        tensors: The mean so far, for a run that goes on.
    """

    def __init__(self, decay: float, tensors: dict[str, Tensor] | None = None) -> None:
        self.decay = decay
        self.tensors = tensors or {}

    @torch.no_grad()
    def update(self, model: Network, step: int) -> None:
        """Take in the weights after a step, which are counted from 0."""
        if not self.decay:
            return
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in trained_weights(model).items():
            mean = self.tensors.setdefault(name, value.clone())
            mean.lerp_(value, 1 - decay)

    def weights_of(self, model: Network) -> dict[str, Tensor]:
        """Return a copy of the mean weights; of the network's own, if no mean is taken."""
        kept = self.tensors or trained_weights(model)
        return {name: value.clone() for name, value in kept.items()}

    @contextmanager
    def in_place(self, model: Network) -> Iterator[None]:
        """Give the network the mean weights for a while."""
        if not self.tensors:
            yield
            return
        own = trained_weights(model)
        kept = {name: value.clone() for name, value in own.items()}
        _copy(self.tensors, own)
        try:
            yield
        finally:
            _copy(kept, own)


@torch.no_grad()
def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
