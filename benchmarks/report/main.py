"""Correctness and scaling of reports: `python benchmarks/report/main.py truth|labelled|scale`.

`truth` reports on synthetic corpora with known shares, and counts how often intervals contain them
and how often equal groups are called different. `labelled` compares predicted with labelled shares
of the frequent aspects of test sets. `scale` reports on 500,000 and on 5,000,000 scored rows, each
in a fresh process. Each part adds its metrics to `results/report.json`.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from capsar import load
from capsar.data.catalog import test_examples
from capsar.evaluation.evaluate import labeled
from capsar.reporting.aspect_names import merge_names
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from capsar.reporting.statistics import AspectCounts, estimate_shares
from capsar.schema import CLASSES
from measure import ROOT, peak_memory_mb, run_fresh, write_result
from report.corpus import NAMES, World, write_scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORLDS, ROWS = 8, 8_000
SMALL, LARGE = 500_000, 5_000_000
PAIRS = ROOT / "tests" / "reporting" / "aspect_names.toml"
MODELS = ("base", "fast")
SETS = ("semeval14-restaurants", "semeval14-laptops", "semeval16-restaurants-english", "television")
"""Test sets that no bundled model was trained on."""
MIN_MENTIONS = 10


def truth() -> dict[str, float]:
    """Count how often intervals contain the true shares, and how often there is a false alarm.

    The true share of an interval is that of the predictions on unlimited reviews; under
    `with_model_errors` it is the share before the model's errors.
    """
    inside: dict[str, list[bool]] = {}
    alarms = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(WORLDS):
            world = World(num_products=3, num_months=6, seed=seed, tail=300)
            content = _report(Path(scratch), world, seed)
            for name, hits in _check(content, world.predicted_shares).items():
                inside.setdefault(name, []).extend(hits)
            with_errors = _check(content, world.shares)["product_and_month"]
            inside.setdefault("with_model_errors", []).extend(with_errors)
            content = _report(Path(scratch), replace(world, product_spread=0.0), seed)
            alarms += any(row["q"] < 0.05 for row in content["differences"])
            print(f"world {seed + 1} of {WORLDS}", file=sys.stderr)
    lines = tomllib.loads(PAIRS.read_text(encoding="utf-8"))["apart"].strip().splitlines()
    merged = [len(merge_names(dict(zip(x.split(" / "), (1000, 10), strict=True)))) for x in lines]
    metrics: dict[str, float] = {"worlds": WORLDS, "worlds_with_a_false_alarm": alarms}
    for name, hits in inside.items():
        metrics |= {f"intervals_{name}": len(hits), f"coverage_{name}": float(np.mean(hits))}
    return metrics | {"pairs_apart": len(lines), "pairs_joined": merged.count(1)}


def _report(scratch: Path, world: World, seed: int) -> dict[str, Any]:
    folder = scratch / "scored"
    shutil.rmtree(folder, ignore_errors=True)
    write_scored(folder, world, ROWS, seed=seed)
    options = ReportOptions(by="product", over="date", every="month", threads=1)
    return report(folder, None, options, format="json")


def _check(content: dict[str, Any], shares: NDArray[np.float64]) -> dict[str, list[bool]]:
    """Return whether each interval of a known aspect contains its share (A, G, P, C)."""
    inside: dict[str, list[bool]] = {}

    def check(name: str, cells: Any, expected: NDArray[np.float64]) -> None:  # noqa: ANN401
        if isinstance(cells, list):
            for cell, one in zip(cells, expected, strict=True):
                check(name, cell, one)
        elif cells["mentions"]:
            bounds = [cells[str(polarity)][1:] for polarity in CLASSES]
            hits = [low <= x <= high for (low, high), x in zip(bounds, expected, strict=True)]
            inside.setdefault(name, []).extend(hits)

    known = [spellings.split("|")[0] for spellings in NAMES]
    finest = content["by_group_and_period"]
    for aspect, by_group_and_period in zip(content["aspects"], finest, strict=True):
        if aspect["name"] in known:
            own = shares[known.index(aspect["name"])]
            check("product_and_month", by_group_and_period, own)
            check("product", aspect["by_group"], own.mean(1))
            check("month", aspect["by_period"], own.mean(0))
            check("whole", aspect, own.mean((0, 1)))
    return inside


def labelled() -> dict[str, float]:
    """Return how often intervals contain the labelled share, and the mean error of shares."""
    metrics: dict[str, float] = {}
    for model in MODELS:
        analyzer = load(model)
        inside, errors = [], []
        for name in SETS:
            examples = labeled(test_examples(name))
            predicted = analyzer.predict_lengths(examples).argmax(-1).tolist()
            labels = [CLASSES.index(e.polarity) for e in examples if e.polarity]
            names = [" ".join((e.aspect or "").lower().split()) for e in examples]
            true, counts = _by_aspect(names, labels, predicted)
            shares = estimate_shares(counts)
            low, high = (bound[:, : len(CLASSES)] for bound in (shares.low, shares.high))
            inside.append((low <= true) & (true <= high))
            errors.append(abs(counts.shares() - true))
        metrics |= {
            f"labelled_intervals_{model}": sum(part.size for part in inside),
            f"labelled_coverage_{model}": float(np.concatenate(inside).mean()),
            f"labelled_error_{model}": float(np.concatenate(errors).mean()),
        }
    return metrics


def _by_aspect(
    names: list[str], labels: list[int], predicted: list[int]
) -> tuple[NDArray[np.float64], AspectCounts]:
    """Return the labelled shares (A, C) of frequent aspects, and the counts of predictions."""
    frequent = [name for name in dict.fromkeys(names) if names.count(name) >= MIN_MENTIONS]
    counts = np.zeros((2, len(frequent), len(CLASSES)))
    for name, label, prediction in zip(names, labels, predicted, strict=True):
        if name in frequent:
            counts[0, frequent.index(name), label] += 1
            counts[1, frequent.index(name), prediction] += 1
    true, mentions = counts
    products = np.array([np.diag(row) for row in mentions])
    total = mentions.sum(1)
    return true / true.sum(1, keepdims=True), AspectCounts(total, mentions, products, 0 * total)


def scale() -> dict[str, float]:
    """Report on a small and a large corpus, each in a fresh process."""
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, rows in (("small", SMALL), ("large", LARGE)):
            folder = write_scored(Path(scratch) / name, World(num_months=24, tail=50_000), rows)
            found = run_fresh(__file__, "one", folder, Path(scratch) / "report.html")
            metrics |= {f"{name}_{key}": value for key, value in found.items()}
            shutil.rmtree(folder)
    metrics["time_ratio"] = metrics["large_seconds"] / metrics["small_seconds"]
    metrics["cpu_ratio"] = metrics["large_cpu_seconds"] / metrics["small_cpu_seconds"]
    return metrics


def one(folder: str, output: str) -> None:
    """Report once, and print time and memory."""
    start = time.perf_counter()
    content = report(folder, output, ReportOptions(by="product", over="date"))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    metrics = {
        "rows": content["totals"]["rows"],
        "mentions": content["totals"]["mentions"],
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": peak_memory_mb(),
        "page_mb": Path(output).stat().st_size / 1e6,
    }
    print(json.dumps(metrics))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["one", folder, output]:
            one(folder, output)
        case [name]:
            metrics = {"truth": truth, "labelled": labelled, "scale": scale}[name]()
            write_result("report", metrics, ("duckdb", "pyarrow", "onnxruntime"), part=name)
        case _:
            print(__doc__)
