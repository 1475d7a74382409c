"""Settings of `capsar-best`, tried: `python experiments/best_trials.py DATASET [NAME=VALUE …]`.

One trial trains the first seed of the row with some settings changed (`model.alpha=5.0`), on all
that it is told but for 1,200 sentences. It is judged by how often it then answers as its teacher
does about those, which is less noisy than a dev part of a few hundred examples; and on that dev
part. No test part can be opened here. Figures go to `results/best-trials.json`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tomllib
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, Any

import torch

from capsar import load, train
from capsar.config import list_sources, run_config
from capsar.data.readers import read_examples
from capsar.training.prepare import prepare_data
from capsar.training.teaching import ask
from closed import close_test_parts
from judge import detection_on_dev, rounded
from perform import commit_of_code, machine_class
from runs import EXPERIMENTS, ROOT, WORK, planned, write_json

if TYPE_CHECKING:
    from pathlib import Path

RESULT = EXPERIMENTS / "results" / "best-trials.json"
KEPT_BACK = 1200


def main(dataset: str, *changes: str) -> None:
    close_test_parts()
    torch.set_num_threads(1)
    os.chdir(ROOT)
    commit = commit_of_code()
    trial = _try(dataset, dict(map(_read_change, changes)))
    trials = json.loads(RESULT.read_text())["trials"] if RESULT.is_file() else []
    document = {
        "name": "best-trials",
        "command": "python experiments/best_trials.py DATASET [NAME=VALUE …]",
        "commit": "that of each trial",
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "onnxruntime")},
        "machine": machine_class(),
        "trials": [*trials, trial | {"commit": commit}],
    }
    write_json(RESULT, rounded(document))


def _read_change(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    return name, tomllib.loads(f"value = {value}")["value"]


def _try(dataset: str, changes: dict[str, object]) -> dict[str, Any]:
    run = next(r for r in planned(("capsar-best",)) if (r.dataset, r.seed) == (dataset, 0))
    content = json.loads(json.dumps(run.config().as_dict()))
    for name, value in changes.items():
        section, _, setting = name.partition(".")
        content[section][setting] = value
    folder = WORK / "best-trial" / f"{dataset}-{os.getpid()}"
    told = WORK / "told" / f"{dataset}.jsonl"
    rest, kept_back = _part(told, folder)
    sources = content["data"]["polarity_only"]
    content["data"]["polarity_only"] = [str(rest) if told.name in s else s for s in sources]
    config = run_config(content)
    result = train(config, folder / "run")
    model = load(result.bundle)
    asked = list(read_examples(kept_back))
    (teacher,) = list_sources(config.train.teacher)
    theirs, own = ask(teacher, asked), model.predict_lengths(asked)
    detection = detection_on_dev(model, prepare_data(config.data, config.model))
    shutil.rmtree(folder)
    return {
        "dataset": dataset,
        "changes": changes,
        "best_epoch": result.best_epoch,
        "asked": len(asked),
        "agreement": float((own.argmax(1) == theirs.argmax(1)).mean()),
        "distance": float(((own - theirs) ** 2).sum(1).mean()),
        **{name: result.dev[name] for name in ("dev_accuracy", "dev_macro_f1")},
        **detection,
    }


def _part(told: Path, folder: Path) -> tuple[Path, Path]:
    """Write the rows of most sentences to one file, those of some to another."""
    rows = [(json.loads(line)["text"], line) for line in told.read_text("utf-8").splitlines()]
    texts = sorted({text for text, _ in rows})
    Random(0).shuffle(texts)
    back = set(texts[:KEPT_BACK])
    folder.mkdir(parents=True)
    paths = (folder / "rest.jsonl", folder / "kept-back.jsonl")
    for path, is_back in zip(paths, (False, True), strict=True):
        kept = (line for text, line in rows if (text in back) == is_back)
        path.write_text("\n".join(kept) + "\n", "utf-8")
    return paths


if __name__ == "__main__":
    main(*sys.argv[1:])
