"""Search hyperparameters by cross-validation: `python experiments/studies/search.py [--trials N]`.

One trial is one choice of settings for the Bi-GRU, cross-validated in three folds on the published
training sets of Laptop and of Restaurant. Its value is the mean, over both, of accuracy and
macro-F1. After Laptop, a trial that is worse than the median of those before it is pruned. The
study is `results/search.jsonl`, summarized by `results/search.json`; other processes can join, and
a stopped one can be started again. The process cannot open a test set.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from statistics import mean
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import optuna
from optuna.storages.journal import JournalFileBackend

from capsar import train
from capsar.config import run_config
from evaluate import rounded
from guard import close_test_sets
from run import (
    CONFIGS,
    DATASETS,
    RESULTS,
    WORK,
    commit_of_code,
    describe_study,
    prepare_process,
    write_json,
)

STUDY = RESULTS / "search.jsonl"
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
            "ema_decay": pick("ema_decay", [0.0, 0.99, 0.997]),
            "class_balance": pick("class_balance", [0.0, 0.25, 0.5]),
            "weight_decay": pick("weight_decay", [0.0, 0.01, 0.1]),
            "max_grad_norm": pick("max_grad_norm", [0.0, 1.0]),
            "warmup_ratio": pick("warmup_ratio", [0.0, 0.05]),
            "max_epochs": MAX_EPOCHS,
            "patience": 4,
        },
    }


def value_of(settings: dict[str, dict[str, Any]], dataset: str, number: int) -> float:
    """Return the mean of cross-validated accuracy and macro-F1."""
    data = {
        "train": DATASETS[dataset],
        "vectors": "glove.840B.300d.subset",
        "exclude_hashes": str(CONFIGS / "held-sentences.json"),
        "folds": FOLDS,
    }
    folder = WORK / "search" / f"{number}-{dataset}"
    validation = train(run_config(settings | {"data": data}), folder).validation
    shutil.rmtree(folder)
    value: float = (validation["validation_accuracy"] + validation["validation_macro_f1"]) / 2
    return value


def objective(trial: optuna.Trial) -> float:
    """Cross-validate on one set after the other."""
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
    """Open the study or create it."""
    backend = JournalFileBackend(str(STUDY))
    return optuna.create_study(
        study_name="capsar",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(seed=None, multivariate=True, constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
        direction="maximize",
        load_if_exists=True,
    )


PAPER_SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "input_dropout": 0.5, "state_dropout": 0.0, "train_embeddings": True,
    "kernel_width": 3, "activation": "relu", "squash_primary": False, "proximity_scale": "none",
    "alpha": 3.0, "reconstruction_weight": 0.003, "batch_size": 64, "ema_decay": 0.0,
    "class_balance": 0.0, "weight_decay": 0.0, "max_grad_norm": 0.0, "warmup_ratio": 0.0,
}  # fmt: skip
"""The settings of the row `capsar`."""
BEST_SETTINGS: dict[str, Any] = {
    "ema_decay": 0.99, "state_dropout": 0.2, "reconstruction_weight": 0.1, "warmup_ratio": 0.05,
}  # fmt: skip
"""What `capsar-best` changes of them, except for epochs and aspect dropout."""
GIVEN: tuple[dict[str, Any], ...] = ({}, {"ema_decay": 0.99}, BEST_SETTINGS)
"""Changes of the first trials; the following ones are searched."""


def write_summary(study: optuna.Study) -> None:
    """Write the result of each trial and the total time."""
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
    about = describe_study("search", "studies/search.py", "torch", "numpy", "optuna")
    document = about | {
        "commit": "that of each trial",
        "seconds": sum(trial["seconds"] or 0 for trial in trials),
        "folds": FOLDS,
        "max_epochs": MAX_EPOCHS,
        "trials": trials,
    }
    write_json(STUDY.with_suffix(".json"), rounded(document))


def main() -> None:
    parser = argparse.ArgumentParser(description="Search hyperparameters by cross-validation.")
    parser.add_argument("--trials", type=int, default=10)
    options = parser.parse_args()
    close_test_sets()
    prepare_process()
    study = open_study()
    if not study.get_trials(deepcopy=False):
        for change in GIVEN:
            study.enqueue_trial(PAPER_SETTINGS | change)
    study.optimize(
        objective, n_trials=options.trials, callbacks=[lambda study, _: write_summary(study)]
    )


if __name__ == "__main__":
    main()
