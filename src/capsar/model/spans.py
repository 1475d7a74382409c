"""The extraction head: hidden states and *about* scores of words -> tags (not in the paper)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capsar.labels import CLASSES
from capsar.tagging import NUM_TAGS

WIDTH = 3
"""Words that the first layer sees."""
_DROPOUT = 0.3


class SpanHead(nn.Module):
    """A small network over each word and its neighbours.

    Of a word it sees the encoder's state, before proximity, and how much each sentiment capsule is
    about it when nobody names an aspect, as such and times the capsule's length: so capsules still
    say what the sentiment is about.

    Args:
        hidden_dim: Size of the encoder's states (H).
        units: Size of the layer between.
    """

    def __init__(self, *, hidden_dim: int, units: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(WIDTH * (hidden_dim + 2 * len(CLASSES)), units)
        self.tags = nn.Linear(units, NUM_TAGS)
        for layer in (self.hidden, self.tags):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, states: Tensor, about: Tensor, lengths: Tensor, mask: Tensor) -> Tensor:
        """Return the logits of each word's tags (B, W, 3); anything where there is no word.

        Args:
            states: Of words (B, W, H).
            about: Of capsules and words (B, C, W).
            lengths: Of capsules (B, C).
            mask: Where there is a word (B, W).
        """
        weighted = about * lengths.unsqueeze(-1)  # (B, C, W)
        features = torch.cat([states, about.transpose(1, 2), weighted.transpose(1, 2)], -1)
        features = features * mask.unsqueeze(-1)  # (B, W, H + 2 C), zero beyond the last word
        padded = functional.pad(features, (0, 0, WIDTH // 2, WIDTH // 2))
        num_words = features.shape[1]
        windows = torch.cat([padded[:, i : i + num_words] for i in range(WIDTH)], -1)
        logits: Tensor = self.tags(self.dropout(self.hidden(windows).relu()))
        return logits


def first_places(values: Tensor, places: Tensor) -> Tensor:
    """Return the values (B, T, H) at the place of each word (B, W): (B, W, H)."""
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def best_of_pieces(scores: Tensor, words: Tensor, num_words: int) -> Tensor:
    """Return the best score of each word's pieces (B, C, W); -1 where there is no word.

    Args:
        scores: Of capsules and pieces (B, C, T).
        words: The word of each piece (B, T), negative for none.
        num_words: W.
    """
    index = words.masked_fill(words < 0, num_words).unsqueeze(1).expand_as(scores)
    empty = scores.new_full((*scores.shape[:2], num_words + 1), -1.0)
    return empty.scatter_reduce(2, index, scores, "amax")[:, :, :num_words]


def tag_loss(logits: Tensor, tags: Tensor) -> Tensor:
    """Return the mean cross-entropy of each sentence's words (B); tags (B, W) are -1 beyond."""
    losses = functional.cross_entropy(
        logits.transpose(1, 2), tags, ignore_index=-1, reduction="none"
    )  # (B, W)
    return losses.sum(1) / (tags >= 0).sum(1).clamp(min=1)
