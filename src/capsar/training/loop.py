"""The training loop, read from top to bottom. Logging and saving are the caller's `for` loop."""

from __future__ import annotations

import hashlib
import math
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from capsar.errors import ConfigError
from capsar.training.batches import EncodedExample, collate, epoch_batches, group_examples
from capsar.training.optim import make_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from accelerate import Accelerator
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from capsar.config import TrainConfig
    from capsar.evaluation.metrics import PolarityMetrics
    from capsar.model.network import Batch


class Network(Protocol):
    """A module with a loss per example."""

    training: bool

    @property
    def frozen_key(self) -> str:
        """The name of the weights that are not trained and not saved in checkpoints, or ''."""
        ...  # pragma: no cover

    def __call__(self, batch: Batch) -> Any:  # noqa: ANN401  (its own kind of output)
        """Return the output for a batch, which has `lengths` (B, C)."""
        ...  # pragma: no cover

    def loss(self, batch: Batch, output: Any) -> Tensor:  # noqa: ANN401
        """Return the loss of each example (B)."""
        ...  # pragma: no cover

    def parameters(self) -> Iterator[nn.Parameter]: ...  # noqa: D102  # pragma: no cover
    def state_dict(self) -> dict[str, Tensor]: ...  # noqa: D102  # pragma: no cover
    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> Any: ...  # noqa: ANN401, D102  # pragma: no cover
    def train(self, mode: bool = True) -> Any: ...  # noqa: ANN401, D102  # pragma: no cover
    def eval(self) -> Any: ...  # noqa: ANN401, D102  # pragma: no cover


@dataclass(frozen=True, slots=True)
class ValidationMetrics:
    """Metrics on the validation set after an epoch."""

    polarity: PolarityMetrics
    span_f1: float | None = None
    """Exact-span F1 of the extraction head, if there is one."""

    @property
    def score(self) -> float:
        """The score that selects the epoch: macro-F1, or its mean with the span F1."""
        if self.span_f1 is None:
            return self.polarity.macro_f1
        return (self.polarity.macro_f1 + self.span_f1) / 2

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as an entry of the history."""
        polarity = self.polarity
        entry: dict[str, Any] = {
            "validation_accuracy": polarity.accuracy,
            "validation_macro_f1": polarity.macro_f1,
            "validation_confusion": [list(row) for row in polarity.confusion],
        }
        return entry if self.span_f1 is None else entry | {"validation_span_f1": self.span_f1}

    def __str__(self) -> str:
        spans = "" if self.span_f1 is None else f", span F1 {self.span_f1:.4f}"
        accuracy, macro_f1 = self.polarity.accuracy, self.polarity.macro_f1
        return f"validation accuracy {accuracy:.4f}, macro-F1 {macro_f1:.4f}{spans}"


@dataclass(slots=True)
class Progress:
    """The position of a run between two epochs."""

    epoch: int = 0
    """The next epoch, from 0."""
    step: int = 0
    """Optimizer steps so far."""
    seconds: float = 0.0
    """Training time of all sessions together."""
    best_epoch: int = -1
    best_score: float = -1.0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per epoch: the loss and the validation metrics."""


@dataclass(frozen=True, slots=True)
class StepInfo:
    """The result of one step."""

    step: int
    epoch: int
    loss: float
    """Mean over the examples of the batch, all processes together."""
    num_batches: int
    """Batches per epoch."""
    ends_epoch: bool = False
    validation: ValidationMetrics | None = None
    """After the last batch of an epoch, if there is a validation set."""
    is_best: bool = False
    """Whether this is the best epoch so far; always true without a validation set, and with
    `checkpoint_selection = "last"`."""


def train_steps(
    model: Network,
    optimizer: Optimizer,
    encoded: Sequence[EncodedExample],
    evaluate: Callable[[], ValidationMetrics] | None,
    *,
    train_config: TrainConfig,
    accelerator: Accelerator,
    progress: Progress,
) -> Iterator[StepInfo]:
    """Train until the validation score stops improving, and yield after every step.

    Without a validation set, or with `checkpoint_selection = "last"`, train for `max_epochs`.

    `progress` is updated before the last yield of each epoch: a run that is restored from a
    checkpoint taken then gives bit for bit the same results as one that was not interrupted.
    """
    units = group_examples(encoded, train_config.batch_by)
    sizes = [len(encoded[unit[0]].ids) for unit in units]
    num_batches = -(-len(sizes) // train_config.batch_size)
    scheduler = make_scheduler(
        optimizer,
        train_config,
        num_steps=num_batches * train_config.max_epochs,
        step=progress.step,
    )
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    while not progress.finished:
        batches = epoch_batches(
            sizes,
            batch_size=train_config.batch_size,
            seed=train_config.seed,
            epoch=progress.epoch,
        )
        wrapped.train()
        losses = []
        for number, indices in enumerate(batches, 1):
            start = time.perf_counter()
            batch = [[encoded[i] for i in units[index]] for index in indices]
            losses.append(
                _step(wrapped, model, optimizer, batch, train_config, accelerator, progress.step)
            )
            scheduler.step()
            progress.step += 1
            progress.seconds += time.perf_counter() - start
            if number < num_batches:
                yield StepInfo(progress.step, progress.epoch, losses[-1], num_batches)
        metrics = _validate(evaluate, accelerator)
        is_best = end_epoch(progress, metrics, sum(losses) / num_batches, train_config)
        yield StepInfo(
            progress.step, progress.epoch - 1, losses[-1], num_batches, True, metrics, is_best
        )


def _step(
    wrapped: nn.Module,
    model: Network,
    optimizer: Optimizer,
    units: Sequence[Sequence[EncodedExample]],
    train_config: TrainConfig,
    accelerator: Accelerator,
    step: int,
) -> float:
    """Train on one batch, its units divided over the processes, and return the mean loss."""
    rank, world = accelerator.process_index, accelerator.num_processes
    # Randomness is a function of seed and step, so a resumed run needs no saved generator.
    torch.manual_seed(_mix(train_config.seed, step, rank))
    own = [example for unit in units[rank::world] or units[:1] for example in unit]
    num_examples = sum(map(len, units))
    shared = train_config.batch_by == "sentences"
    batch = collate(own, share_sentences=shared).to(accelerator.device)
    if random.Random(f"{train_config.seed}:{step}").random() < train_config.aspect_dropout:  # noqa: S311
        batch = batch.without_aspect()
    lower = train_config.mixed_precision == "bf16"
    with torch.autocast(accelerator.device.type, dtype=torch.bfloat16, enabled=lower):
        output = wrapped(batch)
    losses: Tensor = model.loss(batch, output)  # (B of this process)
    share = float(rank < len(units))  # a process without an example of its own adds nothing
    loss: Tensor = losses.sum() * share / num_examples
    accelerator.backward(loss * world)  # gradients are averaged over processes
    if train_config.max_grad_norm:
        accelerator.clip_grad_norm_(wrapped.parameters(), train_config.max_grad_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    total = accelerator.reduce(loss.detach(), reduction="sum") if world > 1 else loss.detach()
    if not math.isfinite(float(total)):
        raise ConfigError(
            f"The loss is not finite at step {step}; lower train.learning_rate "
            f"(now {train_config.learning_rate}) or set train.max_grad_norm"
        )
    return float(total)


def _validate(
    evaluate: Callable[[], ValidationMetrics] | None, accelerator: Accelerator
) -> ValidationMetrics | None:
    """Evaluate in the main process and send the metrics to all, so that all stop together."""
    if evaluate is None or accelerator.num_processes == 1:
        return evaluate() if evaluate else None
    from accelerate.utils import broadcast_object_list

    metrics = [evaluate() if accelerator.is_main_process else None]
    broadcast_object_list(metrics)
    return metrics[0]


def end_epoch(
    progress: Progress, metrics: ValidationMetrics | None, loss: float, train_config: TrainConfig
) -> bool:
    """Record an epoch in `progress`, decide whether to stop, and return whether it is the best."""
    last = train_config.checkpoint_selection == "last"
    is_best = metrics is None or last or metrics.score > progress.best_score
    if is_best:
        progress.best_epoch = progress.epoch
        progress.best_score = metrics.score if metrics else progress.best_score
    entry = {"epoch": progress.epoch, "loss": loss}
    progress.history.append(entry | (metrics.as_dict() if metrics else {}))
    waited = progress.epoch - progress.best_epoch
    # A network that still predicts one class for every example has not started to learn.
    started = metrics and sum(map(any, zip(*metrics.polarity.confusion, strict=True))) > 1
    progress.epoch += 1
    stale = bool(started) and waited >= train_config.patience
    progress.finished = stale or progress.epoch >= train_config.max_epochs
    return is_best


def _mix(seed: int, step: int, rank: int) -> int:
    digest = hashlib.blake2b(f"{seed}:{step}:{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
