"""CAPSAR on SemEval-2014 Restaurants, two seeds: the first real run of the learning side.

`CAPSAR_DATA=… python experiments/core_restaurants.py` trains what is missing under `runs/` (a run
that was stopped goes on), judges each bundle once on the Gold test part, and writes
`experiments/results/core-restaurants.json`. The epoch is chosen on a dev part cut from the training
data; nothing here chooses anything on the test part.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from capsar import evaluate, train
from capsar.config import read_config, run_config
from capsar.data.catalog import test_examples
from capsar.training.predictor import NetworkPredictor
from capsar.training.run import load_network

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "experiments" / "configs" / "core-restaurants.toml"
SEEDS = (0, 1)
PAPER = {"accuracy": 0.8286, "macro_f1": 0.7432}


def run_seed(seed: int) -> dict[str, Any]:
    content = read_config(CONFIG).as_dict()
    content["train"]["seed"] = seed
    result = train(run_config(content), ROOT / "runs" / f"core-restaurants-{seed}")
    predictor = NetworkPredictor(*load_network(result.bundle))
    test = evaluate(predictor, test_examples("semeval14-restaurants"))
    return {
        "seed": seed,
        "best_epoch": result.best_epoch,
        "epochs": len(result.history),
        "epoch_seconds": round(result.seconds / len(result.history), 2),
        "dev": result.dev,
        "test": test.as_dict(),
    }


def main() -> None:
    torch.set_num_threads(1)
    runs = [run_seed(seed) for seed in SEEDS]
    metrics: dict[str, float] = {}
    for name, paper in PAPER.items():
        values = [run["test"]["figures"][name] for run in runs]
        metrics |= {
            f"{name}_mean": round(mean(values), 4),
            f"{name}_sd": round(stdev(values), 4),
            f"{name}_paper": paper,
        }
    metrics["epoch_seconds"] = round(mean(run["epoch_seconds"] for run in runs), 2)
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    document = {
        "name": "core-restaurants",
        "command": "python experiments/core_restaurants.py",
        "commit": commit,
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "accelerate")},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; one thread",
        "config": read_config(CONFIG).as_dict(),
        "vectors": "glove.840B.300d.subset.txt",
        "metrics": metrics,
        "runs": runs,
    }
    path = ROOT / "experiments" / "results" / "core-restaurants.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
