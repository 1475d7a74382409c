"""The state of a training run: network, optimizer, progress, checkpoints and log.

Checkpoints are written atomically, verified when read, and the last two are kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from capsar.config import run_config as make_config
from capsar.errors import ArtifactError, ConfigError
from capsar.model.network import Capsar
from capsar.training.batches import EncodedExample, encode_examples
from capsar.training.dataset import prepare_data
from capsar.training.distillation import (
    add_teacher_targets,
    balance_classes,
    weight_sources,
)
from capsar.training.initialize import (
    load_initial_model,
    load_trained_weights,
    new_network,
    trained_weights,
)
from capsar.training.loop import Progress, train_steps
from capsar.training.optim import freeze_layers, make_ema, make_optimizer
from capsar.training.teachers import fingerprint_teachers
from capsar.training.validation import NetworkPredictor, ValidationSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from accelerate import Accelerator
    from torch import Tensor
    from torch.optim import Optimizer

    from capsar.config import RunConfig
    from capsar.model.bert_pair import BertPairClassifier
    from capsar.schema import Example
    from capsar.training.loop import Network, StepInfo, ValidationMetrics

_LOG = logging.getLogger(__name__)
_KEPT_CHECKPOINTS = 2
_TENSORS = "tensors.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything needed to continue a run after an epoch."""

    progress: Progress
    run: dict[str, Any]
    """The configuration of the run and the fingerprint of its data, to detect changes."""
    tensors: dict[str, Tensor]
    """The tensors of `TrainState.tensors`, or those of each fold."""


def merge(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return all tensors in one dictionary, with the name of their part before their own."""
    return {f"{part}/{name}": t for part, own in parts.items() for name, t in own.items()}


def unmerge(tensors: Mapping[str, Tensor]) -> defaultdict[str, dict[str, Tensor]]:
    """Return the parts that `merge` joined; a missing part is empty."""
    parts: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts[part][name] = value
    return parts


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under a temporary name, rename it, and delete all older ones but one.

    Raises:
        ArtifactError: If it cannot be written. Earlier checkpoints are kept.
    """
    target = folder / f"step-{checkpoint.progress.step:08}"
    scratch = folder / f".{target.name}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        content = save(checkpoint.tensors)
        digest = hashlib.sha256(content).hexdigest()
        _write_synced(scratch / _TENSORS, content)
        state = {"progress": asdict(checkpoint.progress), "run": checkpoint.run, "sha256": digest}
        _write_synced(scratch / "state.json", json.dumps(state).encode())
        if target.exists():  # from a run that was stopped right after writing it
            shutil.rmtree(target)
        scratch.rename(target)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)  # so that the rename survives a power failure
        os.close(handle)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise ArtifactError(
            f"Cannot write the checkpoint {str(target)!r}: {error}. Earlier ones are kept; "
            "free some space and run the same command again to continue."
        ) from error
    for old in _checkpoints(folder)[_KEPT_CHECKPOINTS:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or None if there is no checkpoint.

    Raises:
        ArtifactError: If there are checkpoints, but all are damaged.
    """
    found = _checkpoints(folder)
    for path in found:
        try:
            state = json.loads((path / "state.json").read_bytes())
            content = (path / _TENSORS).read_bytes()
            if hashlib.sha256(content).hexdigest() != state["sha256"]:
                raise ValueError(f"{_TENSORS} does not match its hash")
            return Checkpoint(Progress(**state["progress"]), state["run"], load(content))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            _LOG.warning("Skipped the damaged checkpoint %s: %s", path, error)
    if found:
        raise ArtifactError(
            f"Every checkpoint in {str(folder)!r} is damaged; delete the folder to start again"
        )
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def check_same_run(checkpoint: Checkpoint, run: dict[str, Any], folder: Path) -> None:
    """Check that a checkpoint has the same settings and data as this run.

    Raises:
        ConfigError: If it does not.
    """
    before = checkpoint.run
    try:  # settings that did not exist when the run started have their defaults
        sections = {name: before[name] for name in ("data", "model", "train")}
        before = before | make_config(sections).as_dict()
    except (ConfigError, KeyError):
        _LOG.debug("The checkpoint has settings that no longer exist")
    if before != json.loads(json.dumps(run)):
        changed = sorted(name for name in run if run[name] != before.get(name))
        raise ConfigError(
            f"{str(folder)!r} holds a run with another configuration or other data "
            f"(different: {', '.join(changed)}); choose another folder"
        )
    _LOG.info("Resuming after step %d", checkpoint.progress.step)


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's state as tensors, by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).detach().clone()
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value.clone()
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


class RunLog:
    """`log.jsonl` and TensorBoard's `events/`: one entry per epoch.

    Both are written from the history of the run, which checkpoints hold.
    """

    def __init__(self, folder: Path, progress: Progress) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._path = folder / "log.jsonl"
        self._history = progress.history
        shutil.rmtree(folder / "events", ignore_errors=True)
        self._events: Any = SummaryWriter(str(folder / "events"))
        for entry in self._history:
            self._add(entry)
        self._write_lines()

    def write(self) -> None:
        """Log the last epoch."""
        self._add(self._history[-1])
        self._write_lines()

    def _write_lines(self) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in self._history)
        scratch = self._path.with_suffix(".tmp")
        try:
            scratch.write_text(lines, encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(self._path)!r}: {error}") from error

    def close(self) -> None:
        """Close the files."""
        self._events.close()

    def _add(self, entry: dict[str, Any]) -> None:
        for name, value in entry.items():
            if name != "epoch" and isinstance(value, float):
                self._events.add_scalar(name, value, entry["epoch"])
        self._events.flush()


class TrainState:
    """A network in training: its data, optimizer, moving average and progress.

    Args:
        run_config: The configuration of the run.
        accelerator: Selects the device and joins processes.
        fold: The fold of a cross-validation to validate on, if any.
    """

    def __init__(
        self, run_config: RunConfig, accelerator: Accelerator, *, fold: int | None = None
    ) -> None:
        seed = run_config.train.seed
        self._run_config = run_config
        self._accelerator = accelerator
        self.initial = load_initial_model(run_config)
        self.data = prepare_data(
            run_config.data, run_config.model, seed=seed, initial=self.initial, fold=fold
        )
        torch.manual_seed(seed)
        model = (
            self.initial.network
            if self.initial
            else new_network(run_config.model, self.data.vocabulary)
        )
        if isinstance(model, Capsar) and model.spans is not None:
            # Parameters without a gradient must be frozen, or DDP waits for their gradients.
            model.spans.requires_grad_(run_config.trains_spans)
        freeze_layers(model, run_config.train.frozen_layers)
        self.model = model.to(accelerator.device)
        self.optimizer = make_optimizer(self.model, run_config.train)
        decay = run_config.train.ema_decay
        self.ema = make_ema(self.model, decay) if decay else None
        self.evaluated: Capsar | BertPairClassifier = self.model
        """The network that is validated and saved: the moving average, if there is one."""
        if ema := self.ema:
            self.evaluated = ema.module  # type: ignore[assignment]
            self.optimizer.register_step_post_hook(lambda *_: ema.update_parameters(self.model))
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        """The weights of the best epoch so far."""
        self._initial_weights = _copy_weights(self.model) if run_config.train.initial_weight else {}
        self.run: dict[str, Any] = run_config.as_dict() | {
            "fingerprint": self.data.fingerprint + fingerprint_teachers(run_config.train.teacher)
        }

    @property
    def validation_set(self) -> ValidationSet:
        """The validation set, predicted by the network that will be saved."""
        splits = self.data.splits
        predictor = NetworkPredictor(self.evaluated, self.data.vocabulary.tokenizer)
        return ValidationSet(predictor, splits.validation, splits.validation_sentences)

    @property
    def final_weights(self) -> dict[str, Tensor]:
        """The weights to save: of the best epoch, or their mean with those of the initial model."""
        share = self._run_config.train.initial_weight
        means = {k: self.best[k].lerp(v, share) for k, v in self._initial_weights.items()}
        return self.best | means

    @property
    def examples(self) -> list[Example]:
        """The training examples; for an extraction head also sentences without a labeled term."""
        return self.data.splits.training_examples(with_unlabeled=self._run_config.trains_spans)

    @cached_property
    def encoded(self) -> list[EncodedExample]:
        """The encoded training examples, with class weights and soft targets.

        The main process queries the teachers first; the others then read its cache.
        """
        train_config, terms = self._run_config.train, None
        if self._run_config.trains_spans:
            terms = {s.text: s.terms for s in self.data.splits.train_sentences}
        examples = self.examples
        encoded = encode_examples(examples, self.data.vocabulary.tokenizer, terms=terms)
        encoded = balance_classes(encoded, train_config.class_balance)
        encoded = weight_sources(encoded, examples, self.data.splits.weights)
        with self._accelerator.main_process_first():
            pseudo_labeled = {example.text for example in self.data.splits.pseudo_labeled}
            return add_teacher_targets(encoded, examples, train_config, pseudo_labeled)

    def evaluate(self) -> ValidationMetrics:
        """Return the metrics on the validation set."""
        return self.validation_set.evaluate(with_spans=self._run_config.trains_spans)

    def steps(self, *, epochs: int = 0, validate: bool = True) -> Iterator[StepInfo]:
        """Train, and yield after every step.

        Args:
            epochs: The number of epochs, with the learning rates of a run of `max_epochs`; 0 for
                `max_epochs`.
            validate: Whether to evaluate the network after each epoch, if it has a validation set.
        """
        steps = train_steps(
            self.model,
            self.optimizer,
            self.encoded,
            self.evaluate if validate and self.data.splits.validation else None,
            train_config=self._run_config.train,
            accelerator=self._accelerator,
            progress=self.progress,
        )
        for info in steps:
            if info.is_best:
                self.best = _copy_weights(self.evaluated)
            self.progress.finished |= 0 < epochs <= self.progress.epoch
            yield info

    def tensors(self) -> dict[str, Tensor]:
        """Return a copy of everything that training changes."""
        return merge(
            {
                "model": _copy_weights(self.model),
                "optimizer": optimizer_tensors(self.optimizer),
                "best": self.best,
                "ema": _copy_weights(self.evaluated) if self.ema else {},
            }
        )

    def restore(self, progress: Progress, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of a checkpoint, on whatever device."""
        parts = unmerge(tensors)
        self.progress, self.best = progress, parts["best"]
        load_trained_weights(self.model, parts["model"])
        restore_optimizer(self.optimizer, parts["optimizer"])
        if self.ema:
            load_trained_weights(self.evaluated, parts["ema"])
            self.ema.n_averaged.fill_(progress.step)


def _copy_weights(model: Network) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trained_weights(model).items()}
