"""The training loop, read from top to bottom. Logging and saving are the caller's `for` loop."""

from __future__ import annotations

import hashlib
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from capsar.errors import ConfigError
from capsar.training.batches import EncodedExample, collate, epoch_batches
from capsar.training.optimizer import set_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from accelerate import Accelerator
    from torch import Tensor
    from torch.optim import Optimizer

    from capsar.config import TrainConfig
    from capsar.model.first_token import FirstToken
    from capsar.model.network import Capsar
    from capsar.training.checkpoint import Progress
    from capsar.training.held_back import DevFigures


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What happened in one step."""

    step: int
    epoch: int
    loss: float
    """Mean over the examples of the batch, all processes together."""
    num_batches: int
    """Of the epoch."""
    ends_epoch: bool = False
    dev: DevFigures | None = None
    """After the last batch of an epoch, where there is a dev part."""
    is_best: bool = False
    """Whether that is the best epoch so far; without a dev part, or where the last epoch is kept,
    each one is."""


def train_steps(
    model: Capsar | FirstToken,
    optimizer: Optimizer,
    encoded: Sequence[EncodedExample],
    evaluate_dev: Callable[[], DevFigures] | None,
    *,
    train_config: TrainConfig,
    accelerator: Accelerator,
    progress: Progress,
) -> Iterator[StepInfo]:
    """Train until the dev figures stop improving, yielding after every step.

    Without a dev part, or where the last epoch is kept, train for `max_epochs`.

    `progress` is kept up to date before each yield: a checkpoint taken then, and this generator
    started anew with it, go on bit for bit as if nothing had happened.
    """
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    sizes = [len(example.ids) for example in encoded]
    while not progress.finished:
        batches = epoch_batches(
            sizes,
            batch_size=train_config.batch_size,
            seed=train_config.seed,
            epoch=progress.epoch,
        )
        wrapped.train()
        for indices in batches[progress.batch :]:
            start = time.perf_counter()
            set_rates(optimizer, train_config, progress.step,
                      len(batches) * train_config.max_epochs)  # fmt: skip
            loss = _step(wrapped, model, optimizer, [encoded[i] for i in indices], train_config,
                         accelerator, progress.step)  # fmt: skip
            progress.step += 1
            progress.batch += 1
            progress.loss_sum += loss
            progress.seconds += time.perf_counter() - start
            if progress.batch < len(batches):
                yield StepInfo(progress.step, progress.epoch, loss, len(batches))
        dev = evaluate_dev() if evaluate_dev else None
        is_best = end_epoch(progress, dev, len(batches), train_config)
        yield StepInfo(progress.step, progress.epoch - 1, loss, len(batches), True, dev, is_best)


def _step(
    wrapped: torch.nn.Module,
    model: Capsar | FirstToken,
    optimizer: Optimizer,
    examples: Sequence[EncodedExample],
    train_config: TrainConfig,
    accelerator: Accelerator,
    step: int,
) -> float:
    """Train on one batch, of which each process takes its share; return the mean loss."""
    rank, world = accelerator.process_index, accelerator.num_processes
    # Randomness is a function of seed and step, so a resumed run needs no saved generator.
    torch.manual_seed(_mix(train_config.seed, step, rank))
    batch = collate(examples[rank::world] or examples[:1]).to(accelerator.device)
    if random.Random(f"{train_config.seed}:{step}").random() < train_config.no_aspect_share:  # noqa: S311
        batch = batch.without_aspect()
    lower = train_config.mixed_precision == "bf16"
    with torch.autocast(accelerator.device.type, dtype=torch.bfloat16, enabled=lower):
        output = wrapped(batch)
    losses: Tensor = model.loss(batch, output)  # (B of this process)
    share = float(rank < len(examples))  # a process without an example of its own adds nothing
    loss: Tensor = losses.sum() * share / len(examples)
    accelerator.backward(loss * world)  # gradients are averaged over processes
    if train_config.clip_norm:
        accelerator.clip_grad_norm_(wrapped.parameters(), train_config.clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    total = accelerator.reduce(loss.detach(), reduction="sum") if world > 1 else loss.detach()
    if not math.isfinite(float(total)):
        raise ConfigError(
            f"The loss is no longer a number at step {step}; lower train.learning_rate "
            f"(now {train_config.learning_rate}) or set train.clip_norm"
        )
    return float(total)


def end_epoch(
    progress: Progress, dev: DevFigures | None, num_batches: int, train_config: TrainConfig
) -> bool:
    """Enter an epoch's figures; tell whether it is the best so far, and whether it is the last."""
    is_best = dev is None or train_config.keep == "last" or dev.score > progress.best_score
    if is_best:
        progress.best_epoch = progress.epoch
        progress.best_score = dev.score if dev else progress.best_score
    entry = {"epoch": progress.epoch, "loss": progress.loss_sum / num_batches}
    if dev:
        figures = dev.polarity
        entry |= {"dev_accuracy": figures.accuracy, "dev_macro_f1": figures.macro_f1}
    if dev and dev.span_f1 is not None:
        entry["dev_span_f1"] = dev.span_f1
    progress.history.append(entry)
    waited = progress.epoch - progress.best_epoch
    # A network that still gives every example the same answer has not begun to learn.
    begun = dev is not None and sum(map(any, zip(*dev.polarity.confusion, strict=True))) > 1
    progress.epoch += 1
    progress.batch, progress.loss_sum = 0, 0.0
    stale = begun and waited >= train_config.patience
    progress.finished = stale or progress.epoch >= train_config.max_epochs
    return is_best


def _mix(seed: int, step: int, rank: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{step}:{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
