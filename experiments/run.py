"""The runs behind every table: plan them from `configs/`, train one, evaluate it once.

A run is one row of a table, one dataset and one seed. Its folder below `runs/` holds checkpoints
and the bundle; its metrics are one JSON file below `experiments/results/runs/`.

`python experiments/run.py NAME` trains and evaluates one run, `… train NAME` only trains it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import run_config
from capsar.data.catalog import find_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.config import RunConfig
    from capsar.training.trainer import TrainResult

EXPERIMENTS = Path(__file__).parent
ROOT = EXPERIMENTS.parent
CONFIGS = EXPERIMENTS / "configs"
RESULTS = EXPERIMENTS / "results"
RUN_FILES = RESULTS / "runs"
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
    "bert-minilm-mean",
    "bert-minilm-mean-others",
    "capsar-bert-minilm",
    "capsar-bert-minilm-others",
    "capsar-bert-minilm-pair",
    "bert-mpnet",
    "capsar-bert-mpnet",
)
SPANS = ("capsar-spans", "capsar-spans-folds", "capsar-bert-spans")
FOLDS = ("capsar-folds",)
GENERAL = ("capsar-general",)
"""Trained on other data than the datasets, to be fine-tuned on each of them."""
EXTENDED = ("capsar-bert-extended", "capsar-extended")
"""Fine-tuned from networks that were trained on reviews of many domains; the first is the teacher
of the second."""
EXTENDED_ABLATIONS = ("capsar-extended-wo-teacher", "capsar-extended-wo-general")
SWEEPS = ("sweep-routing", "sweep-lambda", "sweep-train-ratio", "sweep-vector-ratio")
ALL = MAIN + SWEEPS + BERT + FOLDS + SPANS + EXTENDED + EXTENDED_ABLATIONS
_PACKAGES = ("torch", "onnxruntime", "numpy", "accelerate")


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
    """Section, name and value of each setting of its TOML file."""
    point: tuple[str, float] | None = None
    """The setting that a sweep varies, and its value here."""
    vector_ratio: float = 1.0
    teachers: tuple[str, ...] = ()
    """The runs whose bundles are its teachers, by name."""
    initial: str = ""
    """The run whose bundle is fine-tuned, by name."""

    @property
    def name(self) -> str:
        """The name of its folder and of its JSON file."""
        point = f"-{self.point[1]:g}" if self.point else ""
        return f"{self.source}{point}-{self.dataset}-{self.seed}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs whose bundles it is trained with, by name."""
        return (*self.teachers, self.initial) if self.initial else self.teachers

    @property
    def config_hash(self) -> str:
        """A hash of the configuration without the seed."""
        facts: list[Any] = [self.dataset, self.vector_ratio, sorted(self.settings)]
        facts += [[name, find_run(name).config_hash] for name in self.needs]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        """The folder in which it is trained."""
        return WORK / f"{self.name}-{self.config_hash}"

    @property
    def bundle(self) -> Path:
        """The bundle that training writes."""
        return self.folder / "bundle"

    @property
    def result(self) -> Path:
        """The JSON file of its metrics."""
        return RUN_FILES / f"{self.name}.json"

    @property
    def pretrained(self) -> str:
        """The name of its pre-trained encoder, or an empty string."""
        return next((str(value) for _, name, value in self.settings if name == "encoder"), "")

    @property
    def encoder(self) -> str:
        """The name of its encoder."""
        return self.pretrained or "bigru"

    @property
    def can_run(self) -> bool:
        """Whether its pre-trained encoder is on disk; nothing is downloaded for a table."""
        from capsar.model.encoders import find_encoder

        return not self.pretrained or Path(find_encoder(self.pretrained)).is_dir()

    @property
    def vectors(self) -> str:
        """The name of its word vectors."""
        if self.pretrained:
            return f"{self.pretrained} input subwords"
        if self.initial:
            return find_run(self.initial).vectors
        if not self.vector_ratio:
            return "random"
        (name,) = (value for _, name, value in self.settings if name == "vectors")
        return str(name) if self.vector_ratio == 1 else f"{name}-{self.vector_ratio:g}"

    def config(self) -> RunConfig:
        """Return the configuration for training."""
        content = self._content()
        name = content["data"].get("vectors", "")
        if 0 < self.vector_ratio < 1 or "+" in name:
            content["data"]["vectors"] = str(find_vectors(name, self.vector_ratio))
        if self.teachers:
            content["train"]["teacher"] = [str(find_run(name).bundle) for name in self.teachers]
        if self.initial:
            content["train"]["init_from"] = str(find_run(self.initial).bundle)
        return run_config(content)

    def shown_config(self) -> dict[str, Any]:
        """Return the configuration for JSON: vectors and teachers by name instead of by path."""
        content = self._content()
        if 0 < self.vector_ratio < 1:
            content["data"]["vectors"] = self.vectors
        if self.teachers:
            content["train"]["teacher"] = list(self.teachers)
        if self.initial:
            content["train"]["init_from"] = self.initial
        shown: dict[str, Any] = json.loads(json.dumps(run_config(content).as_dict()))
        return shown

    def _content(self) -> dict[str, dict[str, Any]]:
        content: dict[str, dict[str, Any]] = {"data": {}, "model": {}, "train": {}}
        for section, name, value in self.settings:
            content[section][name] = value
        content["data"].setdefault("train", DATASETS.get(self.dataset))
        content["train"]["seed"] = self.seed
        if not self.vector_ratio:
            content["data"] |= {"vectors": "", "word_dim": 300}
        return content

    def read(self) -> dict[str, Any] | None:
        """Return its metrics, unless they are missing or of another configuration."""
        if not self.result.is_file():
            return None
        content: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        return content if content["config_hash"] == self.config_hash else None


def planned(sources: tuple[str, ...] = ALL) -> list[Run]:
    """Return every run of some TOML files, the first seed of each file first."""
    return [run for source in sources for run in _runs(source)]


def find_run(name: str) -> Run:
    """Return a planned run by its name."""
    found = next((run for run in planned(ALL + GENERAL) if run.name == name), None)
    if found is None:
        raise SystemExit(f"There is no run {name!r}; a run is SOURCE[-POINT]-DATASET-SEED")
    return found


def finished(sources: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Return the run file of every planned run that has one, in the order of the plan."""
    return [content for run in planned(sources) if (content := run.read()) is not None]


def trained_as(run: Run) -> Run:
    """Return the run of a table with the same configuration as a sweep's point, or the run."""
    same = (other for other in planned(MAIN) if other.shown_config() == run.shown_config())
    return next(same, run)


def _runs(source: str) -> Iterator[Run]:
    content = _read_config(source)
    sweep = content.get("sweep")
    for seed in content["seeds"]:
        for dataset in content["datasets"]:
            own = content.get(dataset, {})
            if seed not in own.get("seeds", content["seeds"]):
                continue
            settings = tuple(_settings(content, own))
            facts = (source, content["row"], content["protocol"], dataset, seed)
            if sweep is None:
                teachers = tuple(
                    run.name
                    for teacher in own.get("teachers", content.get("teachers", ()))
                    for run in _runs(teacher)
                    if run.dataset == dataset
                )
                initial = f"{content['initial']}-all-0" if content.get("initial") else ""
                yield Run(*facts, settings, teachers=teachers, initial=initial)
                continue
            for value in sweep["values"]:
                section, _, name = sweep["setting"].partition(".")
                point = (sweep["setting"], value)
                if name:
                    yield Run(*facts, (*settings, (section, name, value)), point)
                else:
                    yield Run(*facts, settings, point, value)


def _read_config(source: str) -> dict[str, Any]:
    """Read a TOML file and merge it into the one that its `like` names."""
    content: dict[str, Any] = tomllib.loads(
        (CONFIGS / f"{source}.toml").read_text(encoding="utf-8")
    )
    return _merge(_read_config(content.pop("like")), content) if "like" in content else content


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return base | {
        name: _merge(base.get(name, {}), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }


def _settings(content: dict[str, Any], own: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the settings for all datasets, overridden by those of one dataset."""
    for section in ("data", "model", "train"):
        for name, value in (content.get(section, {}) | own.get(section, {})).items():
            yield section, name, tuple(value) if isinstance(value, list) else value


def find_vectors(name: str, ratio: float = 1.0) -> Path:
    """Return a file of word vectors, or write that of a random share of the words of some files.

    Args:
        name: The name of a file in the catalog, or of several, joined by "+".
        ratio: The share of words, which are chosen by a hash of the word.
    """
    paths = [find_file(part, "vectors") for part in name.split("+")]
    if len(paths) == ratio == 1:
        return paths[0]
    path = WORK / "vectors" / (f"{name}-{ratio:g}.txt" if ratio < 1 else f"{name}.txt")
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".tmp")
        with scratch.open("wb") as kept:
            for source in paths:
                with source.open("rb") as lines:
                    kept.writelines(line for line in lines if _is_kept(line, ratio))
        scratch.replace(path)
    return path


def _is_kept(line: bytes, ratio: float) -> bool:
    digest = hashlib.sha256(line.split(b" ", 1)[0]).digest()
    return int.from_bytes(digest[:4], "big") < ratio * 2**32


def do_run(run: Run) -> None:
    """Train and evaluate a run as far as it is missing; wait if another process trains it."""
    from evaluate import evaluate_bundle

    prepare_process()
    folder = trained_as(run).folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if run.read() is not None:
            return
        if run.source in EXTENDED + EXTENDED_ABLATIONS:
            # Training happens in a process that cannot open a test set; `_train` then only reads
            # the result.
            subprocess.run([sys.executable, str(Path(__file__)), "train", run.name], check=True)
            result = _train(run, folder, rewrite_bundle=False)
        else:
            result = _train(run, folder)
        write_json(run.result, _describe(run, result) | evaluate_bundle(run, result.bundle))


def train_only(run: Run) -> None:
    """Train a run in a process that cannot open a test set, and do not evaluate it."""
    from guard import close_test_sets

    close_test_sets()
    prepare_process()
    _train(run, run.folder)


def prepare_process() -> None:
    """Use one thread, and the root as working directory: configurations name paths below it."""
    import torch

    torch.set_num_threads(1)
    os.chdir(ROOT)


def _train(run: Run, folder: Path, *, rewrite_bundle: bool = True) -> TrainResult:
    """Train or resume a run; with `rewrite_bundle`, export the bundle with the current code."""
    from capsar import train

    record_commit(folder)
    if rewrite_bundle:
        shutil.rmtree(folder / "bundle", ignore_errors=True)
    return train(run.config(), folder)


def _describe(run: Run, result: TrainResult) -> dict[str, Any]:
    """Return what is needed to interpret and repeat the metrics."""
    from evaluate import rounded

    packages = _PACKAGES + ("transformers",) * bool(run.pretrained)
    has_validation = "validation_accuracy" in result.validation
    return {
        "name": run.name,
        "command": f"python experiments/run.py {run.name}",
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
        "evaluated_at": commit_of_code(),
        "versions": versions_of(*packages),
        "machine": machine_class(),
        "seconds": round(result.seconds, 1),
        "best_epoch": result.best_epoch,
        "validation": rounded(result.validation) if has_validation else None,
        "history": [rounded(entry) for entry in result.history],
    }


def describe_study(name: str, script: str, *packages: str) -> dict[str, Any]:
    """Return the head of a result file: command, commit, versions and machine."""
    return {
        "name": name,
        "command": f"python experiments/{script}",
        "commit": commit_of_code(),
        "versions": versions_of(*packages),
        "machine": machine_class(),
    }


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def machine_class() -> str:
    """Return the kind of machine, without anything that identifies it."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; one thread"


def commit_of_code() -> str:
    """Return the commit, with `-dirty` if the code that computes metrics differs from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    paths = ("src", "experiments/*.py", "experiments/*/*.py", "experiments/configs")
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", *paths], capture_output=True, text=True, check=True
    ).stdout
    return commit + ("-dirty" if changed else "")


def record_commit(folder: Path) -> None:
    """Write the commit at which a training started into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "commit").is_file():
        (folder / "commit").write_text(commit_of_code() + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dictionary if it is missing."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_text(path: Path, content: str) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    scratch.write_text(content, encoding="utf-8")
    scratch.replace(path)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["train", name]:
            train_only(find_run(name))
        case [name]:
            do_run(find_run(name))
        case _:
            raise SystemExit(__doc__)
