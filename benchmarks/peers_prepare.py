"""Before peers can be asked: environments, and models trained on the same sentences as ours."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

from capsar.model.transformer import find_encoder
from capsar.training.parts import read_parts
from install import folder_mb
from peers_environments import (
    BERT,
    CAPSAR,
    ROOT,
    SETFIT,
    Installed,
    build_wheel,
    fetch_spacy_model,
)
from peers_process import quiet_environment
from peers_programs import num_lines
from peers_systems import HERE, all_systems, trained_run

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = "all-MiniLM-L6-v2"
STEPS = 500
"""Of contrastive learning, for each of SetFit's two models: what twelve core-minutes allow."""
BATCH = 16
SEED = 0
CONFLICT = "conflict"


def prepare(work: Path) -> dict[str, float]:
    """Make what is missing; return sizes, lines, and what training took."""
    _install_ours(work)
    Installed(BERT, work).make()
    _convert_bert(work)
    Installed(SETFIT, work).make()
    metrics = _train_setfit(work)
    for system in all_systems(work):
        metrics |= {
            f"{system.name}_install_mb": float(system.installed.facts["install_mb"]),
            f"{system.name}_model_mb": sum(map(folder_mb, system.models)),
            f"{system.name}_lines": num_lines(system.program),
        }
    return metrics


def source_stamp() -> str:
    """Return what tells the committed state of our source, models included."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD:src"]
    return subprocess.check_output(command, text=True).strip()


def _install_ours(work: Path) -> None:
    installed = Installed(CAPSAR, work)
    stamp = source_stamp()
    if not installed.is_made(stamp):
        installed.make(stamp=stamp, wheel=build_wheel(work))


def training_rows() -> list[dict[str, str | int]]:
    """Return the training part of our own runs on Restaurant, as SetFit's trainer reads it.

    The dev part is left out, as it is in ours. A sentence without any term cannot be said in this
    form. Terms of *conflict* have a label of their own: the trainer drops them for polarity.
    """
    parts = read_parts(trained_run("bert-minilm").config().data)
    return [
        {
            "text": sentence.text,
            "span": sentence.text[start:end],
            "ordinal": ordinal(sentence.text, start, end),
            "label": str(polarity or CONFLICT),
        }
        for sentence in parts.train_sentences
        for (start, end), polarity in sentence.terms.items()
    ]


def ordinal(text: str, start: int, end: int) -> int:
    """Count the places before a span where the same characters stand."""
    return sum(text.startswith(text[start:end], place) for place in range(start))


def _train_setfit(work: Path) -> dict[str, float]:
    installed = Installed(SETFIT, work)
    facts = installed.folder / "trained.json"
    rows = training_rows()
    if not facts.is_file():
        file = installed.folder / "rows.json"
        file.write_text(json.dumps(rows), encoding="utf-8")
        settings = {
            "rows": file, "facts": facts, "encoder": find_encoder(ENCODER), "steps": STEPS,
            "batch": BATCH, "seed": SEED, "without": CONFLICT,
        }  # fmt: skip
        named = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
        script = [str(HERE / "peers_setfit.py"), "train"]
        folders = [str(installed.folder), str(fetch_spacy_model(work))]
        command = [installed.python, *script, *folders, *named]
        subprocess.run(command, check=True, env=quiet_environment())
        file.unlink()
    measured: dict[str, float] = json.loads(facts.read_text(encoding="utf-8"))
    return {f"setfit_{name}": value for name, value in measured.items()} | {
        "setfit_steps": STEPS,
        "setfit_batch": BATCH,
        "setfit_rows": len(rows),
    }


def _convert_bert(work: Path) -> None:
    installed = Installed(BERT, work)
    folder = installed.folder / "model"
    if not folder.is_dir():
        unfinished = installed.folder / "unfinished"
        bundle = trained_run("bert-minilm").folder / "bundle"
        script = str(HERE / "peers_bert.py")
        command = [installed.python, script, "convert", str(bundle), str(unfinished)]
        subprocess.run(command, check=True, env=quiet_environment())
        unfinished.rename(folder)
