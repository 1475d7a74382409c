"""Shared-weight routing (eq. 4 and 5), without ever building the prediction vectors.

Every parent `j` has one matrix `W_j` for all its children, so that

    sum_i c_ij W_j p_i = W_j (sum_i c_ij p_i)        and        q_j . W_j p_i = (W_j^T q_j) . p_i.

By the book, routing builds `W_j p_i` for every child and parent: children x parents x parent-dim
numbers. Factored as above it only needs children x (child-dim + parents) of them: the children are
*pooled* before they are transformed, and a parent is *pulled back* to the children's space to be
compared with them. In the first iteration all couplings are equal, so that it needs no more than
the plain sum of the children. And pulling back needs `W_j^T W_j` only, which is small: the space of
the parents is entered once, at the end. A by-the-book twin in the tests agrees on values and
gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Routed:
    """What routing leaves behind."""

    parents: Tensor
    """Output capsules, shorter than one (B, C, D)."""
    inputs: Tensor
    """What was squashed into them (B, C, D)."""
    pooled: Tensor
    """Coupled sums of the children, `sum_i c_ij p_i` (B, C, P)."""
    couplings: Tensor | None
    """How much of each child goes to each parent (B, N, C); `None` for one iteration: 1 / C."""


def squash(vectors: Tensor, dim: int = -1, eps: float = 1e-8) -> Tensor:
    """Shrink vectors to length below one, keeping direction (eq. 5).

    Zero vectors stay zero: `eps` is inside the root so that padding has finite gradients.

    >>> round(squash(torch.tensor([3.0, 4.0])).norm().item(), 4)  # 25 / 26
    0.9615
    """
    return vectors * squash_factor(vectors.square().sum(dim, keepdim=True), eps)


def squash_factor(squared: Tensor, eps: float = 1e-8) -> Tensor:
    """Return what `squash` multiplies a vector of this squared length by."""
    return squared / ((1 + squared) * (squared + eps).sqrt())


def route(
    children: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    *,
    iterations: int = 3,
    accumulate: bool = False,
    stop_gradients: bool = False,
) -> Routed:
    """Route child capsules to parents that share one matrix each (eq. 4).

    Args:
        children: Child capsules (B, N, P).
        weight: The matrix of each parent (C, D, P).
        mask: Which children may vote (B, N); all if not given.
        iterations: How often the couplings are computed; the first time they are all equal.
        accumulate: Add each agreement to the logits, as Sabour et al. do. The paper *updates the
            coupling to* the agreement, as the capsule example of its framework: it replaces it.
        stop_gradients: Let no gradient through the couplings.
    """
    if mask is not None:
        children = children * mask.unsqueeze(-1)  # a child of zeros adds nothing to any parent
    num_parents = weight.shape[0]
    gram = weight.transpose(1, 2) @ weight  # (C, P, P), W^T W
    pooled = (children.sum(1, keepdim=True) / num_parents).expand(-1, num_parents, -1)  # (B, C, P)
    logits = couplings = None
    for _ in range(iterations - 1):
        agreement = children @ _pull_back(pooled, gram).transpose(1, 2)  # (B, N, C)
        logits = agreement if logits is None or not accumulate else logits + agreement
        couplings = logits.softmax(-1)  # (B, N, C), over parents
        if stop_gradients:
            couplings = couplings.detach()
        pooled = couplings.transpose(1, 2) @ children  # (B, C, P)
    inputs = multiply_each(pooled, weight.transpose(1, 2))  # (B, C, D)
    return Routed(squash(inputs), inputs, pooled, couplings)


def _pull_back(pooled: Tensor, gram: Tensor) -> Tensor:
    """Return `W^T squash(W pooled)` (B, C, P) without leaving the space of the children.

    The squashed parent is `W pooled` times a number that depends only on its length, and
    `|W pooled|^2 = pooled . W^T W pooled`.
    """
    turned = multiply_each(pooled, gram)  # (B, C, P)
    squared = (pooled * turned).sum(-1, keepdim=True).clamp(min=0)  # (B, C, 1)
    return turned * squash_factor(squared)


def multiply_each(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Multiply the vectors of each parent (B, C, P) by its own matrix (C, P, Q): (B, C, Q)."""
    return torch.bmm(vectors.transpose(0, 1), matrices).transpose(0, 1).contiguous()
