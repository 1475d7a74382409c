"""The training objective (eq. 6 to 8) per example, and aspect reconstruction (eq. 7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

UPPER_MARGIN, LOWER_MARGIN = 1.0, 0.1
"""`m+` and `m-` of eq. 6 (§ 4.3)."""
TARGET_NORM = 6.53
"""Mean norm of an aspect's vector in GloVe 840B on the SemEval-2014 Restaurants training data. The
input vectors of a transformer are scaled to it, so that eq. 7 has the same weight as with GloVe."""


def margin_loss(lengths: Tensor, truth: Tensor) -> Tensor:
    """Return the margin loss of capsule lengths given a one-hot truth, both (B, C): (B) (eq. 6)."""
    present = (UPPER_MARGIN - lengths).clamp(min=0).square()  # (B, C)
    absent = (lengths - LOWER_MARGIN).clamp(min=0).square()  # (B, C)
    return (truth * present + (1 - truth) * absent).sum(-1)


def distillation_loss(lengths: Tensor, teacher_lengths: Tensor) -> Tensor:
    """Return the squared distance of capsule lengths to the teachers', both (B, C): (B)."""
    return (lengths - teacher_lengths).square().sum(-1)


def reconstruction_loss(aspect: Tensor, from_true: Tensor, from_others: Tensor) -> Tensor:
    """Return the reconstruction loss (B) of eq. 7; all arguments are (B, E).

    The aspect's vector is not normalized, so it must not be trainable: growing it would lower the
    loss without bound.
    """
    true_direction = functional.normalize(from_true, dim=-1, eps=1e-8)  # (B, E)
    other_direction = functional.normalize(from_others, dim=-1, eps=1e-8)  # (B, E)
    return (aspect * (other_direction - true_direction)).sum(-1)


class Reconstruction(nn.Module):
    """The fully connected layer from masked sentiment capsules to a word vector (§ 3.5).

    The same layer computes `v_recon1` (from the true capsule), `v_recon2` (from the others), and
    the reconstruction of each capsule alone, which finds aspects when none is given (§ 4.5).
    """

    def __init__(self, *, num_classes: int, capsule_dim: int, word_dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(num_classes * capsule_dim, word_dim)
        nn.init.xavier_uniform_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, capsules: Tensor, kept: Tensor) -> Tensor:
        """Return the word vector (B, E) reconstructed from the capsules (B, C, D) kept (B, C)."""
        reconstructed: Tensor = self.layer((capsules * kept.unsqueeze(-1)).flatten(1))  # (B, E)
        return reconstructed

    def reconstruct_each(self, capsules: Tensor) -> Tensor:
        """Return the word vector reconstructed from each capsule (B, C, D) alone: (B, C, E)."""
        alone = torch.eye(capsules.shape[1], dtype=capsules.dtype, device=capsules.device)  # (C, C)
        kept = capsules.unsqueeze(1) * alone.unsqueeze(-1)  # (B, C, C, D)
        reconstructed: Tensor = self.layer(kept.flatten(2))  # (B, C, E)
        return reconstructed


def aspect_vector(word_vectors: Tensor, aspect_mask: Tensor) -> Tensor:
    """Return the mean (B, E) of the aspect's word vectors (B, T, E); zero without an aspect."""
    weights = aspect_mask.to(word_vectors.dtype)  # (B, T)
    weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("bt,bte->be", weights, word_vectors)


def cosine_similarity(reconstructed: Tensor, word_vectors: Tensor, mask: Tensor) -> Tensor:
    """Return the cosine (B, C, T) of reconstructions (B, C, E) and word vectors (B, T, E).

    Where the mask (B, T) is off it is -1. Detection (§ 4.5) multiplies it by the norm of the word's
    vector and ranks words by the result, the dot product with the direction of the reconstruction.
    """
    directions = functional.normalize(reconstructed, dim=-1, eps=1e-8)  # (B, C, E)
    words = functional.normalize(word_vectors, dim=-1, eps=1e-8)  # (B, T, E)
    return (directions @ words.transpose(1, 2)).masked_fill(~mask.unsqueeze(1), -1)
