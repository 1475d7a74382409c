"""Dev-selected against best-on-test: a diagnosis, shown once and used nowhere.

`python experiments/diagnose.py` trains CAPSAR (seed 0) on Restaurant and Laptop once more, in
folders of its own, and evaluates every epoch on the test part. Only this script does so; no run of
a table ever sees these figures. It writes `results/best-on-test.json`, and goes on if stopped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from capsar import train
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import compute_predictions, judgeable
from capsar.evaluation.metrics import compute_figures
from capsar.model.network import Capsar
from capsar.training.checkpoint import load_checkpoint
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from perform import commit_of_code, machine_class
from runs import DATASETS, WORK, Run, planned, write_json
from summarize import BEST_ON_TEST

if TYPE_CHECKING:
    from pathlib import Path

    from capsar.training.loop import StepInfo

_SEED = 0
_DATASETS = ("restaurant", "laptop")


def diagnose(run: Run, folder: Path) -> dict[str, Any]:
    """Train a run in a folder of its own, and judge each epoch's weights on the test part."""
    config = run.config()
    prepared = prepare_data(config.data, config.model, seed=run.seed)
    test = judgeable(test_examples(DATASETS[run.dataset]))
    kept = folder / "test.json"
    judged: dict[str, dict[str, float]] = json.loads(kept.read_text()) if kept.is_file() else {}

    def judge_checkpoint() -> None:
        checkpoint = load_checkpoint(folder / "checkpoints")
        if checkpoint is None or checkpoint.progress.batch:
            return
        epoch = str(checkpoint.progress.epoch - 1)
        if epoch not in judged:
            weights = {"word_vectors": prepared.vectors, **checkpoint.model}
            model = Capsar.from_weights(config.model, weights)
            predictor = NetworkPredictor(model, prepared.tokenizer)
            figures = compute_figures(*compute_predictions(predictor, test))
            judged[epoch] = {
                "test_accuracy": round(figures.accuracy, 6),
                "test_macro_f1": round(figures.macro_f1, 6),
            }
            write_json(kept, judged)

    def on_step(info: StepInfo) -> None:
        if info.ends_epoch:  # its checkpoint has been written
            judge_checkpoint()

    judge_checkpoint()  # of an epoch after which this script was stopped
    result = train(config, folder, on_step=on_step)
    return {
        "row": run.row,
        "encoder": "bigru",
        "vectors": run.vectors,
        "dataset": run.dataset,
        "protocol": run.protocol,
        "seed": run.seed,
        "config_hash": run.config_hash,
        "best_epoch": result.best_epoch,
        "epochs": [
            {name: round(value, 6) for name, value in entry.items()} | judged[str(entry["epoch"])]
            for entry in result.history
        ],
    }


def main() -> None:
    torch.set_num_threads(1)
    chosen = [run for run in planned(("capsar",)) if run.seed == _SEED and run.dataset in _DATASETS]
    found = [diagnose(run, WORK / f"diagnose-{run.name}-{run.config_hash}") for run in chosen]
    write_json(
        BEST_ON_TEST,
        {
            "name": "best-on-test",
            "about": "A diagnosis: what choosing the epoch on the test part would show. Not used.",
            "command": "python experiments/diagnose.py",
            "commit": commit_of_code(),
            "machine": machine_class(),
            "runs": found,
        },
    )


if __name__ == "__main__":
    main()
