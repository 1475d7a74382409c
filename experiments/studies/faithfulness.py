"""Evaluate attributions on the test sets: `python experiments/studies/faithfulness.py [RUNS]`.

Compares the attributions of CAPSAR (five seeds) and CAPSAR-BERT on MiniLM (three) on Restaurant and
Laptop with random words and gradients; bundles are below `runs/` or RUNS. Test labels are not used
and nothing is chosen. Writes `results/faithfulness.json`; results that it holds are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import load
from capsar.data.catalog import test_examples
from evaluate import rounded
from metrics.faithfulness import evaluate_faithfulness
from metrics.gradients import GradientRanker
from run import (
    DATASETS,
    RESULTS,
    WORK,
    describe_study,
    planned,
    prepare_process,
    read_json,
    write_json,
)

RESULT = RESULTS / "faithfulness.json"
EVALUATED = ("restaurant", "laptop")
SEEDS = {"capsar": 5, "capsar-bert-minilm": 3, "capsar-bert-minilm-others": 3}


def faithfulness_of(bundle: Path, dataset: str) -> dict[str, Any]:
    """Evaluate one bundle on the test set of its dataset."""
    rankers = {
        "gradient": GradientRanker.load(bundle),
        "gradient_norm": GradientRanker.load(bundle, by_norm=True),
    }
    examples = test_examples(DATASETS[dataset])
    found = evaluate_faithfulness(load(bundle), examples, rankers={**rankers})
    metrics: dict[str, Any] = rounded(found.as_dict())
    return metrics


def main() -> None:
    prepare_process()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else WORK
    runs: dict[str, Any] = {run["name"]: run for run in read_json(RESULT).get("runs", ())}
    for run in planned(tuple(SEEDS)):
        known = runs.get(run.name, {}).get("config_hash") == run.config_hash
        if known or run.dataset not in EVALUATED or run.seed >= SEEDS[run.source]:
            continue
        about = describe_study(
            "faithfulness", "studies/faithfulness.py", "torch", "numpy", "onnxruntime"
        )
        facts = ("name", "row", "encoder", "vectors", "dataset", "protocol", "seed", "config_hash")
        runs[run.name] = {name: getattr(run, name) for name in facts} | {
            "evaluated_at": about["commit"],
            "faithfulness": faithfulness_of(folder / run.folder.name / "bundle", run.dataset),
        }
        write_json(RESULT, about | {"runs": list(runs.values())})
        print(run.name, flush=True)


if __name__ == "__main__":
    main()
