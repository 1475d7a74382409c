"""Optimizer, learning-rate schedule and moving average of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from capsar.model.encoders import Transformer

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from capsar.config import TrainConfig

    Tensors = tuple[Tensor, ...] | list[Tensor]


def freeze_layers(model: nn.Module, number: int) -> None:
    """Freeze the lowest layers of a transformer, and what is below them."""
    encoder = getattr(model, "encoder", None)
    if number and isinstance(encoder, Transformer):
        for layer in list(encoder.layers())[: number + 1]:  # the first one: embeddings
            for parameter in layer:
                parameter.requires_grad = False


def make_optimizer(model: nn.Module, train_config: TrainConfig) -> Optimizer:
    """Return Adam over the trainable parameters, with one group per layer of a transformer."""
    decay = train_config.weight_decay
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    groups = []
    for parameters, rate in _layers(model, train_config):
        matrices = [p for p in parameters if p.dim() > 1 or not decay]
        vectors = [p for p in parameters if p.dim() <= 1 and decay]  # biases and norms: no decay
        groups += [
            {"params": some, "lr": rate, "initial_lr": rate, "weight_decay": own}
            for some, own in ((matrices, decay), (vectors, 0.0))
            if some
        ]
    return kind(groups, lr=train_config.learning_rate, weight_decay=decay, fused=True)


def _layers(model: nn.Module, train_config: TrainConfig) -> list[tuple[list[nn.Parameter], float]]:
    """Return the trainable parameters in groups with their learning rates."""
    encoder = getattr(model, "encoder", None)
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not isinstance(encoder, Transformer):
        return [(trainable, train_config.learning_rate)]
    layers = list(encoder.layers())
    own = {id(p) for layer in layers for p in layer}
    groups = [([p for p in trainable if id(p) not in own], train_config.learning_rate)]
    for below, layer in enumerate(reversed(layers)):
        rate = train_config.encoder_learning_rate * train_config.layer_decay**below
        groups.append(([p for p in layer if p.requires_grad], rate))
    return groups


def make_scheduler(
    optimizer: Optimizer, train_config: TrainConfig, *, num_steps: int, step: int = 0
) -> LambdaLR:
    """Return the schedule of a run of `num_steps` steps, of which `step` are done."""
    ratio = train_config.warmup_ratio
    factor = lambda step: warmup_factor(step, num_steps, ratio)  # noqa: E731
    return LambdaLR(optimizer, factor, last_epoch=step - 1)


def warmup_factor(step: int, num_steps: int, warmup_ratio: float) -> float:
    """Return the factor of the learning rates: linear warm-up to 1, then linear decay to 0.

    >>> [round(warmup_factor(step, 10, 0.2), 3) for step in range(10)]
    [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    """
    if not warmup_ratio:
        return 1.0
    rising = max(1, round(num_steps * warmup_ratio))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (num_steps - step) / max(1, num_steps - rising))


def make_ema(model: nn.Module, decay: float) -> AveragedModel:
    """Return the exponential moving average of a network's weights.

    The decay rises from 0.1 to `decay` over the first steps, so that initial weights have little
    influence. Buffers, among them fixed word vectors, are shared with the network.
    """

    @torch.no_grad()
    def update(averaged: Tensors, current: Tensors, num_averaged: Tensor | int) -> None:
        """Move the averages toward the current weights, faster in the first steps."""
        step = int(num_averaged)
        own = min(decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(averaged, current, 1 - own)

    ema = AveragedModel(model, multi_avg_fn=update)
    for name, buffer in model.named_buffers():
        owner, _, own_name = name.rpartition(".")
        setattr(ema.module.get_submodule(owner), own_name, buffer)
    return ema
