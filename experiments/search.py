"""Search for better settings, on dev parts alone: `python experiments/search.py [--trials N]`.

One trial is one choice of settings for the Bi-GRU, cross-validated on the published training parts
of Laptop and of Restaurant: each sentence is answered by one of three networks, which did not learn
from it. Its value is the mean, over both, of accuracy and macro-F1. After Laptop, a trial that is
worse than the median of those before it goes no further. The study is `results/search.jsonl`, told
in short by `results/search.json`; another process can join, and a stopped one is run again. No test
part can be opened here.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from importlib.metadata import version
from statistics import mean
from typing import Any

import optuna
import torch
from optuna.storages.journal import JournalFileBackend

from capsar import train
from capsar.config import run_config
from closed import close_test_parts
from judge import rounded
from perform import commit_of_code, machine_class
from runs import DATASETS, EXPERIMENTS, WORK, write_json

STUDY = EXPERIMENTS / "results" / "search.jsonl"
SEARCHED = ("laptop", "restaurant")
FOLDS = 3
MAX_EPOCHS = 12


def suggest(trial: optuna.Trial) -> dict[str, dict[str, Any]]:
    """Return the settings of a trial."""
    pick, number = trial.suggest_categorical, trial.suggest_float
    rate = number("learning_rate", 3e-4, 3e-3, log=True)
    return {
        "model": {
            "input_dropout": number("input_dropout", 0.2, 0.7),
            "state_dropout": number("state_dropout", 0.0, 0.5),
            "train_embeddings": pick("train_embeddings", [True, False]),
            "kernel_width": pick("kernel_width", [1, 3, 5]),
            "activation": pick("activation", ["relu", "tanh", "linear"]),
            "squash_primary": pick("squash_primary", [False, True]),
            "proximity_scale": pick("proximity_scale", ["none", "one"]),
            "alpha": number("alpha", 1.0, 6.0),
            "reconstruction_weight": number("reconstruction_weight", 1e-3, 2e-1, log=True),
        },
        "train": {
            "learning_rate": rate,
            "batch_size": pick("batch_size", [16, 32, 64]),
            "average": pick("average", [0.0, 0.99, 0.997]),
            "class_balance": pick("class_balance", [0.0, 0.25, 0.5]),
            "weight_decay": pick("weight_decay", [0.0, 0.01, 0.1]),
            "clip_norm": pick("clip_norm", [0.0, 1.0]),
            "warmup_share": pick("warmup_share", [0.0, 0.05]),
            "max_epochs": MAX_EPOCHS,
            "patience": 4,
        },
    }


def value_of(settings: dict[str, dict[str, Any]], dataset: str, number: int) -> float:
    """Return the mean of cross-validated accuracy and macro-F1 of networks with some settings."""
    data = {
        "train": DATASETS[dataset],
        "vectors": "glove.840B.300d.subset",
        "without": str(EXPERIMENTS / "configs" / "held-sentences.json"),
        "folds": FOLDS,
    }
    folder = WORK / "search" / f"{number}-{dataset}"
    dev = train(run_config(settings | {"data": data}), folder).dev
    shutil.rmtree(folder)
    return (dev["dev_accuracy"] + dev["dev_macro_f1"]) / 2


def objective(trial: optuna.Trial) -> float:
    """Train on one set after the other."""
    trial.set_user_attr("commit", commit_of_code())
    settings = suggest(trial)
    values = []
    for step, dataset in enumerate(SEARCHED):
        values.append(value_of(settings, dataset, trial.number))
        trial.set_user_attr(dataset, round(values[-1], 4))
        trial.report(mean(values), step)
        if step == 0 and trial.should_prune():
            raise optuna.TrialPruned
    return mean(values)


def open_study() -> optuna.Study:
    """Return the study as far as it has come."""
    backend = JournalFileBackend(str(STUDY))
    return optuna.create_study(
        study_name="capsar",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(seed=None, multivariate=True, constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
        direction="maximize",
        load_if_exists=True,
    )


FAITHFUL: dict[str, Any] = {
    "learning_rate": 1e-3, "input_dropout": 0.5, "state_dropout": 0.0, "train_embeddings": True,
    "kernel_width": 3, "activation": "relu", "squash_primary": False, "proximity_scale": "none",
    "alpha": 3.0, "reconstruction_weight": 0.003, "batch_size": 64, "average": 0.0,
    "class_balance": 0.0, "weight_decay": 0.0, "clip_norm": 0.0, "warmup_share": 0.0,
}  # fmt: skip
"""The settings of the faithful row."""
SETTLED: dict[str, Any] = {
    "average": 0.99, "state_dropout": 0.2, "reconstruction_weight": 0.1, "warmup_share": 0.05,
}  # fmt: skip
"""What `capsar-best` changes of them, but for its epochs and batches without an aspect."""
FIRST: tuple[dict[str, Any], ...] = ({}, {"average": 0.99}, SETTLED)
"""Changes of the first trials; then settings are searched."""


def write_summary(study: optuna.Study) -> None:
    """Write what came of each trial, and what all of them took."""
    trials: list[dict[str, Any]] = [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "commit": trial.user_attrs["commit"],
            "given": "fixed_params" in trial.system_attrs,
            "value": trial.value if trial.state.name == "COMPLETE" else None,
            **{dataset: trial.user_attrs.get(dataset) for dataset in SEARCHED},
            "seconds": trial.duration.total_seconds() if trial.duration else None,
            "settings": trial.params,
        }
        for trial in study.get_trials(deepcopy=False)
        if trial.state.is_finished()
    ]
    document = {
        "name": "search",
        "command": "python experiments/search.py",
        "commit": "that of each trial",
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "optuna")},
        "machine": machine_class(),
        "seconds": sum(trial["seconds"] or 0 for trial in trials),
        "folds": FOLDS,
        "max_epochs": MAX_EPOCHS,
        "trials": trials,
    }
    write_json(STUDY.with_suffix(".json"), rounded(document))


def main() -> None:
    parser = argparse.ArgumentParser(description="Search for better settings on dev parts.")
    parser.add_argument("--trials", type=int, default=10)
    options = parser.parse_args()
    close_test_parts()
    torch.set_num_threads(1)
    study = open_study()
    if not study.get_trials(deepcopy=False):
        for change in FIRST:
            study.enqueue_trial(FAITHFUL | change)
    study.optimize(
        objective, n_trials=options.trials, callbacks=[lambda study, _: write_summary(study)]
    )


if __name__ == "__main__":
    main()
