"""One run: train it, judge it once, write its figures."""

from __future__ import annotations

import fcntl
import subprocess
from typing import TYPE_CHECKING

import torch

from capsar import train
from runs import ROOT, Run

if TYPE_CHECKING:
    from capsar.training.run import TrainResult


def do_run(run: Run) -> int:
    """Do what is missing of a run, unless another process is at it."""
    torch.set_num_threads(1)
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return 0
        _train(run)
    return 0


def _train(run: Run) -> TrainResult:
    commit = run.folder / "commit"
    if not commit.is_file():
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
        commit.write_text(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
    return train(run.config(), run.folder)
