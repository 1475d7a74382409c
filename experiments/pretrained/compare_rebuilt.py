"""Compare a rebuilt model with the bundled one on validation data, before replacing it.

`python experiments/pretrained/compare_rebuilt.py NAME BUNDLE CHANGES` evaluates a bundle, the
bundled model of that name and `base` on each validation source of its configuration: most training
sentences are of MAMS, the products of Bing Liu are others. CHANGES describes what was changed. The
process cannot open a test set. Writes `results/rebuilt-NAME.json`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import numpy as np

from capsar import load
from capsar.config import list_sources, read_config
from capsar.schema import CLASSES
from capsar.training.dataset import read_splits
from evaluate import rounded
from guard import close_test_sets
from run import CONFIGS, RESULTS, describe_study, prepare_process, write_json

MAIN_SOURCE = "mams:dev"
"""The validation source of the kind of most training sentences."""


def main(name: str, bundle: str, changes: str) -> None:
    close_test_sets()
    prepare_process()
    models = {"base": load("base"), "bundled": load(name), "rebuilt": load(bundle)}
    data = read_config(CONFIGS / f"{name}.toml").data
    whole = replace(data, partially_annotated=(), validation="", validation_ratio=0.0)
    sources: dict[str, dict[str, Any]] = {}
    for source in list_sources(data.validation):
        examples = read_splits(replace(whole, train=source)).train
        gold = np.array([CLASSES.index(example.polarity) for example in examples])
        right = {
            model: int((analyzer.predict_lengths(examples).argmax(1) == gold).sum())
            for model, analyzer in models.items()
        }
        sources[source] = {"num_examples": len(examples), "right": right}
    about = describe_study(
        f"rebuilt-{name}", f"pretrained/compare_rebuilt.py {name} BUNDLE CHANGES", "numpy",
        "onnxruntime",
    )  # fmt: skip
    metrics = {
        f"{model}_{kind}_accuracy": accuracy
        for model in models
        for kind, accuracy in _accuracies(sources, model).items()
    }
    document = about | {"changed": changes, "sources": sources, "metrics": metrics}
    write_json(RESULTS / f"rebuilt-{name}.json", rounded(document))


def _accuracies(sources: dict[str, dict[str, Any]], model: str) -> dict[str, float]:
    """Return the accuracy on the main source, on all others, and the mean of both."""
    kinds = {
        "same": [found for source, found in sources.items() if source == MAIN_SOURCE],
        "other": [found for source, found in sources.items() if source != MAIN_SOURCE],
    }
    accuracies = {
        kind: sum(found["right"][model] for found in some)
        / sum(found["num_examples"] for found in some)
        for kind, some in kinds.items()
    }
    return accuracies | {"mean": mean(accuracies.values())}


if __name__ == "__main__":
    main(*sys.argv[1:])
