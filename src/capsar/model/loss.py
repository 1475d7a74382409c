"""The training objective (eq. 6 to 8), one value an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def margin_loss(
    lengths: Tensor, truth: Tensor, *, upper: float = 1.0, lower: float = 0.1
) -> Tensor:
    """Return the margin loss of capsule lengths under a one-hot truth, both (B, C): (B) (eq. 6)."""
    present = (upper - lengths).clamp(min=0).square()  # (B, C)
    absent = (lengths - lower).clamp(min=0).square()  # (B, C)
    return (truth * present + (1 - truth) * absent).sum(-1)


def teaching_loss(lengths: Tensor, told: Tensor) -> Tensor:
    """Return how far capsule lengths are from those that teachers tell, both (B, C): (B)."""
    return (lengths - told).square().sum(-1)


def reconstruction_loss(aspect: Tensor, from_true: Tensor, from_others: Tensor) -> Tensor:
    """Return how far the true capsule is from the aspect, beside the others (eq. 7): (B).

    The aspect's vector (B, E) is not normalised, and must not be trainable: the loss could fall
    without end by growing it.
    """
    true_direction = functional.normalize(from_true, dim=-1, eps=1e-8)  # (B, E)
    other_direction = functional.normalize(from_others, dim=-1, eps=1e-8)  # (B, E)
    return (aspect * (other_direction - true_direction)).sum(-1)
