"""Cross-validation: train one network per fold, side by side, to choose the epoch.

After each epoch every sentence is predicted by the network that was not trained on it. All these
predictions together choose the epoch and fit the calibration: they are as many as there are
training sentences, where a single validation set has a tenth of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capsar.errors import ConfigError
from capsar.training.initialize import load_trained_weights
from capsar.training.loop import Progress, end_epoch
from capsar.training.state import (
    Checkpoint,
    RunLog,
    TrainState,
    check_same_run,
    load_checkpoint,
    merge,
    save_checkpoint,
    unmerge,
)
from capsar.training.validation import ValidationSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from accelerate import Accelerator
    from numpy.typing import NDArray

    from capsar.config import RunConfig
    from capsar.schema import Example
    from capsar.training.loop import StepInfo, ValidationMetrics
    from capsar.training.validation import CapsulePredictor, Scores

Q = TypeVar("Q")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """The result of a cross-validation."""

    progress: Progress
    """The metrics of each epoch over all sentences, and the best epoch."""
    validation_set: ValidationSet
    """All sentences, predicted by the networks of the best epoch that were not trained on them."""


class FoldPredictor:
    """Predicts each text with the network that was not trained on it.

    Args:
        predictors: One per fold.
        fold_of: The fold of each text.
    """

    def __init__(self, predictors: Sequence[CapsulePredictor], fold_of: dict[str, int]) -> None:
        self._predictors = predictors
        self._fold_of = fold_of

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C)."""
        texts = (example.text for example in examples)
        return np.stack(self._map(texts, examples, lambda p, some: list(p.predict_lengths(some))))

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the tag logits of each text's words (W, 3), by the extraction head."""
        return self._map(texts, texts, lambda predictor, some: predictor.predict_tags(some))

    def score_capsules(self, examples: Sequence[Example]) -> list[Scores]:
        """Return the capsule lengths of each text (C), and its words' similarities (C, W)."""
        texts = (example.text for example in examples)
        return self._map(texts, examples, lambda predictor, some: predictor.score_capsules(some))

    def _map(
        self,
        texts: Iterable[str],
        inputs: Sequence[Q],
        predict: Callable[[CapsulePredictor, list[Q]], list[T]],
    ) -> list[T]:
        folds = [self._fold_of[text] for text in texts]
        found: dict[int, T] = {}
        for fold, predictor in enumerate(self._predictors):
            rows = [row for row, own in enumerate(folds) if own == fold]
            if rows:
                found |= zip(rows, predict(predictor, [inputs[row] for row in rows]), strict=True)
        return [found[row] for row in range(len(folds))]


def cross_validate(
    run_config: RunConfig,
    folder: Path,
    accelerator: Accelerator,
    on_step: Callable[[StepInfo], None] | None,
) -> CrossValidated:
    """Train one network per fold until the metrics over all folds stop improving.

    A checkpoint of all networks is written to `folder/folds` after each epoch.

    Raises:
        ConfigError: If there are several processes.
    """
    if accelerator.num_processes > 1:
        raise ConfigError("data.folds needs a single process: train without torchrun")
    states = [TrainState(run_config, accelerator, fold=i) for i in range(run_config.data.folds)]
    validation_set = _join_sets(states)
    folds = _Folds(states, folder / "folds", run_config)
    progress = folds.progress
    running = [state.steps(validate=False) for state in states]
    log = RunLog(folder, progress)
    while not progress.finished:
        infos = [_train_epoch(steps, on_step) for steps in running]
        metrics = validation_set.evaluate(with_spans=run_config.trains_spans)
        is_best = folds.end_epoch(metrics)
        log.write()
        if on_step:
            on_step(replace(infos[-1], ends_epoch=True, validation=metrics, is_best=is_best))
    log.close()
    for state in states:
        load_trained_weights(state.evaluated, state.best)
    return CrossValidated(progress, validation_set)


class _Folds:
    """The common progress and checkpoint of all networks."""

    def __init__(self, states: list[TrainState], folder: Path, run_config: RunConfig) -> None:
        self._states = states
        self._folder = folder
        self._config = run_config.train
        self._run = run_config.as_dict() | {
            "fingerprint": "".join(state.run["fingerprint"] for state in states)
        }
        self.progress = Progress()
        self._seconds = 0.0  # of this session
        checkpoint = load_checkpoint(folder)
        if checkpoint is not None:
            check_same_run(checkpoint, self._run, folder.parent)
            self._restore(checkpoint)
        self._best = [state.best for state in states]

    def end_epoch(self, metrics: ValidationMetrics) -> bool:
        """Record an epoch, write a checkpoint, and return whether it is the best so far."""
        progress, states = self.progress, self._states
        loss = sum(state.progress.history[-1]["loss"] for state in states) / len(states)
        is_best = end_epoch(progress, metrics, loss, self._config)
        progress.step = sum(state.progress.step for state in states)
        seconds = sum(state.progress.seconds for state in states)
        progress.seconds += seconds - self._seconds
        self._seconds = seconds
        if is_best:
            self._best = [state.best for state in states]
        for state, best in zip(states, self._best, strict=True):
            state.best = best  # each network alone takes every epoch for its best
        tensors = merge({str(fold): state.tensors() for fold, state in enumerate(states)})
        save_checkpoint(self._folder, Checkpoint(progress, self._run, tensors))
        return is_best

    def _restore(self, checkpoint: Checkpoint) -> None:
        progress = self.progress = checkpoint.progress
        parts = unmerge(checkpoint.tensors)
        for fold, state in enumerate(self._states):
            steps = -(-len(state.encoded) // self._config.batch_size)  # per epoch
            own = Progress(progress.epoch, progress.epoch * steps, finished=progress.finished)
            state.restore(own, parts[str(fold)])


def _train_epoch(steps: Iterator[StepInfo], on_step: Callable[[StepInfo], None] | None) -> StepInfo:
    """Train one network to the end of its epoch, and return its last step."""
    for info in steps:
        if on_step:
            on_step(replace(info, ends_epoch=False))
        if info.ends_epoch:
            return info
    raise RuntimeError("a network ended before the others")  # pragma: no cover


def _join_sets(states: Sequence[TrainState]) -> ValidationSet:
    """Return the validation sets of all folds as one, each predicted by its own network."""
    sets = [state.validation_set for state in states]
    fold_of = {
        text: fold
        for fold, own in enumerate(sets)
        for text in (*(e.text for e in own.examples), *(s.text for s in own.sentences))
    }
    return ValidationSet(
        FoldPredictor([own.predictor for own in sets], fold_of),
        [example for own in sets for example in own.examples],
        [sentence for own in sets for sentence in own.sentences],
    )
