"""Checkpoints: written whole or not at all, verified when read, the last good one always kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from capsar.config import run_config as make_config
from capsar.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from torch.optim import Optimizer

_LOG = logging.getLogger(__name__)
_KEPT = 2
_AVERAGE = "average.safetensors"
_FILES = ("model.safetensors", "optimizer.safetensors", "best.safetensors", _AVERAGE)


@dataclass(slots=True)
class Progress:
    """Where a run stands."""

    epoch: int = 0
    """The epoch that is being trained, from 0."""
    batch: int = 0
    """Batches of it that are done."""
    step: int = 0
    loss_sum: float = 0.0
    """Of the batches of this epoch that are done."""
    seconds: float = 0.0
    """Spent on training so far, all sessions together."""
    best_epoch: int = -1
    best_score: float = -1.0
    finished: bool = False
    history: list[dict[str, float]] = field(default_factory=list)
    """One entry an epoch: the loss and the dev figures."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything a run needs to go on as if it had never stopped."""

    progress: Progress
    run: dict[str, Any]
    """The run's configuration and the fingerprint of its data, to notice when they have changed."""
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    best: dict[str, Tensor]
    """The weights of the best epoch so far."""
    average: dict[str, Tensor] = field(default_factory=dict)
    """The running mean of the weights, if there is one."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under a temporary name, then rename it; older ones but one are deleted.

    Raises:
        ArtifactError: If it cannot be written. The checkpoints that were there still are.
    """
    target = folder / f"step-{checkpoint.progress.step:08}"
    scratch = folder / f".{target.name}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        sums = {}
        held = (checkpoint.model, checkpoint.optimizer, checkpoint.best, checkpoint.average)
        for name, tensors in zip(_FILES, held, strict=True):
            sums[name] = _write(scratch / name, save(tensors))
        state = {"progress": asdict(checkpoint.progress), "run": checkpoint.run, "sha256": sums}
        _write(scratch / "state.json", json.dumps(state).encode())
        if target.exists():  # left by a run that was stopped right after writing it
            shutil.rmtree(target)
        scratch.rename(target)
        _sync(folder)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise ArtifactError(
            f"Cannot write the checkpoint {str(target)!r}: {error}. Earlier ones are untouched; "
            "make room and run the same command again to go on."
        ) from error
    for old in _found(folder)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or nothing if there has been none.

    Raises:
        ArtifactError: If there are checkpoints, but none of them is whole.
    """
    found = _found(folder)
    for path in found:
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            _LOG.warning("The checkpoint %s is damaged and passed over: %s", path, error)
    if found:
        raise ArtifactError(
            f"Every checkpoint in {str(folder)!r} is damaged; delete the folder to train anew"
        )
    return None


def check_same(checkpoint: Checkpoint, run: dict[str, Any], folder: Path) -> None:
    """Check that a checkpoint is of this run: of the same settings and the same data.

    Raises:
        ConfigError: If it is not.
    """
    if _completed(checkpoint.run) != json.loads(json.dumps(run)):
        what = sorted(name for name in run if run[name] != checkpoint.run.get(name))
        raise ConfigError(
            f"{str(folder)!r} holds a run with another configuration or other data "
            f"(different: {', '.join(what)}); name another folder"
        )
    _LOG.info("Going on from step %d", checkpoint.progress.step)


def _completed(run: dict[str, Any]) -> dict[str, Any]:
    """Add the settings that came later, at their defaults, to a run that an older release began."""
    sections: dict[str, Any] = {
        name: run[name] for name in ("data", "model", "train") if name in run
    }
    try:
        return run | make_config(sections).as_dict()
    except ConfigError:  # it has settings that are gone
        return run


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's state as plain tensors, by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).detach().clone()
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value.clone()
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def _found(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _read(path: Path) -> Checkpoint:
    state = json.loads((path / "state.json").read_bytes())
    tensors = []
    for name in _FILES:
        if name == _AVERAGE and name not in state["sha256"]:  # written before there was one
            break
        content = (path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != state["sha256"][name]:
            raise ValueError(f"{name} does not have the content that was written")
        tensors.append(load(content))
    return Checkpoint(Progress(**state["progress"]), state["run"], *tensors)


def _write(path: Path, content: bytes) -> str:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return hashlib.sha256(content).hexdigest()


def _sync(folder: Path) -> None:
    """Make a rename in a folder outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
