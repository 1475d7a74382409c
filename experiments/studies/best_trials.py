"""Try settings of `capsar-best`: `… studies/best_trials.py DATASET [NAME=VALUE …]`.

One trial trains the first seed of the row with some settings changed (`model.alpha=5.0`), on all
pseudo-labels except those of 1,200 sentences. It measures how often the student agrees with its
teacher on these, which is less noisy than a validation set of a few hundred examples, and the
metrics on that validation set. The process cannot open a test set. Writes
`results/best-trials.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load, train
from capsar.config import list_sources, run_config
from capsar.data.readers import read_examples
from capsar.training.dataset import prepare_data
from capsar.training.teachers import predict_teacher
from evaluate import rounded, validation_detection
from guard import close_test_sets
from pseudo_labels import labels_path
from run import (
    RESULTS,
    WORK,
    commit_of_code,
    describe_study,
    planned,
    prepare_process,
    read_json,
    write_json,
)

RESULT = RESULTS / "best-trials.json"
HELD_OUT = 1200


def main(dataset: str, *changes: str) -> None:
    close_test_sets()
    prepare_process()
    commit = commit_of_code()
    trial = _try(dataset, dict(map(_read_change, changes)))
    trials = read_json(RESULT).get("trials", [])
    script = "studies/best_trials.py DATASET [NAME=VALUE …]"
    about = describe_study("best-trials", script, "torch", "numpy", "onnxruntime")
    about |= {"commit": "that of each trial", "trials": [*trials, trial | {"commit": commit}]}
    write_json(RESULT, rounded(about))


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
    labels = labels_path(dataset)
    rest, held_out = _split(labels, folder)
    sources = content["data"]["partially_annotated"]
    content["data"]["partially_annotated"] = [
        str(rest) if labels.name in source else source for source in sources
    ]
    config = run_config(content)
    result = train(config, folder / "run")
    model = load(result.bundle)
    examples = list(read_examples(held_out))
    (teacher,) = list_sources(config.train.teacher)
    theirs, own = predict_teacher(teacher, examples), model.predict_lengths(examples)
    detection = validation_detection(model, prepare_data(config.data, config.model))
    shutil.rmtree(folder)
    metrics = ("validation_accuracy", "validation_macro_f1")
    return {
        "dataset": dataset,
        "changes": changes,
        "best_epoch": result.best_epoch,
        "num_queried": len(examples),
        "agreement": float((own.argmax(1) == theirs.argmax(1)).mean()),
        "distance": float(((own - theirs) ** 2).sum(1).mean()),
        **{name: result.validation[name] for name in metrics},
        **detection,
    }


def _split(labels: Path, folder: Path) -> tuple[Path, Path]:
    """Write the rows of most sentences to one file, and those of the held-out ones to another."""
    rows = [(json.loads(line)["text"], line) for line in labels.read_text("utf-8").splitlines()]
    texts = sorted({text for text, _ in rows})
    Random(0).shuffle(texts)
    chosen = set(texts[:HELD_OUT])
    folder.mkdir(parents=True)
    paths = (folder / "rest.jsonl", folder / "held-out.jsonl")
    for path, is_held_out in zip(paths, (False, True), strict=True):
        kept = (line for text, line in rows if (text in chosen) == is_held_out)
        path.write_text("\n".join(kept) + "\n", "utf-8")
    return paths


if __name__ == "__main__":
    main(*sys.argv[1:])
