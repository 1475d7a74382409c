"""The runs behind every table: which there are, and where the files of each are.

A run is one row of a table, one dataset and one seed. Its folder below `runs/` holds checkpoints
and the bundle; its figures are one JSON file below `experiments/results/runs/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import run_config
from capsar.data.catalog import find_file
from capsar.model.transformer import find_encoder

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
BERT = (
    "bert-minilm",
    "bert-minilm-others",
    "capsar-bert-minilm",
    "capsar-bert-minilm-others",
    "capsar-bert-minilm-pair",
    "bert-mpnet",
    "capsar-bert-mpnet",
)
SPANS = ("capsar-spans", "capsar-spans-folds", "capsar-bert-spans")
FOLDS = ("capsar-folds",)
TEACHERS = ("capsar-bert-best",)
BEST = (*TEACHERS, "capsar-best")
BEST_PARTS = (
    "capsar-best-wo-told",
    "capsar-best-wo-teacher",
    "capsar-best-wo-imitation",
    "capsar-best-wo-both",
    "capsar-best-wo-labelled",
    "capsar-best-wo-average",
    "capsar-best-wo-settings",
)
SWEEPS = ("sweep-routing", "sweep-lambda", "sweep-train-share", "sweep-vector-share")
ALL = MAIN + SWEEPS + BERT + FOLDS + SPANS + BEST + BEST_PARTS


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
    taught_by: tuple[str, ...] = ()
    """The runs whose bundles teach it, by name."""

    @property
    def name(self) -> str:
        """The name of its folder and of its JSON file."""
        point = f"-{self.point[1]:g}" if self.point else ""
        return f"{self.source}{point}-{self.dataset}-{self.seed}"

    @property
    def config_hash(self) -> str:
        """What tells one configuration from another, whatever the seed."""
        facts: list[Any] = [self.dataset, self.vector_share, sorted(self.settings)]
        facts += [self.taught_by] if self.taught_by else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """Where it is trained."""
        return WORK / f"{self.name}-{self.config_hash}"

    @property
    def result(self) -> Path:
        """Where its figures are."""
        return RESULTS / f"{self.name}.json"

    @property
    def pretrained(self) -> str:
        """The name of its pre-trained encoder, if it has one."""
        return next((str(value) for _, name, value in self.settings if name == "encoder"), "")

    @property
    def encoder(self) -> str:
        """The name of its encoder."""
        return self.pretrained or "bigru"

    @property
    def can_run(self) -> bool:
        """Whether its pre-trained encoder is at hand; nothing is fetched for a table."""
        return not self.pretrained or Path(find_encoder(self.pretrained)).is_dir()

    @property
    def vectors(self) -> str:
        """The name of its word vectors."""
        if self.pretrained:
            return f"{self.pretrained} input pieces"
        if not self.vector_share:
            return "random"
        (name,) = (value for _, name, value in self.settings if name == "vectors")
        return str(name) if self.vector_share == 1 else f"{name}-{self.vector_share:g}"

    def config(self) -> RunConfig:
        """Return the configuration it is trained with."""
        content = self._content()
        if 0 < self.vector_share < 1:
            thinned = thin_vectors(content["data"]["vectors"], self.vector_share)
            content["data"]["vectors"] = str(thinned)
        if self.taught_by:
            folders = {run.name: run.folder for run in planned(TEACHERS)}
            content["train"]["teacher"] = [str(folders[n] / "bundle") for n in self.taught_by]
        return run_config(content)

    def shown_config(self) -> dict[str, Any]:
        """Return the same as JSON holds it, vectors by name: no file is needed, no path told."""
        content = self._content()
        if 0 < self.vector_share < 1:
            content["data"]["vectors"] = self.vectors
        if self.taught_by:
            content["train"]["teacher"] = list(self.taught_by)
        shown: dict[str, Any] = json.loads(json.dumps(run_config(content).as_dict()))
        return shown

    def _content(self) -> dict[str, dict[str, Any]]:
        content: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "train": {}}
        for section, name, value in self.settings:
            content[section][name] = value
        content["data"]["train"] = DATASETS[self.dataset]
        content["train"]["seed"] = self.seed
        if not self.vector_share:
            content["data"] |= {"vectors": "", "word_dim": 300}
        return content

    def read(self) -> dict[str, Any] | None:
        """Return its figures, unless they are missing or of another configuration."""
        if not self.result.is_file():
            return None
        content: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return content if content["config_hash"] == self.config_hash else None


def finished(sources: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Return the figures of every planned run that has any, in the order of the plan."""
    return [content for run in planned(sources) if (content := run.read()) is not None]


def write_json(path: Path, content: object) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    scratch.write_text(content, encoding="utf-8")
    scratch.replace(path)


def planned(sources: tuple[str, ...] = ALL) -> list[Run]:
    """Return every run of some TOML files, the first seed of everything first."""
    return [run for source in sources for run in _runs(source)]


def trained_as(run: Run) -> Run:
    """Return the run of a table that is the same training, for a point of a sweep that is one."""
    same = (other for other in planned(MAIN) if other.shown_config() == run.shown_config())
    return next(same, run)


def _runs(source: str) -> Iterator[Run]:
    content = _read_config(source)
    sweep = content.get("sweep")
    for seed in content["seeds"]:
        for dataset in content["datasets"]:
            own = content.get(dataset, {})
            settings = _settings(content, own)
            facts = (source, content["row"], content["protocol"], dataset, seed)
            if sweep is None:
                taught_by = [
                    run.name
                    for teacher in own.get("teachers", content.get("teachers", ()))
                    for run in _runs(teacher)
                    if run.dataset == dataset
                ]
                yield Run(*facts, tuple(settings), taught_by=tuple(taught_by))
                continue
            for value in sweep["values"]:
                section, _, name = sweep["setting"].partition(".")
                point = (sweep["setting"], value)
                if name:
                    yield Run(*facts, (*settings, (section, name, value)), point)
                else:
                    yield Run(*facts, tuple(settings), point, value)


def _read_config(source: str) -> dict[str, Any]:
    """Read a TOML file, upon the one that it is `like`."""
    content: dict[str, Any] = tomllib.loads(
        (CONFIGS / f"{source}.toml").read_text(encoding="utf-8")
    )
    return _upon(_read_config(content.pop("like")), content) if "like" in content else content


def _upon(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    return below | {
        name: _upon(below.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in above.items()
    }


def _settings(content: dict[str, Any], own: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """What a TOML file sets for all datasets, and what its section of one sets besides."""
    return [
        (section, name, tuple(value) if isinstance(value, list) else value)
        for section in ("data", "model", "train")
        for name, value in (content.get(section, {}) | own.get(section, {})).items()
    ]


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
