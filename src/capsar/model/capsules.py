"""The capsule layers (§ 3.4): primary, and routed for the intermediate and sentiment capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.model.routing import route, squash
from capsar.model.routing_gradient import route_in_training

CAPSULES_PER_WORD = 6
"""Primary capsules per word: the paper has 450 for its padded length of 75 words (§ 4.3)."""
ACTIVATIONS = {"linear": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}


class PrimaryCapsules(nn.Module):
    """A convolution over the weighted hidden states of eq. 3, split into capsules (§ 3.4).

    Args:
        hidden_dim: Size of the hidden states (H).
        capsule_dim: Size of a primary capsule (P).
        kernel_width: Words seen by the convolution; odd.
        activation: A name in `ACTIVATIONS`.
        squashed: Whether primary capsules are squashed. Squashing saturates, which hides most of
            the effect of location proximity.
    """

    def __init__(
        self,
        *,
        hidden_dim: int,
        capsule_dim: int = 50,
        kernel_width: int = 3,
        activation: str = "relu",
        squashed: bool = False,
    ) -> None:
        super().__init__()
        self.capsule_dim = capsule_dim
        self.kernel_width = kernel_width
        self.squashed = squashed
        self.projection = nn.Linear(kernel_width * hidden_dim, CAPSULES_PER_WORD * capsule_dim)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the primary capsules of states (B, T, H), zero where the mask is off: (B, N, P).

        States must be zero there too, since the convolution reads them as neighbors.
        """
        windows = stack_neighbors(states, self.kernel_width)  # (B, T, width * H)
        features = self.projection(windows) * mask.unsqueeze(-1)  # (B, T, 6 * P)
        capsules: Tensor = self.activation(features)  # zeros stay zero in every activation
        capsules = capsules.view(states.shape[0], -1, self.capsule_dim)  # (B, N, P)
        return squash(capsules) if self.squashed else capsules


def stack_neighbors(states: Tensor, width: int) -> Tensor:
    """Concatenate each word's state (B, T, H) with its neighbors': (B, T, width * H).

    Beyond both ends of the sentence the states are zero.
    """
    half, num_words = width // 2, states.shape[1]
    padded = functional.pad(states, (0, 0, half, half))  # (B, T + 2 * half, H)
    return torch.cat([padded[:, i : i + num_words] for i in range(width)], -1)


class RoutedCapsules(nn.Module):
    """A layer of capsules fed by shared-weight routing (eq. 4)."""

    def __init__(
        self, *, num_capsules: int, capsule_dim: int, child_dim: int, iterations: int = 3
    ) -> None:
        super().__init__()
        self.iterations = iterations
        self.weight = nn.Parameter(torch.empty(num_capsules, capsule_dim, child_dim))  # (C, D, P)
        # Glorot over the joined kernel of all capsules, as in the Keras capsule example.
        bound = (6 / (child_dim + num_capsules * capsule_dim)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, children: Tensor) -> Tensor:
        """Return the parents (B, C, D) of children (B, N, P); children of zeros do not vote."""
        # Routing runs in full precision: its softmax is sensitive to rounded agreements.
        with torch.autocast(children.device.type, enabled=False):
            children = children.to(self.weight.dtype)
            if torch.is_grad_enabled():
                return route_in_training(children, self.weight, self.iterations)
            return route(children, self.weight, iterations=self.iterations).parents
