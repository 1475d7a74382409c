"""Choose the settings of the extended rows: `… extended_trials.py DATASET MODEL [NAME=VALUE …]`.

A trial fine-tunes a bundled model, or the run `capsar-general`, on two thirds of a training set and
predicts the last third, three times, so that every training example is predicted once by a network
that was not trained on it; with `train.max_epochs=0` it predicts without fine-tuning.
`train.teacher="MODEL NAME=VALUE …"` names another trial, whose network of the same fold is the
teacher, so that no teacher has seen what its student is evaluated on. Sentences that MODEL was
trained on are not evaluated. The process cannot open a test set. Writes
`results/extended-trials.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import numpy as np

from capsar import load, train
from capsar.bundle import find_bundle
from capsar.config import DataConfig, run_config
from capsar.data.catalog import training_examples
from capsar.data.splits import decontaminate
from capsar.evaluation.evaluate import compute_predictions, labeled
from capsar.evaluation.metrics import compute_metrics
from capsar.training.dataset import read_splits
from capsar.training.initialize import fine_tune_settings
from evaluate import rounded
from guard import close_test_sets
from metrics.detection import Gold, evaluate_detection, gold_sentences
from pseudo_labels import HELD, row_of, write_rows
from run import (
    DATASETS,
    RESULTS,
    WORK,
    commit_of_code,
    describe_study,
    find_run,
    prepare_process,
    read_json,
    write_json,
)

RESULT = RESULTS / "extended-trials.json"
FOLDS = 3
SEEN = ("mams", "capsar-corpus")
"""What MODEL was trained on."""
GENERAL = "capsar-general"


def main(dataset: str, model: str, *changes: str) -> None:
    close_test_sets()
    prepare_process()
    commit = commit_of_code()
    trial = cross_validate(dataset, model, changes) | {"commit": commit}
    others = [
        one
        for one in read_json(RESULT).get("trials", [])
        if [one[name] for name in ("dataset", "model", "changes")] != [dataset, model, [*changes]]
    ]
    script = "studies/extended_trials.py DATASET MODEL [NAME=VALUE …]"
    about = describe_study("extended-trials", script, "torch", "numpy", "onnxruntime")
    about |= {"commit": "that of each trial", "trials": [*others, trial]}
    write_json(RESULT, rounded(about))


def cross_validate(dataset: str, model: str, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return the metrics of all folds' predictions together."""
    predictions, rankings, sentences = [], [], []
    seen = {example.text for name in SEEN for example in training_examples(name)}
    for fold in range(FOLDS):
        held_out = read_fold(dataset, fold).validation
        held_out = decontaminate(held_out, seen).kept
        analyzer = load(train_fold(dataset, model, changes, fold))
        predictions.append(compute_predictions(analyzer, held_out))
        gold = gold_sentences(held_out)
        sentences += gold
        rankings += analyzer.score_sentences([sentence.text for sentence in gold])
    truth, predicted = map(np.concatenate, zip(*predictions, strict=True))
    metrics = compute_metrics(truth, predicted)
    detection = evaluate_detection(sentences, rankings, Gold.ALL)
    return {
        "dataset": dataset,
        "model": model,
        "changes": [*changes],
        "num_examples": metrics.num_examples,
        "accuracy": metrics.accuracy,
        "macro_f1": metrics.macro_f1,
        "confusion": metrics.confusion,
        "detection": asdict(detection),
    }


def read_fold(dataset: str, fold: int) -> Any:  # noqa: ANN401
    """Return the examples of a fold to train on and to predict."""
    config = DataConfig(train=DATASETS[dataset], folds=FOLDS, exclude_hashes=str(HELD))
    return read_splits(config, fold)


def train_fold(dataset: str, model: str, changes: tuple[str, ...], fold: int) -> Path:
    """Return the bundle of a fold's network, which is trained if it is missing."""
    source = str(find_run(f"{GENERAL}-all-0").bundle) if model == GENERAL else model
    if "train.max_epochs=0" in changes:
        return find_bundle(source).folder
    facts = [dataset, find_bundle(source).fingerprint(), changes]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:10]
    folder = WORK / "extended-trials" / f"{dataset}-{model}-{key}-{fold}"
    if (folder / "bundle" / "manifest.json").is_file():
        return folder / "bundle"
    rows = folder.parent / f"{dataset}-{fold}.jsonl"
    write_rows(rows, map(row_of, labeled(read_fold(dataset, fold).train)))
    content = fine_tune_settings(source)
    content["data"] = {
        "train": str(rows), "validation_ratio": 0, "exhaustive": False,
        "exclude_hashes": str(HELD),
    }  # fmt: skip
    for name, value in map(read_change, changes):
        section, _, setting = name.partition(".")
        content[section][setting] = value
    teacher = content["train"].get("teacher")
    if teacher:
        other, *others = teacher.split()
        content["train"]["teacher"] = str(train_fold(dataset, other, tuple(others), fold))
    return train(run_config(content), folder).bundle


def read_change(text: str) -> tuple[str, object]:
    """Return the name and the value of a changed setting."""
    name, _, value = text.partition("=")
    return name, tomllib.loads(f"value = {value}")["value"]


if __name__ == "__main__":
    main(*sys.argv[1:])
