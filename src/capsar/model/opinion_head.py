"""The opinion head, which tags the reasons of the sentiment toward an aspect (not in the paper)."""

from __future__ import annotations

from torch import Tensor, nn

from capsar.inference.decoding import MAX_DISTANCE, NUM_TAGS
from capsar.model.capsules import stack_neighbors
from capsar.model.span_head import WIDTH
from capsar.schema import CLASSES

OPINION_UNITS = 192
_DROPOUT = 0.3


class OpinionHead(nn.Module):
    """Two layers over each word and its neighbors, conditioned on an aspect.

    The features of a word are the encoder's state, the mean state of the aspect's words, the
    signed distance to the aspect, and the attributions: its contribution to each sentiment capsule
    when the aspect is given.

    Args:
        hidden_dim: Size of the encoder's states (H).
    """

    def __init__(self, *, hidden_dim: int) -> None:
        super().__init__()
        self.states = nn.Linear(WIDTH * hidden_dim, OPINION_UNITS)
        self.aspect = nn.Linear(hidden_dim, OPINION_UNITS, bias=False)
        self.distances = nn.Embedding(2 * MAX_DISTANCE + 1, OPINION_UNITS)
        self.attributions = nn.Linear(len(CLASSES), OPINION_UNITS, bias=False)
        self.hidden = nn.Linear(WIDTH * OPINION_UNITS, OPINION_UNITS)
        self.tags = nn.Linear(OPINION_UNITS, NUM_TAGS)
        nn.init.normal_(self.distances.weight, std=0.1)
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
        windows = stack_neighbors(self.dropout(states) * is_word, WIDTH)  # (B, W, WIDTH * H)
        features = self.states(windows) + self.aspect(mean).unsqueeze(1)
        features = features + self.distances(distances)
        features = features + self.attributions(attributions.transpose(1, 2))
        features = self.dropout(features.relu()) * is_word  # (B, W, U)
        units = self.hidden(stack_neighbors(features, WIDTH)).relu()
        logits: Tensor = self.tags(self.dropout(units))
        return logits
