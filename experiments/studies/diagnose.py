"""Evaluate every epoch on the test set: a diagnosis, shown once and used nowhere.

`python experiments/studies/diagnose.py` trains CAPSAR (seed 0) on Restaurant and Laptop again, in
separate folders, and evaluates every epoch on the test set. Only this script does so; no run of a
table sees these metrics. Writes `results/best-on-test.json`; a stopped call resumes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

from capsar import train
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import compute_predictions, labeled
from capsar.evaluation.metrics import compute_metrics
from capsar.model.network import Capsar
from capsar.training.dataset import prepare_data
from capsar.training.state import load_checkpoint, unmerge
from capsar.training.validation import NetworkPredictor
from evaluate import rounded
from run import (
    DATASETS,
    RESULTS,
    WORK,
    Run,
    describe_study,
    planned,
    prepare_process,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from capsar.training.loop import StepInfo

_DATASETS = ("restaurant", "laptop")


def diagnose(run: Run, folder: Path) -> dict[str, Any]:
    """Train a run in its own folder, and evaluate each epoch's weights on the test set."""
    config = run.config()
    data = prepare_data(config.data, config.model, seed=run.seed)
    test = labeled(test_examples(DATASETS[run.dataset]))
    kept = folder / "test.json"
    found: dict[str, dict[str, float]] = read_json(kept)

    def evaluate_checkpoint() -> None:
        checkpoint = load_checkpoint(folder / "checkpoints")
        if checkpoint is None:
            return
        epoch = str(checkpoint.progress.epoch - 1)
        if epoch not in found:
            trained = unmerge(checkpoint.tensors)["model"]
            weights = {"word_vectors": data.vocabulary.vectors, **trained}
            model = Capsar.from_weights(config.model, weights)
            predictor = NetworkPredictor(model, data.vocabulary.tokenizer)
            metrics = compute_metrics(*compute_predictions(predictor, test))
            found[epoch] = {
                "test_accuracy": round(metrics.accuracy, 6),
                "test_macro_f1": round(metrics.macro_f1, 6),
            }
            write_json(kept, found)

    def on_step(info: StepInfo) -> None:
        if info.ends_epoch:  # its checkpoint has been written
            evaluate_checkpoint()

    evaluate_checkpoint()  # of the epoch after which this script was stopped
    result = train(config, folder, on_step=on_step)
    facts = ("row", "encoder", "vectors", "dataset", "protocol", "seed", "config_hash")
    return {name: getattr(run, name) for name in facts} | {
        "best_epoch": result.best_epoch,
        "epochs": [rounded(entry) | found[str(entry["epoch"])] for entry in result.history],
    }


def main() -> None:
    prepare_process()
    chosen = [r for r in planned(("capsar",)) if r.seed == 0 and r.dataset in _DATASETS]
    found = [diagnose(run, WORK / f"diagnose-{run.name}-{run.config_hash}") for run in chosen]
    about = describe_study("best-on-test", "studies/diagnose.py", "torch")
    write_json(RESULTS / "best-on-test.json", about | {"runs": found})


if __name__ == "__main__":
    main()
