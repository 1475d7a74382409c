"""Do the words of *because* make the answer? CAPSAR and CAPSAR-BERT on MiniLM, on the test parts.

`python experiments/faithfulness.py [RUNS]` judges the bundles of five and of three seeds on
Restaurant and Laptop (in `runs/`, or wherever RUNS says) against random words and gradients, and
writes `results/faithfulness.json`; what it holds already is kept. Test labels are not used, and
nothing is chosen here. `python experiments/reproduce.py table1` then renders the page anew.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from capsar import load
from capsar.data.catalog import test_examples
from capsar.evaluation.faithfulness import judge_faithfulness
from capsar.training.gradients import GradientRanker
from judge import rounded
from perform import commit_of_code, machine_class
from runs import DATASETS, WORK, planned, write_json
from summarize import FAITHFULNESS

JUDGED = ("restaurant", "laptop")
SEEDS = {"capsar": 5, "capsar-bert-minilm": 3, "capsar-bert-minilm-others": 3}


def faithfulness_of(bundle: Path, dataset: str) -> dict[str, Any]:
    """Judge one bundle on the test part of its dataset."""
    rankers = {
        "gradient": GradientRanker.load(bundle),
        "gradient_norm": GradientRanker.load(bundle, by_norm=True),
    }
    examples = test_examples(DATASETS[dataset])
    found = judge_faithfulness(load(bundle), examples, rankers={**rankers})
    figures: dict[str, Any] = rounded(found.as_dict())
    return figures


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else WORK
    runs: dict[str, Any] = {}
    if FAITHFULNESS.is_file():
        kept = json.loads(FAITHFULNESS.read_text(encoding="utf-8"))["runs"]
        runs = {run["name"]: run for run in kept}
    for run in planned(tuple(SEEDS)):
        if run.dataset not in JUDGED or run.seed >= SEEDS[run.source]:
            continue
        known = runs.get(run.name)
        if known and known["config_hash"] == run.config_hash:
            continue
        figures = faithfulness_of(folder / run.folder.name / "bundle", run.dataset)
        facts = ("name", "row", "encoder", "vectors", "dataset", "protocol", "seed", "config_hash")
        runs[run.name] = {name: getattr(run, name) for name in facts} | {
            "judged_at": commit_of_code(),
            "faithfulness": figures,
        }
        document = {
            "name": "faithfulness",
            "command": "python experiments/faithfulness.py",
            "commit": commit_of_code(),
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in ("torch", "numpy", "onnxruntime")},
            "machine": machine_class(),
            "runs": list(runs.values()),
        }
        write_json(FAITHFULNESS, document)
        print(run.name, flush=True)


if __name__ == "__main__":
    main()
