"""The span head, which tags the words of aspects (not in the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.inference.decoding import NUM_TAGS
from capsar.model.capsules import stack_neighbors
from capsar.schema import CLASSES

WIDTH = 3
"""Words seen by the first layer."""
SPAN_UNITS = 128
_DROPOUT = 0.3


class SpanHead(nn.Module):
    """Two layers over each word and its neighbors.

    The features of a word are the encoder's state, before location proximity, and its cosine with
    the reconstruction of each sentiment capsule when no aspect is given, plain and times the length
    of the capsule.

    Args:
        hidden_dim: Size of the encoder's states (H).
    """

    def __init__(self, *, hidden_dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(WIDTH * (hidden_dim + 2 * len(CLASSES)), SPAN_UNITS)
        self.tags = nn.Linear(SPAN_UNITS, NUM_TAGS)
        for layer in (self.hidden, self.tags):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, states: Tensor, similarity: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        """Return the tag logits of each word (B, W, 3); undefined where the mask is off.

        Args:
            states: Of words (B, W, H).
            similarity: Cosine of words and the reconstructions of capsules (B, C, W).
            lengths: Of capsules (B, C).
            mask: Which positions are words (B, W).
        """
        weighted = similarity * lengths.unsqueeze(-1)  # (B, C, W)
        features = torch.cat([states, similarity.transpose(1, 2), weighted.transpose(1, 2)], -1)
        features = features * mask.unsqueeze(-1)  # (B, W, H + 2 * C), zero beyond the last word
        windows = stack_neighbors(features, WIDTH)  # (B, W, WIDTH * (H + 2 * C))
        logits: Tensor = self.tags(self.dropout(self.hidden(windows).relu()))
        return logits


def gather_first(values: Tensor, first_subwords: Tensor) -> Tensor:
    """Return the values (B, T, H) at the first subword (B, W) of each word: (B, W, H)."""
    return values.gather(1, first_subwords.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def best_subwords(scores: Tensor, words: Tensor, num_words: int) -> Tensor:
    """Return the best score among each word's subwords (B, C, W); -1 where there is no word.

    Args:
        scores: Of capsules and subwords (B, C, T).
        words: The word of each subword (B, T); negative for none.
        num_words: W.
    """
    index = words.masked_fill(words < 0, num_words).unsqueeze(1).expand_as(scores)
    empty = scores.new_full((*scores.shape[:2], num_words + 1), -1.0)
    return empty.scatter_reduce(2, index, scores, "amax")[:, :, :num_words]


def tag_loss(logits: Tensor, tags: Tensor) -> Tensor:
    """Return the mean cross-entropy (B) of each sentence's tags (B, W), where they are not -1."""
    losses = functional.cross_entropy(
        logits.transpose(1, 2), tags, ignore_index=-1, reduction="none"
    )  # (B, W)
    return losses.sum(1) / (tags >= 0).sum(1).clamp(min=1)


def tag_distillation_loss(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return the mean cross-entropy (B) with the teachers' tag probabilities (B, W, 3).

    Words beyond the last one have probabilities of zero.
    """
    losses = -(probabilities * logits.log_softmax(-1)).sum(-1)  # (B, W)
    is_word = probabilities.sum(-1) > 0  # (B, W)
    return losses.sum(1) / is_word.sum(1).clamp(min=1)
