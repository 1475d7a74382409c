"""The runs behind every table: which there are, training one of them, and where its files are.

A run is one row of a table, one dataset and one seed. Its folder below `runs/` holds checkpoints
and the bundle; its figures are one JSON file below `experiments/results/runs/`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import run_config
from capsar.data.catalog import find_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.config import RunConfig

EXPERIMENTS = Path(__file__).parent
ROOT = EXPERIMENTS.parent
CONFIGS = EXPERIMENTS / "configs"
RESULTS = EXPERIMENTS / "results" / "runs"
WORK = ROOT / "runs"
DATASETS = {
    "restaurant": "semeval14-restaurants",
    "laptop": "semeval14-laptops",
    "twitter": "twitter",
}
MAIN = ("capsar", "capsar-wo-r", "capsar-wo-h", "capsar-fixed")
SWEEPS = ("sweep-routing", "sweep-lambda", "sweep-train-share", "sweep-vector-share")


@dataclass(frozen=True, slots=True)
class Run:
    """One row of a table (or point of a figure), one dataset, one seed."""

    source: str
    """The name of its TOML file."""
    row: str
    protocol: str
    dataset: str
    seed: int
    settings: tuple[tuple[str, str, Any], ...]
    """Section, name and value of whatever its TOML file sets."""
    point: tuple[str, float] | None = None
    """The setting that a sweep varies, and its value here."""
    vector_share: float = 1.0

    @property
    def name(self) -> str:
        """The name of its folder and of its JSON file."""
        point = f"-{self.point[1]:g}" if self.point else ""
        return f"{self.source}{point}-{self.dataset}-{self.seed}"

    @property
    def config_hash(self) -> str:
        """What tells one configuration from another, whatever the seed."""
        facts = [self.dataset, self.vector_share, sorted(self.settings)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """Where it is trained."""
        return WORK / f"{self.name}-{self.config_hash}"

    @property
    def result(self) -> Path:
        """Where its figures are."""
        return RESULTS / f"{self.name}.json"

    def config(self) -> RunConfig:
        """Return the configuration it is trained with."""
        content: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "train": {}}
        for section, name, value in self.settings:
            content[section][name] = value
        content["data"]["train"] = DATASETS[self.dataset]
        content["train"]["seed"] = self.seed
        if not self.vector_share:
            content["data"] |= {"vectors": "", "word_dim": 300}
        elif self.vector_share < 1:
            thinned = thin_vectors(content["data"]["vectors"], self.vector_share)
            content["data"]["vectors"] = str(thinned)
        return run_config(content)

    def read(self) -> dict[str, Any] | None:
        """Return its figures, unless they are missing or of another configuration."""
        if not self.result.is_file():
            return None
        content: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return content if content["config_hash"] == self.config_hash else None


def planned(sources: tuple[str, ...] = MAIN + SWEEPS) -> list[Run]:
    """Return every run of some TOML files, the first seed of everything first."""
    return [run for source in sources for run in _runs(source)]


def _runs(source: str) -> Iterator[Run]:
    content = tomllib.loads((CONFIGS / f"{source}.toml").read_text(encoding="utf-8"))
    settings = [
        (section, name, value)
        for section in ("data", "model", "train")
        for name, value in content.get(section, {}).items()
    ]
    sweep = content.get("sweep")
    for seed in content["seeds"]:
        for dataset in content["datasets"]:
            facts = (source, content["row"], content["protocol"], dataset, seed)
            if sweep is None:
                yield Run(*facts, tuple(settings))
                continue
            for value in sweep["values"]:
                section, _, name = sweep["setting"].partition(".")
                point = (sweep["setting"], value)
                if name:
                    yield Run(*facts, (*settings, (section, name, value)), point)
                else:
                    yield Run(*facts, tuple(settings), point, value)


def thin_vectors(name: str, share: float) -> Path:
    """Write the vectors of a share of the words, chosen by their spelling alone."""
    path = WORK / "vectors" / f"{name}-{share:g}.txt"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".tmp")
        with find_file(name, "vectors").open("rb") as lines, scratch.open("wb") as kept:
            for line in lines:
                digest = hashlib.sha256(line.split(b" ", 1)[0]).digest()
                if int.from_bytes(digest[:4], "big") < share * 2**32:
                    kept.write(line)
        scratch.replace(path)
    return path
