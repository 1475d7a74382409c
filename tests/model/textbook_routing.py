"""Textbook routing, which builds every prediction vector, as in the capsule example of Keras."""

from __future__ import annotations

import torch
from torch import Tensor


def route_textbook(
    children: Tensor, weight: Tensor, mask: Tensor | None = None, *, iterations: int = 3
) -> tuple[Tensor, Tensor]:
    """Return the parents (B, C, D) and the couplings (B, N, C).

    The prediction vectors are computed once, by one matrix product, and used by batched products.
    """
    batch, num_children, child_dim = children.shape
    num_parents, parent_dim, _ = weight.shape
    kernel = weight.reshape(num_parents * parent_dim, child_dim)
    predictions = (children.reshape(-1, child_dim) @ kernel.T).view(
        batch, num_children, num_parents, parent_dim
    )  # (B, N, C, D)
    predictions = predictions.transpose(1, 2)  # (B, C, N, D)
    if mask is not None:
        predictions = predictions * mask.view(batch, 1, num_children, 1)
    predictions = predictions.contiguous()
    logits = predictions.new_zeros(batch, num_parents, num_children)
    for iteration in range(iterations):
        couplings = logits.softmax(1)  # (B, C, N), over parents
        total = (couplings.unsqueeze(2) @ predictions).squeeze(2)  # (B, C, D)
        squared = (total**2).sum(-1, keepdim=True)
        parents = squared / (1 + squared) * total / torch.sqrt(squared + 1e-8)
        if iteration < iterations - 1:
            logits = (predictions @ parents.unsqueeze(-1)).squeeze(-1)  # (B, C, N)
    return parents, couplings.transpose(1, 2)
