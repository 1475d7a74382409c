"""Which weights learn how fast: layer by layer, and step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from capsar.model.transformer import Transformer

if TYPE_CHECKING:
    from torch import nn

    from capsar.config import TrainConfig

FIRST_RATE = "first_rate"
"""Under this name a group of parameters holds its rate before any schedule."""


def make_optimizer(model: nn.Module, train_config: TrainConfig) -> torch.optim.Optimizer:
    """Return Adam over what can be trained, a pre-trained encoder layer by layer."""
    decay = train_config.weight_decay
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    groups = []
    for parameters, rate in _rates(model, train_config):
        # Biases and norms are vectors: decay would only pull them away from where they work.
        parts = [(parameters, decay)]
        if decay:
            parts = [
                ([p for p in parameters if p.dim() > 1], decay),
                ([p for p in parameters if p.dim() <= 1], 0.0),
            ]
        groups += [
            {"params": some, "lr": rate, FIRST_RATE: rate, "weight_decay": part_decay}
            for some, part_decay in parts
            if some
        ]
    return kind(groups, lr=train_config.learning_rate, weight_decay=decay, fused=True)


def _rates(model: nn.Module, train_config: TrainConfig) -> list[tuple[list[nn.Parameter], float]]:
    """The trainable parameters, in parts that learn at the same rate."""
    encoder = getattr(model, "encoder", None)
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(encoder, Transformer):
        return [(trainable, train_config.learning_rate)]
    layers = list(encoder.layers())
    own = {id(p) for layer in layers for p in layer}
    rest = [p for p in trainable if id(p) not in own]
    parts = [(rest, train_config.learning_rate)]
    for below, layer in enumerate(reversed(layers)):
        rate = train_config.encoder_learning_rate * train_config.layer_decay**below
        parts.append((layer, rate))
    return parts


def set_rates(optimizer: Any, train_config: TrainConfig, step: int, num_steps: int) -> None:  # noqa: ANN401
    """Set the rates of a step, a function of its number alone: a resumed run needs no more."""
    if not train_config.warmup_share:
        return
    factor = schedule(step, num_steps, train_config.warmup_share)
    for group in optimizer.param_groups:
        group["lr"] = group[FIRST_RATE] * factor


def schedule(step: int, num_steps: int, warmup_share: float) -> float:
    """Return what rates are multiplied by: up to 1 in the first share of steps, then down to 0.

    >>> [round(schedule(step, 10, 0.2), 3) for step in range(10)]
    [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    """
    rising = max(1, round(num_steps * warmup_share))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (num_steps - step) / max(1, num_steps - rising))
