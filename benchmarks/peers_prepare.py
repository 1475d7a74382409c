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
from peers_systems import HERE, ready_systems, trained_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENCODER = "all-MiniLM-L6-v2"
NUM_STEPS = 500
"""Of contrastive learning, for each of SetFit's two models: what twelve core-minutes allow."""
BATCH = 16
SEED = 0
CONFLICT = "conflict"
TRAINED_FACTS = "trained.json"


def prepare(work: Path, names: Sequence[str]) -> dict[str, float]:
    """Make what is missing of some environments; return sizes, lines, and what training took.

    Args:
        work: Where everything is made.
        names: Of the environments; what is ready of others is told too.
    """
    for name in names:
        STEPS[name](work)
    metrics = _tell_training(work)
    for system in ready_systems(work):
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


def _prepare_capsar(work: Path) -> None:
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


def _prepare_setfit(work: Path) -> None:
    installed = Installed(SETFIT, work)
    installed.make()
    facts = installed.folder / TRAINED_FACTS
    if facts.is_file():
        return
    rows = installed.folder / "rows.json"
    rows.write_text(json.dumps(training_rows()), encoding="utf-8")
    settings = {
        "rows": rows, "facts": facts, "encoder": find_encoder(ENCODER), "steps": NUM_STEPS,
        "batch": BATCH, "seed": SEED, "without": CONFLICT,
    }  # fmt: skip
    named = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    script = [str(HERE / "peers_setfit.py"), "train"]
    folders = [str(installed.folder), str(fetch_spacy_model(work))]
    command = [installed.python, *script, *folders, *named]
    subprocess.run(command, check=True, env=quiet_environment())
    rows.unlink()


def _tell_training(work: Path) -> dict[str, float]:
    facts = Installed(SETFIT, work).folder / TRAINED_FACTS
    if not facts.is_file():
        return {}
    told: dict[str, float] = json.loads(facts.read_text(encoding="utf-8"))
    return {f"setfit_{name}": value for name, value in told.items()}


def _prepare_bert(work: Path) -> None:
    installed = Installed(BERT, work)
    installed.make()
    folder = installed.folder / "model"
    if not folder.is_dir():
        unfinished = installed.folder / "unfinished"
        bundle = trained_run("bert-minilm").folder / "bundle"
        script = str(HERE / "peers_bert.py")
        command = [installed.python, script, "convert", str(bundle), str(unfinished)]
        subprocess.run(command, check=True, env=quiet_environment())
        unfinished.rename(folder)


STEPS = {"capsar": _prepare_capsar, "bert": _prepare_bert, "setfit": _prepare_setfit}
"""How each environment is made."""
