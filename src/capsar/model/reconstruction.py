"""Aspect reconstruction and de-capsulising (eq. 7): what a sentiment is about."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Reconstruction(nn.Module):
    """One fully connected layer from masked sentiment capsules to a word vector.

    The same layer gives `recon1` (from the true capsule), `recon2` (from the others), and opens any
    capsule when nobody names the aspect.
    """

    def __init__(self, *, num_classes: int, capsule_dim: int, word_dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(num_classes * capsule_dim, word_dim)
        nn.init.xavier_uniform_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, capsules: Tensor, kept: Tensor) -> Tensor:
        """Return the word vector that capsules (B, C, D) stand for where `kept` (B, C): (B, E)."""
        opened: Tensor = self.layer((capsules * kept.unsqueeze(-1)).flatten(1))
        return opened

    def open_each(self, capsules: Tensor) -> Tensor:
        """Return what each capsule alone stands for (B, C, E)."""
        batch, classes, _ = capsules.shape
        alone = torch.eye(classes, dtype=capsules.dtype, device=capsules.device)  # (C, C)
        kept = capsules.unsqueeze(1) * alone.view(1, classes, classes, 1)  # (B, C, C, D)
        opened: Tensor = self.layer(kept.view(batch, classes, -1))
        return opened


def aspect_vector(word_vectors: Tensor, aspect_mask: Tensor) -> Tensor:
    """Return the mean of the aspect's word vectors (B, T, E) as (B, E); zero without an aspect."""
    weights = aspect_mask.to(word_vectors.dtype)  # (B, T)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("bt,bte->be", weights, word_vectors)


def about_scores(opened: Tensor, word_vectors: Tensor, mask: Tensor) -> Tensor:
    """Return how much each opened capsule (B, C, E) is about each word (B, T, E): (B, C, T).

    The cosine of the reconstruction and the word's vector; -1 on padding, below any word.
    """
    directions = functional.normalize(opened, dim=-1, eps=1e-8)  # (B, C, E)
    words = functional.normalize(word_vectors, dim=-1, eps=1e-8)  # (B, T, E)
    return (directions @ words.transpose(1, 2)).masked_fill(~mask.unsqueeze(1), -1)
