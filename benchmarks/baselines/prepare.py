"""Create the environments, and train the baselines on the same sentences as ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

from baselines.protocol import process_environment
from baselines.systems import (
    BERT,
    CAPSAR,
    HERE,
    SETFIT,
    Installed,
    fetch_spacy_model,
    ready_systems,
    trained_run,
)
from capsar.model.encoders import find_encoder
from capsar.training.dataset import read_splits
from measure import ROOT, build_wheel, folder_mb

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = "all-MiniLM-L6-v2"
NUM_STEPS = 500
"""Of contrastive learning, for each of SetFit's two models: about twelve core-minutes."""
BATCH = 16
SEED = 0
CONFLICT = "conflict"
TRAINED_FACTS = "trained.json"


def prepare(work: Path) -> dict[str, float]:
    """Create missing environments and models; return sizes, lines and facts about training."""
    _prepare_capsar(work)
    _prepare_bert(work)
    _prepare_setfit(work)
    metrics: dict[str, float] = {}
    facts = Installed(SETFIT, work).folder / TRAINED_FACTS
    if facts.is_file():
        trained = json.loads(facts.read_text(encoding="utf-8"))
        metrics |= {f"setfit_{name}": value for name, value in trained.items()}
    for system in ready_systems(work):
        metrics |= {
            f"{system.name}_install_mb": float(system.installed.facts["install_mb"]),
            f"{system.name}_model_mb": sum(map(folder_mb, system.models)),
            f"{system.name}_lines": system.num_lines,
        }
    return metrics


def source_stamp() -> str:
    """Return the id of the committed source tree, including models."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD:src"]
    return subprocess.check_output(command, text=True).strip()


def _prepare_capsar(work: Path) -> None:
    installed, stamp = Installed(CAPSAR, work), source_stamp()
    if installed.facts.get("stamp") != stamp:
        shutil.rmtree(work / "dist", ignore_errors=True)
        installed.create(stamp=stamp, wheel=build_wheel(work / "dist"))


def training_rows() -> list[dict[str, str | int]]:
    """Return the training set of our runs on Restaurant in the format of SetFit's trainer.

    The validation set is excluded, as in ours. The format has no sentences without aspects. Aspects
    with conflicting polarity have their own label, which is not used to train the polarity model.
    """
    splits = read_splits(trained_run("bert-minilm").config().data)
    return [
        {
            "text": sentence.text,
            "span": sentence.text[start:end],
            "ordinal": ordinal(sentence.text, start, end),
            "label": str(polarity or CONFLICT),
        }
        for sentence in splits.train_sentences
        for (start, end), polarity in sentence.terms.items()
    ]


def ordinal(text: str, start: int, end: int) -> int:
    """Count the earlier occurrences of a span's characters."""
    return sum(text.startswith(text[start:end], index) for index in range(start))


def _prepare_setfit(work: Path) -> None:
    installed = Installed(SETFIT, work)
    installed.create()
    facts = installed.folder / TRAINED_FACTS
    if facts.is_file():
        return
    rows = installed.folder / "rows.json"
    rows.write_text(json.dumps(training_rows()), encoding="utf-8")
    settings = {
        "rows": rows, "facts": facts, "encoder": find_encoder(ENCODER), "steps": NUM_STEPS,
        "batch": BATCH, "seed": SEED, "without": CONFLICT,
    }  # fmt: skip
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    folders = [installed.folder, fetch_spacy_model(work)]
    _run(installed, "run_setfit.py", "train", *folders, *options)
    rows.unlink()


def _prepare_bert(work: Path) -> None:
    installed = Installed(BERT, work)
    installed.create()
    folder = installed.folder / "model"
    if not folder.is_dir():
        unfinished = installed.folder / "unfinished"
        _run(installed, "run_bert.py", "convert", trained_run("bert-minilm").bundle, unfinished)
        unfinished.rename(folder)


def _run(installed: Installed, script: str, *arguments: object) -> None:
    command = [installed.python, str(HERE / script), *map(str, arguments)]
    subprocess.run(command, check=True, env=process_environment())
