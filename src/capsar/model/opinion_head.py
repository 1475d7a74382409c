"""The opinion head, which tags the reasons of the sentiment toward an aspect (not in the paper)."""

from __future__ import annotations

from torch import Tensor, nn

from capsar.inference.decoding import MAX_DISTANCE, NUM_TAGS
from capsar.model.capsules import stack_neighbors
from capsar.model.span_head import WIDTH
from capsar.schema import CLASSES

CONTEXT_WIDTH = 5
"""How many words the residual layer sees."""
_INPUT_DROPOUT = 0.2
_DROPOUT = 0.3
ATTRIBUTION_SCALE = 5.0
"""Attributions are multiplied by this, because they are small."""


class OpinionHead(nn.Module):
    """Layers over each word and its neighbors, conditioned on an aspect.

    The features of a word are the encoder's state, the mean state of the aspect's words, the
    signed distance to the aspect, and the attributions: its contribution to each sentiment capsule
    when the aspect is given.

    Args:
        hidden_dim: Size of the encoder's states (H).
        units: Size of the layers (U).
    """

    def __init__(self, *, hidden_dim: int, units: int) -> None:
        super().__init__()
        self.states = nn.Linear(hidden_dim, units)
        self.aspect = nn.Linear(hidden_dim, units, bias=False)
        self.distances = nn.Embedding(2 * MAX_DISTANCE + 1, units)
        self.attributions = nn.Linear(len(CLASSES), units, bias=False)
        self.hidden = nn.Linear(WIDTH * units, units)
        self.context = nn.Linear(CONTEXT_WIDTH * units, units)
        self.tags = nn.Linear(units, NUM_TAGS)
        nn.init.normal_(self.distances.weight, std=0.1)
        self.input_dropout = nn.Dropout(_INPUT_DROPOUT)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(
        self, states: Tensor, aspect: Tensor, distances: Tensor, attributions: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the tag logits of each word (B, W, 3); undefined where the mask is off.

        Args:
            states: Of words (B, W, H).
            aspect: Which words belong to the aspect (B, W).
            distances: The index of each word's distance to the aspect (B, W).
            attributions: Of words to each capsule (B, C, W).
            mask: Which positions are words (B, W).
        """
        is_word = mask.unsqueeze(-1)  # (B, W, 1)
        own = aspect.unsqueeze(-1).to(states.dtype)  # (B, W, 1)
        mean = (states * own).sum(1) / own.sum(1).clamp(min=1)  # (B, H)
        features = self.states(self.input_dropout(states)) + self.aspect(mean).unsqueeze(1)
        features = features + self.distances(distances)
        features = features + self.attributions(ATTRIBUTION_SCALE * attributions.transpose(1, 2))
        features = self.dropout(features.relu()) * is_word  # (B, W, U)
        units = self.hidden(stack_neighbors(features, WIDTH)).relu()
        units = self.dropout(units) * is_word
        units = units + self.context(stack_neighbors(units, CONTEXT_WIDTH)).relu()
        logits: Tensor = self.tags(self.dropout(units))
        return logits
