"""The three layers of capsules: words -> primary -> intermediate -> one per sentiment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.model.routing import route, squash
from capsar.model.routing_gradient import route_in_training

ACTIVATIONS = {"linear": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}


class PrimaryCapsules(nn.Module):
    """A convolution over the weighted hidden states, read as a few capsules per word (eq. 3).

    Args:
        hidden_dim: Size of the hidden states (H).
        capsules_per_word: 6 in the paper, whose 450 primary capsules are 75 words x 6.
        capsule_dim: Size of a primary capsule (P).
        kernel_width: Words seen by the convolution; odd.
        activation: A name in `ACTIVATIONS`.
        squashed: Whether primary capsules are squashed; if so, proximity mostly saturates away.
    """

    def __init__(
        self,
        *,
        hidden_dim: int,
        capsules_per_word: int = 6,
        capsule_dim: int = 50,
        kernel_width: int = 3,
        activation: str = "relu",
        squashed: bool = False,
    ) -> None:
        super().__init__()
        self.capsule_dim = capsule_dim
        self.kernel_width = kernel_width
        self.squashed = squashed
        self.projection = nn.Linear(kernel_width * hidden_dim, capsules_per_word * capsule_dim)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the primary capsules of states (B, T, H), which are zero on padding: (B, N, P)."""
        windows = _Windows.apply(states, self.kernel_width)  # type: ignore[no-untyped-call]  # (B, T, 3 H)
        # Every activation maps zero to zero, so what is masked before it does not vote after it.
        features = self.activation(self.projection(windows).mul_(mask.unsqueeze(-1)))  # (B, T, 6 P)
        capsules = features.view(states.shape[0], -1, self.capsule_dim)  # (B, N, P)
        return squash(capsules) if self.squashed else capsules


class _Windows(torch.autograd.Function):
    """Each word's state and its neighbours', side by side; zeros beyond the ends.

    Autograd alone would fill and add one full tensor for each neighbour on the way back.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, width: int) -> Tensor:  # noqa: ANN401
        ctx.width = width
        half, num_words = width // 2, states.shape[1]
        padded = functional.pad(states, (0, 0, half, half))  # (B, T + 2 half, H)
        return torch.cat([padded[:, i : i + num_words] for i in range(width)], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        parts = grad.chunk(ctx.width, -1)  # width x (B, T, H)
        half, num_words = ctx.width // 2, grad.shape[1]
        total = parts[half].clone()  # (B, T, H)
        for i, part in enumerate(parts):
            shift = i - half  # this part looked at the word `shift` places to the right
            if shift and abs(shift) < num_words:
                total[:, max(0, shift) : num_words + min(0, shift)] += part[
                    :, max(0, -shift) : num_words - max(0, shift)
                ]
        return total, None


class RoutedCapsules(nn.Module):
    """A layer of capsules fed by shared-weight routing."""

    def __init__(
        self, *, num_capsules: int, capsule_dim: int, child_dim: int, iterations: int = 3
    ) -> None:
        super().__init__()
        self.iterations = iterations
        self.weight = nn.Parameter(torch.empty(num_capsules, capsule_dim, child_dim))  # (C, D, P)
        # Glorot over the joined kernel of all capsules, as the Keras example initialises it.
        bound = (6 / (child_dim + num_capsules * capsule_dim)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, children: Tensor) -> Tensor:
        """Return parents (B, C, D) of children (B, N, P); zeros, as on padding, do not vote."""
        # Routing keeps full precision: its softmax would feel every rounded agreement.
        with torch.autocast(children.device.type, enabled=False):
            children = children.to(self.weight.dtype)
            if torch.is_grad_enabled():
                return route_in_training(children, self.weight, self.iterations)
            return route(children, self.weight, iterations=self.iterations).parents
