"""Rates of the pre-trained encoders, tried on dev parts alone: `python experiments/bert_trials.py`.

Each trial trains on four fifths of the Restaurant training part and is judged on the last fifth.
No test file is opened. Trials that the result file holds already are not done again.
"""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import torch

from capsar import train
from perform import commit_of_code, machine_class
from runs import EXPERIMENTS, WORK, Run, planned, write_json

RESULT = EXPERIMENTS / "results" / "bert-dev-trials.json"
SEEDS = (0, 1)
DEV_SHARE = 0.2
MAX_EPOCHS = 6
RATES = (5e-5, 1e-4, 2e-4)


def main() -> None:
    """Do what is missing, one trial after the other."""
    torch.set_num_threads(1)
    done: dict[str, Any] = {}
    if RESULT.is_file():
        done = {trial["name"]: trial for trial in json.loads(RESULT.read_text())["trials"]}
    for rate in RATES:
        for seed in SEEDS:
            for run in planned(("capsar-bert-minilm", "bert-minilm")):
                if run.seed != seed:
                    continue
                name = f"{run.row}-{rate:g}-{seed}"
                if name not in done:
                    done[name] = _try(run, name, rate)
                    _write(done)


def _try(run: Run, name: str, rate: float) -> dict[str, Any]:
    config = run.config()
    config = replace(
        config,
        data=replace(config.data, dev_share=DEV_SHARE, dev_seed=run.seed),
        train=replace(
            config.train,
            max_epochs=MAX_EPOCHS,
            patience=MAX_EPOCHS,
            encoder_learning_rate=rate,
            mixed_precision="bf16",
        ),
    )
    result = train(config, WORK / f"trial-{name}")
    return {
        "name": name,
        "row": run.row,
        "encoder_learning_rate": rate,
        "seed": run.seed,
        "best_epoch": result.best_epoch,
        "dev_accuracy": round(result.dev["dev_accuracy"], 4),
        "dev_macro_f1": round(result.dev["dev_macro_f1"], 4),
        "seconds": round(result.seconds, 1),
        "commit": commit_of_code(),
    }


def _write(done: dict[str, Any]) -> None:
    write_json(
        RESULT,
        {
            "command": "python experiments/bert_trials.py",
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("torch", "transformers")},
            "machine": machine_class(),
            "trials": [done[name] for name in sorted(done)],
        },
    )


if __name__ == "__main__":
    main()
