"""Cross-validation: several networks, each without one part of the sentences, learn side by side.

After each epoch every sentence is answered by the network that did not learn from it. On all these
answers together the epoch is chosen, and confidences are fitted: they are as many as there are
training sentences, where one dev part has a tenth of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capsar.errors import ConfigError
from capsar.training.checkpoint import (
    Checkpoint,
    Progress,
    check_same,
    load_checkpoint,
    save_checkpoint,
)
from capsar.training.held_back import HeldBack
from capsar.training.learner import Learner
from capsar.training.log import RunLog
from capsar.training.loop import end_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from accelerate import Accelerator
    from numpy.typing import NDArray
    from torch import Tensor

    from capsar.config import RunConfig
    from capsar.data.example import Example
    from capsar.training.held_back import DevFigures, Reader
    from capsar.training.loop import StepInfo

Q = TypeVar("Q")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """What the networks found together."""

    progress: Progress
    """The figures of each epoch over all sentences, and which epoch is best."""
    held_back: HeldBack
    """All sentences, each answered by the network that did not learn from it, at that epoch."""


class FoldReader:
    """Several readers as one: each text is answered by the one that did not learn from it.

    Args:
        readers: One for each fold.
        fold_of: The fold that holds each text back.
    """

    def __init__(self, readers: Sequence[Reader], fold_of: dict[str, int]) -> None:
        self._readers = readers
        self._fold_of = fold_of

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C)."""
        texts = (example.text for example in examples)
        return np.stack(self._ask(texts, examples, lambda r, some: list(r.predict_lengths(some))))

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the logits of each text's words (W, 3), by the extraction head."""
        return self._ask(texts, texts, lambda reader, some: reader.predict_tags(some))

    def open_capsules(
        self, examples: Sequence[Example]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return the capsule lengths of each text (C), and its words' *about* scores (C, W)."""
        texts = (example.text for example in examples)
        return self._ask(texts, examples, lambda reader, some: reader.open_capsules(some))

    def _ask(
        self, texts: Iterable[str], asked: Sequence[Q], answer: Callable[[Reader, list[Q]], list[T]]
    ) -> list[T]:
        folds = [self._fold_of[text] for text in texts]
        told: dict[int, T] = {}
        for fold, reader in enumerate(self._readers):
            rows = [row for row, own in enumerate(folds) if own == fold]
            if rows:
                told |= zip(rows, answer(reader, [asked[row] for row in rows]), strict=True)
        return [told[row] for row in range(len(folds))]


def cross_validate(
    run_config: RunConfig,
    folder: Path,
    accelerator: Accelerator,
    on_step: Callable[[StepInfo], None] | None,
) -> CrossValidated:
    """Train one network for each fold, until together they stop improving.

    A checkpoint of all of them is taken after each epoch, below `folder/folds`.

    Raises:
        ConfigError: If there are several processes.
    """
    if accelerator.num_processes > 1:
        raise ConfigError("data.folds needs a single process: train without torchrun")
    learners = [Learner(run_config, accelerator, fold=i) for i in range(run_config.data.folds)]
    held_back = _join(learners)
    folds = _Folds(learners, folder / "folds", run_config)
    progress = folds.progress
    if not progress.epoch:
        for learner in learners:
            learner.imitate()
    running = [learner.steps(None) for learner in learners]
    log = RunLog(folder, progress, enabled=True)
    while not progress.finished:
        infos = [_train_epoch(steps, on_step) for steps in running]
        with ExitStack() as means:
            for learner in learners:
                means.enter_context(learner.average.in_place(learner.model))
            dev = held_back.judge(with_tags=run_config.teaches_spans)
        info = folds.end_epoch(infos, dev)
        log.write(info)
        if on_step:
            on_step(info)
    log.close()
    for learner, weights in zip(learners, folds.best, strict=True):
        learner.load(weights)
    return CrossValidated(progress, held_back)


class _Folds:
    """Where all networks stand together; it is kept in one checkpoint."""

    def __init__(self, learners: list[Learner], folder: Path, run_config: RunConfig) -> None:
        self._learners = learners
        self._folder = folder
        self._config = run_config.train
        self._run = run_config.as_dict() | {
            "fingerprint": "".join(learner.run["fingerprint"] for learner in learners)
        }
        self.progress = Progress()
        self._seconds = 0.0  # of this session
        self.best: list[dict[str, Tensor]] = [{} for _ in learners]
        """The weights of each network after the best epoch so far."""
        checkpoint = load_checkpoint(folder)
        if checkpoint is not None:
            check_same(checkpoint, self._run, folder.parent)
            self._restore(checkpoint)

    def end_epoch(self, infos: Sequence[StepInfo], dev: DevFigures) -> StepInfo:
        """Enter an epoch's figures, and take a checkpoint."""
        progress = self.progress
        progress.loss_sum = sum(each.progress.history[-1]["loss"] for each in self._learners)
        is_best = end_epoch(progress, dev, len(self._learners), self._config)
        progress.step = sum(each.progress.step for each in self._learners)
        seconds = sum(each.progress.seconds for each in self._learners)
        progress.seconds += seconds - self._seconds
        self._seconds = seconds
        if is_best:
            self.best = [each.best for each in self._learners]
        held = [each.checkpoint() for each in self._learners]
        everything = Checkpoint(
            progress,
            self._run,
            _joined(each.model for each in held),
            _joined(each.optimizer for each in held),
            _joined(self.best),
            _joined(each.average for each in held),
        )
        save_checkpoint(self._folder, everything)
        return replace(infos[-1], ends_epoch=True, dev=dev, is_best=is_best)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = checkpoint.progress
        epoch = checkpoint.progress.epoch
        number = len(self._learners)
        self.best = _parted(checkpoint.best, number)
        parts = zip(
            self._learners,
            *(_parted(t, number) for t in (checkpoint.model, checkpoint.optimizer)),
            _parted(checkpoint.average, number),
            strict=True,
        )
        for learner, model, optimizer, average in parts:
            steps = -(-len(learner.encoded) // self._config.batch_size)  # of an epoch
            where = Progress(epoch=epoch, step=epoch * steps, finished=self.progress.finished)
            learner.restore(Checkpoint(where, learner.run, model, optimizer, {}, average))


def _train_epoch(steps: Iterator[StepInfo], on_step: Callable[[StepInfo], None] | None) -> StepInfo:
    """Train one network to the end of its epoch; return its last step."""
    for info in steps:
        if on_step:
            on_step(replace(info, ends_epoch=False))
        if info.ends_epoch:
            return info
    raise RuntimeError("a network ended before the others")  # pragma: no cover


def _join(learners: Sequence[Learner]) -> HeldBack:
    """What each holds back, answered by itself."""
    parts = [learner.held_back for learner in learners]
    fold_of = {
        text: fold
        for fold, part in enumerate(parts)
        for text in (*(e.text for e in part.examples), *(s.text for s in part.sentences))
    }
    return HeldBack(
        FoldReader([part.reader for part in parts], fold_of),
        [example for part in parts for example in part.examples],
        [sentence for part in parts for sentence in part.sentences],
    )


def _joined(parts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{n}/{name}": value for n, part in enumerate(parts) for name, value in part.items()}


def _parted(tensors: dict[str, Tensor], number: int) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{} for _ in range(number)]
    for key, value in tensors.items():
        fold, _, name = key.partition("/")
        parts[int(fold)][name] = value
    return parts
