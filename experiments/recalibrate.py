"""Fit confidences anew, of networks that are trained: `python experiments/recalibrate.py [RUN …]`.

Calibration comes after training and changes no weight: where only the way of fitting has changed, a
run keeps its network. Its calibration is fitted on its dev part as at the end of training, and its
confidences are judged again. Without names: of every run that has some, and still has its bundle.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import torch

from capsar import load, train
from capsar.bundle import CONFIG, open_bundle, write_bundle
from capsar.data.catalog import test_examples
from capsar.model.network import Capsar
from capsar.training.finish import calibrate
from capsar.training.held_back import HeldBack
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.run import load_network
from capsar.training.tune import judge_spans
from judge import calibration_kind, confidence, rounded
from perform import commit_of_code
from reproduce import refresh
from runs import DATASETS, ROOT, planned, write_json

if TYPE_CHECKING:
    from runs import Run


def fit_anew(run: Run) -> None:
    """Rewrite the bundle of a run with another calibration."""
    config, folder = run.config(), run.folder / "bundle"
    if config.data.folds:  # its networks are in its checkpoints
        shutil.rmtree(folder)
        train(config, run.folder)
        return
    prepared = prepare_data(config.data, config.model, seed=run.seed)
    model, tokenizer = load_network(folder)
    reader = NetworkPredictor(model, tokenizer)
    found = None
    if isinstance(model, Capsar) and model.spans is not None:
        found = judge_spans(reader, prepared.dev_sentences)
    fitted, _ = calibrate(HeldBack(reader, prepared.dev, prepared.dev_sentences), found)
    bundle = open_bundle(folder)
    files = {name: bundle.path(name).read_bytes() for name in bundle.files if name != CONFIG}
    write_bundle(folder, bundle.config | {"calibration": fitted}, files)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    os.chdir(ROOT)
    for run in planned():
        if not run.result.is_file() or (names and run.name not in names):
            continue
        told = json.loads(run.result.read_bytes())
        whole = (run.folder / "bundle").is_dir() and told["config_hash"] == run.config_hash
        if not told.get("confidence") or not whole:
            continue
        fit_anew(run)
        test = test_examples(DATASETS[run.dataset])
        told["confidence"] = confidence(load(run.folder / "bundle"), test)
        told["calibration_kind"] = calibration_kind(run.folder / "bundle")
        told["judged_at"] = commit_of_code()
        write_json(run.result, rounded(told))
        print(run.name, told["calibration_kind"], flush=True)
    refresh()


if __name__ == "__main__":
    main(sys.argv[1:])
