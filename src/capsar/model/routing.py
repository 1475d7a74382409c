"""Shared-weight routing (eq. 4 and 5), factored so that no prediction vector is built.

All children of a parent `j` share one matrix `W_j`, so

    sum_i c_ij W_j p_i = W_j (sum_i c_ij p_i)        and        q_j . W_j p_i = (W_j^T q_j) . p_i.

Textbook routing builds `W_j p_i` for every child and parent: children x parents x parent-dim
numbers. The factored form needs children x (child-dim + parents):

- Children are *pooled* with their couplings before they are transformed.
- Parents are *pulled back* into the child space before they are compared with the children. This
  needs only the small matrix `W_j^T W_j`, so parents are computed once, after the last iteration.
- In the first iteration all couplings are equal, so pooling is the plain sum of the children.

`tests/model/textbook_routing.py` is the textbook version; the tests compare values and gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-8
"""Added to the squared length under the root of eq. 5, so that zero vectors have a gradient."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The parents of one routed layer, and how they were formed."""

    parents: Tensor
    """Output capsules, shorter than one (B, C, D)."""
    inputs: Tensor
    """The same capsules before squashing (B, C, D)."""
    couplings: Tensor | None
    """Share of each child that goes to each parent (B, N, C); `None` for 1 iteration: 1 / C."""


def squash(vectors: Tensor, dim: int = -1) -> Tensor:
    """Shrink vectors to length below one, keeping direction (eq. 5).

    Zero vectors stay zero.

    >>> round(squash(torch.tensor([3.0, 4.0])).norm().item(), 4)  # 25 / 26
    0.9615
    """
    return vectors * squash_factor(vectors.square().sum(dim, keepdim=True))


def squash_factor(squared: Tensor) -> Tensor:
    """Return the factor by which `squash` multiplies a vector of this squared length."""
    return squared / ((1 + squared) * (squared + EPS).sqrt())


def route(
    children: Tensor, weight: Tensor, mask: Tensor | None = None, *, iterations: int = 3
) -> Routed:
    """Route child capsules to parents that share one matrix each (eq. 4).

    Each agreement replaces the logits of the couplings, as the paper describes; Sabour et al. add
    it to them.

    Args:
        children: Child capsules (B, N, P).
        weight: The matrix of each parent (C, D, P).
        mask: Which children vote (B, N); all if not given.
        iterations: How often the couplings are computed; the first ones are equal.
    """
    if mask is not None:
        children = children * mask.unsqueeze(-1)  # (B, N, P), zeros add nothing to any parent
    num_parents = weight.shape[0]
    gram = weight.transpose(1, 2) @ weight  # (C, P, P), W^T W
    pooled = (children.sum(1, keepdim=True) / num_parents).expand(-1, num_parents, -1)  # (B, C, P)
    couplings = None
    for _ in range(iterations - 1):
        turned = multiply_each(pooled, gram)  # (B, C, P), W^T W pooled
        squared = (pooled * turned).sum(-1, keepdim=True).clamp(min=0)  # (B, C, 1), |W pooled|^2
        pulled_back = turned * squash_factor(squared)  # (B, C, P), W^T squash(W pooled)
        couplings = (children @ pulled_back.transpose(1, 2)).softmax(-1)  # (B, N, C), over parents
        pooled = couplings.transpose(1, 2) @ children  # (B, C, P)
    inputs = multiply_each(pooled, weight.transpose(1, 2))  # (B, C, D)
    return Routed(squash(inputs), inputs, couplings)


def multiply_each(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Multiply the vector of each parent (B, C, P) by its own matrix (C, P, Q): (B, C, Q)."""
    return torch.bmm(vectors.transpose(0, 1), matrices).transpose(0, 1).contiguous()
