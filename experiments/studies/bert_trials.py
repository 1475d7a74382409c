"""Try encoder learning rates on validation sets: `python experiments/studies/bert_trials.py`.

Each trial trains on four fifths of the Restaurant training set and is evaluated on the last fifth.
No test set is opened. Trials of the result file are not repeated. Of the committed trials, BERT
tried two rates and CAPSAR-BERT three.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import train
from run import (
    RESULTS,
    WORK,
    Run,
    commit_of_code,
    describe_study,
    planned,
    prepare_process,
    read_json,
    write_json,
)

RESULT = RESULTS / "bert-trials.json"
SEEDS = (0, 1)
VALIDATION_RATIO = 0.2
MAX_EPOCHS = 6
RATES = (5e-5, 1e-4, 2e-4)


def main() -> None:
    """Run the missing trials one by one."""
    prepare_process()
    done = {trial["name"]: trial for trial in read_json(RESULT).get("trials", ())}
    runs = [run for run in planned(("capsar-bert-minilm", "bert-minilm")) if run.seed in SEEDS]
    for rate in RATES:
        for run in runs:
            name = f"{run.row}-{rate:g}-{run.seed}"
            if name not in done:
                done[name] = _try(run, name, rate)
                about = describe_study(
                    "bert-trials", "studies/bert_trials.py", "torch", "transformers"
                )
                write_json(RESULT, about | {"trials": [done[name] for name in sorted(done)]})


def _try(run: Run, name: str, rate: float) -> dict[str, Any]:
    config = run.config()
    data = replace(config.data, validation_ratio=VALIDATION_RATIO, validation_seed=run.seed)
    settings = replace(
        config.train,
        max_epochs=MAX_EPOCHS,
        patience=MAX_EPOCHS,
        encoder_learning_rate=rate,
        mixed_precision="bf16",
    )
    result = train(replace(config, data=data, train=settings), WORK / f"trial-{name}")
    metrics = ("validation_accuracy", "validation_macro_f1")
    return {
        "name": name,
        "row": run.row,
        "encoder_learning_rate": rate,
        "seed": run.seed,
        "best_epoch": result.best_epoch,
        **{metric: round(result.validation[metric], 4) for metric in metrics},
        "seconds": round(result.seconds, 1),
        "commit": commit_of_code(),
    }


if __name__ == "__main__":
    main()
