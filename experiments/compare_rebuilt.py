"""Is a rebuilt model worth shipping? `python experiments/compare_rebuilt.py NAME BUNDLE WHAT`.

Judges a bundle beside the model of that name that ships, and beside `base`, on each dev source of
its configuration: MAMS is what they mostly learnt from, products of Bing Liu's are others. WHAT
says what was changed. No test part can be opened here. Writes `results/rebuilt-NAME.json`.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import replace
from importlib.metadata import version
from statistics import mean
from typing import Any

import numpy as np

from capsar import load
from capsar.config import list_sources, read_config
from capsar.labels import CLASSES
from capsar.training.parts import read_parts
from closed import close_test_parts
from judge import rounded
from perform import commit_of_code, machine_class
from runs import CONFIGS, EXPERIMENTS, ROOT, write_json

MOST = "mams:dev"
"""The dev source of the kind that most training sentences are of."""


def main(name: str, bundle: str, what: str) -> None:
    close_test_parts()
    os.chdir(ROOT)
    models = {"base": load("base"), "shipped": load(name), "rebuilt": load(bundle)}
    settings = read_config(CONFIGS / f"{name}.toml").data
    whole = replace(settings, polarity_only=(), dev="", dev_share=0.0)
    sources: dict[str, dict[str, Any]] = {}
    for source in list_sources(settings.dev):
        examples = read_parts(replace(whole, train=source)).train
        truth = np.array([CLASSES.index(example.polarity) for example in examples])
        told = {who: model.predict_lengths(examples).argmax(1) for who, model in models.items()}
        sources[source] = {
            "num_examples": len(examples),
            "right": {who: int((answers == truth).sum()) for who, answers in told.items()},
        }
    document = {
        "name": f"rebuilt-{name}",
        "command": f"python experiments/compare_rebuilt.py {name} BUNDLE WHAT",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", "onnxruntime")},
        "machine": machine_class(),
        "changed": what,
        "sources": sources,
        "metrics": {
            f"{who}_{kind}_accuracy": accuracy
            for who in models
            for kind, accuracy in _accuracies(sources, who).items()
        },
    }
    write_json(EXPERIMENTS / "results" / f"rebuilt-{name}.json", rounded(document))


def _accuracies(sources: dict[str, dict[str, Any]], who: str) -> dict[str, float]:
    """The accuracy on what they mostly learnt from, on all else, and the mean of both."""
    kinds = {
        "same": [found for source, found in sources.items() if source == MOST],
        "other": [found for source, found in sources.items() if source != MOST],
    }
    shares = {
        kind: sum(found["right"][who] for found in some)
        / sum(found["num_examples"] for found in some)
        for kind, some in kinds.items()
    }
    return shares | {"mean": mean(shares.values())}


if __name__ == "__main__":
    main(*sys.argv[1:])
