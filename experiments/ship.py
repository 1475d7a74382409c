"""Rebuild the model that ships: `python experiments/ship.py fast [--vectors glove.6B.50d.txt]`.

Trains `experiments/configs/fast.toml` (a stopped run goes on), writes the bundle without training
weights to `src/capsar/models/`, and judges it once on sets it has never met. Figures go to
`experiments/results/ship-NAME.json`. GloVe 6B is public (`capsar data list` says where); its file
is looked for below `CAPSAR_DATA` unless it is named.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from capsar import evaluate, load, train
from capsar.bundle import CONFIG, MANIFEST, WEIGHTS, open_bundle, write_bundle
from capsar.config import read_config, run_config
from capsar.data.catalog import identify, test_examples
from perform import commit_of_code, machine_class
from runs import write_json

ROOT = Path(__file__).parent.parent
SETS = ("mams", "semeval14-restaurants", "semeval14-laptops")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild a model that ships.")
    parser.add_argument("name", choices=["fast"])
    parser.add_argument("--vectors", help="where the vector file is, if not below CAPSAR_DATA")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.chdir(ROOT)  # its paths are below the root
    path = ROOT / "experiments" / "configs" / f"{options.name}.toml"
    content = read_config(path).as_dict()
    content["data"]["vectors"] = options.vectors or content["data"]["vectors"]
    result = train(run_config(content), ROOT / "runs" / f"ship-{options.name}")
    folder = ROOT / "src" / "capsar" / "models" / options.name
    ship(result.bundle, folder)
    analyzer = load(folder)
    figures = {name: evaluate(analyzer, test_examples(name)).as_dict() for name in SETS}
    used = identify(Path(options.vectors)) if options.vectors else None
    content["data"]["vectors"] = used[0].name if used else Path(content["data"]["vectors"]).name
    write_result(options.name, folder, figures, content, result.history)


def ship(trained: Path, folder: Path) -> None:
    """Write a trained bundle where the package finds it, without what only training needs."""
    bundle = open_bundle(trained)
    content = {
        name: bundle.path(name).read_bytes()
        for name in bundle.files
        if name not in (CONFIG, MANIFEST, WEIGHTS)
    }
    settings = {key: value for key, value in bundle.config.items() if key != "schema_version"}
    shutil.rmtree(folder, ignore_errors=True)
    write_bundle(folder, settings, content)


def write_result(
    name: str, folder: Path, figures: dict[str, Any], config: dict[str, Any], history: list[Any]
) -> None:
    metrics: dict[str, float] = {
        "bundle_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 2)
    }
    for dataset, judged in figures.items():
        short = dataset.removeprefix("semeval14-")
        metrics[f"{short}_accuracy"] = round(judged["figures"]["accuracy"], 4)
        metrics[f"{short}_macro_f1"] = round(judged["figures"]["macro_f1"], 4)
    document = {
        "name": f"ship-{name}",
        "command": f"python experiments/ship.py {name}",
        "commit": commit_of_code(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "onnxruntime")},
        "machine": machine_class(),
        "config": config,
        "metrics": metrics,
        "history": history,
        "test": figures,
    }
    write_json(ROOT / "experiments" / "results" / f"ship-{name}.json", document)


if __name__ == "__main__":
    main()
