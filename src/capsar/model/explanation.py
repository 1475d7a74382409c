"""*Because*: each word's share in a sentiment capsule, a by-product of factored routing.

Where *about* (de-capsulising) shows the object of a sentiment, *because* shows the words that made
the capsule long. A child `i` enters its parent `j` along the parent's own direction with
`c_ij (W_j^T q_j) . p_i`; chained through both layers, with the couplings as they are, that is the
share of every word in every sentiment capsule. A sentence's shares sum to the capsule's length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from capsar.model.routing import Routed


def child_shares(children: Tensor, routed: Routed, weight: Tensor) -> Tensor:
    """Return what each child adds to each parent along its direction (B, N, C).

    Over the children it sums to `q_j . q~_j`, the output of the parent times its input.
    """
    pulled_back = torch.einsum("bcd,cdp->bcp", routed.parents, weight)  # (B, C, P)
    agreement = children @ pulled_back.transpose(1, 2)  # (B, N, C)
    if routed.couplings is None:
        return agreement / weight.shape[0]
    return agreement * routed.couplings


def because_scores(
    primary: Tensor,
    layers: Sequence[tuple[Routed, Tensor]],
    *,
    capsules_per_word: int,
    eps: float = 1e-12,
) -> Tensor:
    """Return each word's share in each sentiment capsule (B, C, T).

    Args:
        primary: The primary capsules (B, N, P).
        layers: The routed layers above them, from below, each with its weight.
        capsules_per_word: How many primary capsules a word has.
        eps: Keeps a layer of zero capsules from dividing by zero.
    """
    children = primary
    shares: Tensor | None = None
    for number, (routed, weight) in enumerate(layers):
        own = child_shares(children, routed, weight)  # (B, children, parents)
        if number == len(layers) - 1:
            # Children sum to q . q~ = |q| |q~|; divided by |q~| they sum to the length |q|.
            length = (routed.inputs.square().sum(-1) + eps).sqrt()  # (B, C)
            own = own / length.unsqueeze(1)
        else:
            own = own / (own.sum(1, keepdim=True) + eps)  # each parent's children sum to one
        shares = own if shares is None else shares @ own
        children = routed.parents
    if shares is None:
        raise ValueError("a network has at least one routed layer")
    batch, num_children, classes = shares.shape
    words = shares.view(batch, num_children // capsules_per_word, capsules_per_word, classes)
    return words.sum(2).transpose(1, 2)  # (B, C, T)
