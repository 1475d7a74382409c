"""One run: train it, judge it once, write its figures."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from capsar import train
from closed import close_test_parts
from judge import judge_bundle, rounded
from runs import BEST, BEST_PARTS, ROOT, Run, planned, trained_as, write_json

if TYPE_CHECKING:
    from capsar.training.run import TrainResult


_PACKAGES = ("torch", "onnxruntime", "numpy", "accelerate")


def do_run(run: Run) -> int:
    """Do what is missing of a run; where another process is at the same training, wait for it."""
    torch.set_num_threads(1)
    os.chdir(ROOT)  # paths in configurations are below the root
    folder = trained_as(run).folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if run.read() is not None:
            return 0
        if run.source in BEST + BEST_PARTS:
            _train_closed(run)
        result = _train(run, folder, anew=run.source not in BEST + BEST_PARTS)
        write_json(run.result, _describe(run, result) | judge_bundle(run, result.bundle))
    return 0


def _train(run: Run, folder: Path, *, anew: bool) -> TrainResult:
    """Train what is missing of a run; its bundle is written `anew`, or is there already."""
    folder.mkdir(parents=True, exist_ok=True)
    commit = folder / "commit"
    if not commit.is_file():
        commit.write_text(commit_of_code() + "\n")
    if anew:
        # A bundle of an earlier release is not judged: the code that judges it writes it anew, from
        # the weights of the checkpoint.
        shutil.rmtree(folder / "bundle", ignore_errors=True)
    return train(run.config(), folder)


def _train_closed(run: Run) -> None:
    """Train in a process that cannot open a test part; what is left then is to judge."""
    command = [sys.executable, str(Path(__file__)), run.name]
    subprocess.run(command, check=True)


def main(name: str) -> None:
    """Train one run, and leave it to another process to judge it."""
    close_test_parts()
    torch.set_num_threads(1)
    os.chdir(ROOT)
    (run,) = (run for run in planned(BEST + BEST_PARTS) if run.name == name)
    _train(run, run.folder, anew=True)


def _describe(run: Run, result: TrainResult) -> dict[str, Any]:
    """What is needed to judge and repeat the figures."""
    has_dev = "dev_accuracy" in result.dev
    return {
        "name": run.name,
        "command": f"python experiments/reproduce.py run {run.name}",
        "row": run.row,
        "source": run.source,
        "point": run.point,
        "encoder": run.encoder,
        "dataset": run.dataset,
        "protocol": run.protocol,
        "seed": run.seed,
        "config_hash": run.config_hash,
        "config": run.shown_config(),
        "vectors": run.vectors,
        "commit": (result.bundle.parent / "commit").read_text().strip(),
        "judged_at": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES + ("transformers",) * bool(run.pretrained)},
        "machine": machine_class(),
        "seconds": round(result.seconds, 1),
        "best_epoch": result.best_epoch,
        "dev": rounded(result.dev) if has_dev else None,
        "history": [rounded(entry) for entry in result.history],
    }


def machine_class() -> str:
    """Say what kind of machine this is, and no more."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; one thread"


def commit_of_code() -> str:
    """Return the commit, marked if the code that makes figures differs from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "src", "experiments/*.py", "experiments/configs"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return commit + ("-dirty" if changed else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
