"""Location proximity (eq. 2): words near the aspect weigh more."""

from __future__ import annotations

import torch
from torch import Tensor


def proximity(
    mask: Tensor,
    first_words: Tensor,
    words: Tensor | None = None,
    *,
    alpha: float = 3.0,
    beta: float = 10.0,
    gamma: float = 1.0,
    scale: str = "none",
) -> Tensor:
    """Return the weight `l_t` of every word, or of every piece that of its word (B, T).

    `l_t = 1 + max(0, alpha + n / beta - |gamma (k - t)|)` on words and 0 on padding, where `n` is
    the length of the sentence and `k` the first word of the aspect. With several mentions the
    largest weight counts; without any, `l_t = 1` on words.

    Args:
        mask: Which positions are words, or pieces of them (B, T).
        first_words: The first word of each mention (B, M); negative where there is none.
        words: The word of each position (B, T); each is its own if not given.
        alpha: The added weight of the first aspect word itself, in a very short sentence.
        beta: How many words of the sentence add one to the reach.
        gamma: How fast the weight falls with distance.
        scale: `"none"`, or `"one"`: weights are divided by the largest one of the sentence, so that
            nearness takes from the other words instead of adding.
    """
    if words is None:
        words = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)  # (B, T)
    distance = (first_words.unsqueeze(1) - words.unsqueeze(2)).abs()  # (B, T, M)
    length = words.masked_fill(~mask, -1).amax(1) + 1  # (B), in words
    reach = alpha + length / beta  # (B)
    near = (reach.view(-1, 1, 1) - gamma * distance).clamp(min=0)  # (B, T, M)
    near = near.masked_fill((first_words < 0).unsqueeze(1), 0)
    weights = 1 + near.amax(-1)  # (B, T)
    if scale == "one":
        weights = weights / weights.amax(1, keepdim=True)
    return weights * mask  # (B, T)
