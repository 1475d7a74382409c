"""A network that learns: its data, its weights, and where it stands."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from capsar.model.network import Capsar
from capsar.training.averaging import Average
from capsar.training.batches import EncodedExample, encode_examples
from capsar.training.checkpoint import (
    Checkpoint,
    Progress,
    optimizer_tensors,
    restore_optimizer,
)
from capsar.training.held_back import HeldBack
from capsar.training.imitation import imitate
from capsar.training.loop import train_steps
from capsar.training.networks import new_network, trained_weights
from capsar.training.optimizer import make_optimizer
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.start import load_start
from capsar.training.teaching import balance_classes, be_told, digest_teachers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from accelerate import Accelerator
    from torch import Tensor

    from capsar.config import RunConfig
    from capsar.data.example import Example
    from capsar.training.held_back import DevFigures
    from capsar.training.loop import StepInfo
    from capsar.training.networks import Network
    from capsar.training.prepare import Prepared
    from capsar.training.start import Start


class Learner:
    """A network, the data it learns from, its optimizer, and how far it has come.

    Args:
        run_config: What is trained, on what, and how.
        accelerator: Hides one process or many.
        fold: Which part of a cross-validation it must not see, if there is one.
    """

    def __init__(
        self, run_config: RunConfig, accelerator: Accelerator, *, fold: int | None = None
    ) -> None:
        seed = run_config.train.seed
        self._run_config = run_config
        self._accelerator = accelerator
        self.start = load_start(run_config)
        self.prepared = prepare_data(
            run_config.data, run_config.model, seed=seed, start=self.start, fold=fold
        )
        torch.manual_seed(seed)
        self.model = _network(run_config, self.prepared, self.start).to(accelerator.device)
        self.optimizer = make_optimizer(self.model, run_config.train)
        self.predictor = NetworkPredictor(self.model, self.prepared.tokenizer)
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        """The weights of the best epoch so far."""
        self.average = Average(run_config.train.average)
        told_by = digest_teachers(run_config.train.teacher)
        self.run: dict[str, Any] = run_config.as_dict() | {
            "fingerprint": self.prepared.fingerprint + told_by
        }
        self.optimizer.register_step_post_hook(
            lambda *_: self.average.update(self.model, self.progress.step)
        )

    @property
    def held_back(self) -> HeldBack:
        """The sentences that it does not learn from."""
        return HeldBack(self.predictor, self.prepared.dev, self.prepared.dev_sentences)

    def imitate(self) -> None:
        """Let a new encoder learn to foresee the states of its teachers, if that is asked for.

        One process does it; the others get its weights when they are joined for the first step.
        """
        train_config = self._run_config.train
        if not train_config.imitate_epochs:
            return
        start = time.perf_counter()
        if self._accelerator.is_main_process and isinstance(self.model, Capsar):
            learnt_from = _examples(self.prepared, self._run_config)
            texts = [example.text for example in learnt_from]
            imitate(self.model, texts, self.prepared.tokenizer, train_config)
        self._accelerator.wait_for_everyone()
        self.progress.seconds += time.perf_counter() - start

    def judge(self) -> DevFigures:
        """Tell how the network, or the mean of its weights, does on its dev part."""
        with self.average.in_place(self.model):
            return self.held_back.judge(with_tags=self._run_config.teaches_spans)

    def steps(
        self, evaluate_dev: Callable[[], DevFigures] | None, *, epochs: int = 0
    ) -> Iterator[StepInfo]:
        """Train, yielding after every step.

        Args:
            evaluate_dev: Judges the network after each epoch, if anything is held back.
            epochs: After how many to stop, with the learning rates of a run of `max_epochs`; 0 for
                as many as those.
        """
        steps = train_steps(
            self.model,
            self.optimizer,
            self.encoded,
            evaluate_dev,
            train_config=self._run_config.train,
            accelerator=self._accelerator,
            progress=self.progress,
        )
        for info in steps:
            if info.is_best:
                self.best = self.average.weights_of(self.model)
            self.progress.finished |= 0 < epochs <= self.progress.epoch
            yield info

    def checkpoint(self) -> Checkpoint:
        """Return everything that is needed to go on from here."""
        weights = {name: value.clone() for name, value in trained_weights(self.model).items()}
        state = optimizer_tensors(self.optimizer)
        return Checkpoint(self.progress, self.run, weights, state, self.best, self.average.tensors)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.progress = checkpoint.progress
        self.best = checkpoint.best
        self.average.tensors = checkpoint.average
        self.load(checkpoint.model)
        restore_optimizer(self.optimizer, checkpoint.optimizer)

    def load(self, weights: dict[str, Tensor]) -> None:
        """Give the network other weights; what it was given and does not train, it keeps."""
        given = self.model.given
        own = self.model.state_dict()
        self.model.load_state_dict(({given: own[given]} if given else {}) | weights)

    @cached_property
    def encoded(self) -> list[EncodedExample]:
        """What it learns from."""
        return _encode(self.prepared, self._run_config)


def _network(run_config: RunConfig, prepared: Prepared, start: Start | None) -> Network:
    """A new network, or the one that the run goes on from."""
    model = start.network if start else new_network(run_config.model, prepared)
    if isinstance(model, Capsar) and model.spans is not None:
        # What nothing teaches gets no gradient, and no process must wait for one.
        model.spans.requires_grad_(run_config.teaches_spans)
    return model


def _examples(prepared: Prepared, run_config: RunConfig) -> list[Example]:
    """The training examples; with tags, sentences without a judged term are examples too."""
    return prepared.tagged_train if run_config.teaches_spans else prepared.all_train


def _encode(prepared: Prepared, run_config: RunConfig) -> list[EncodedExample]:
    """The training examples, with what each counts for and what teachers tell of it."""
    examples, terms = _examples(prepared, run_config), None
    if run_config.teaches_spans:
        terms = {sentence.text: sentence.terms for sentence in prepared.train_sentences}
    encoded = encode_examples(examples, prepared.tokenizer, terms=terms)
    encoded = balance_classes(encoded, run_config.train.class_balance)
    return be_told(encoded, examples, run_config.train.teacher, run_config.train.teacher_share)
