"""What goes into the network, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentences with one aspect each, or none, padded to one length."""

    ids: Tensor
    """Ids of words, or of pieces of them (B, T)."""
    mask: Tensor
    """Which positions are of words, and vote (B, T)."""
    words: Tensor
    """The word of each position (B, T); anything where there is none."""
    attention: Tensor
    """Which positions are read (B, T): special pieces are, though they do not vote."""
    segments: Tensor
    """0, or 1 in a second segment (B, T)."""
    first_words: Tensor
    """The first word of each mention of the aspect (B, M); negative where there is none."""
    aspect_mask: Tensor
    """Which positions belong to the aspect (B, T)."""
    polarity: Tensor
    """The index of the true class (B); negative if it is not known."""
    places: Tensor | None = None
    """The first position of each word (B, W), for the extraction head; anything for none."""
    tags: Tensor | None = None
    """The tag of each word (B, W); -1 where there is none."""
    tag_weights: Tensor | None = None
    """What the tags of each sentence count for (B): less where several examples share it."""
    weights: Tensor | None = None
    """What the polarity of each example counts for (B); 1 if not given."""
    told: Tensor | None = None
    """The capsule lengths that teachers tell (B, C)."""
    told_shares: Tensor | None = None
    """Their share in the loss of each example (B)."""

    def to(self, device: torch.device) -> Batch:
        """Move all tensors to a device."""
        tensors = {name: getattr(self, name) for name in self.__slots__}
        moved: dict[str, Any] = {n: t if t is None else t.to(device) for n, t in tensors.items()}
        return Batch(**moved)

    def without_aspect(self) -> Batch:
        """Hide where the aspect stands from proximity, but not from the reconstruction's target."""
        hidden = torch.full_like(self.first_words, -1)
        return replace(self, first_words=hidden)


@dataclass(frozen=True, slots=True)
class Output:
    """What the network says of a batch."""

    capsules: Tensor
    """Sentiment capsules (B, C, D)."""
    lengths: Tensor
    """Their lengths (B, C): the longest is the predicted class."""
    word_vectors: Tensor
    """The fixed vectors of the words (B, T, E): the space of reconstruction and detection."""
    tags: Tensor | None = None
    """Logits of each word's tags (B, W, 3), of a batch with places, if there is such a head."""
