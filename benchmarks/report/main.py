"""Correctness and scaling of reports: `python benchmarks/report/main.py PART`.

`truth` reports on synthetic corpora with known shares, and counts how often intervals contain them
and how often equal groups are called different. `drivers` does the same for known effects on the
rating. `languages` identifies the language of reviews. `labeled` compares predicted with labeled
shares of the frequent aspects of test sets. `scale` reports on 500,000 and on 5,000,000 scored
rows, each in a fresh process. Each part adds its metrics to `results/report.json`.
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
from capsar.reporting.drivers import SIGNS
from capsar.reporting.languages import ENGLISH, identify_language
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from capsar.reporting.statistics import AspectCounts, estimate_shares
from capsar.schema import CLASSES
from measure import ROOT, peak_memory_mb, run_fresh, write_result
from report.corpus import NAMES, World, add_ratings, write_scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORLDS, ROWS = 8, 8_000
DRIVER_WORLDS = 120
DRIVER_FEW = 60
"""Effects that fewer reviews show are counted separately as well."""
SMALL, LARGE = 500_000, 5_000_000
FOREIGN = ROOT / "tests" / "reporting" / "foreign_reviews.tsv"
"""Reviews in other languages, written for this project."""
MIXED = ("hi-Latn", "en-es")
"""Romanized Hindi, and English mixed with Spanish."""
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
    for aspect in content["aspects"]:
        if aspect["name"] in known:
            own = shares[known.index(aspect["name"])]
            check("product_and_month", aspect["by_group_and_period"], own)
            check("product", aspect["by_group"], own.mean(1))
            check("month", aspect["by_period"], own.mean(0))
            check("whole", aspect, own.mean((0, 1)))
    return inside


def drivers() -> dict[str, float]:
    """Count how often intervals contain the known effects of criticism and praise on the rating."""
    hits: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(DRIVER_WORLDS):
            chance = np.random.default_rng([seed, 1])
            rows = int(chance.choice((1_000, 2_000, 6_000)))
            folder = Path(scratch) / "scored"
            shutil.rmtree(folder, ignore_errors=True)
            write_scored(folder, World(seed=seed, tail=100), rows, seed=seed)
            effects = {name.split("|")[0]: chance.uniform(-0.4, 0.4, 2) for name in NAMES[:8]}
            for file in folder.glob("*.parquet"):
                add_ratings(file, effects, chance)
            content = report(folder, None, ReportOptions(rating="stars", threads=1))
            for aspect in content["aspects"]:
                for place, sign in enumerate(SIGNS):
                    found = aspect.get("rating", {}).get(str(sign))
                    if aspect["name"] in effects and found:
                        _, low, high = found["effect"]
                        is_inside = bool(low <= effects[aspect["name"]][place] <= high)
                        few = "few" if found["reviews"] < DRIVER_FEW else "many"
                        hits.setdefault(few, []).append(is_inside)
    together = [one for group in hits.values() for one in group]
    metrics: dict[str, float] = {"driver_worlds": DRIVER_WORLDS}
    for name, group in {"all": together, **hits}.items():
        metrics |= {
            f"driver_intervals_{name}": len(group),
            f"driver_coverage_{name}": float(np.mean(group)),
        }
    return metrics


def languages() -> dict[str, float]:
    """Count English sentences that are called something else, and other reviews that are found."""
    metrics: dict[str, float] = {}
    english: list[str] = []
    for part in ("validation", "test"):
        lines = (ROOT / "corpus" / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
        english += [json.loads(line)["text"] for line in lines]
    wrong = sum(identify_language(text) != ENGLISH for text in english)
    metrics |= {"english_sentences": len(english), "english_wrong": wrong / len(english)}
    found: dict[bool, list[bool]] = {True: [], False: []}
    for line in FOREIGN.read_text(encoding="utf-8").splitlines():
        code, text = line.split("\t")
        found[code in MIXED].append(identify_language(text) != ENGLISH)
    for is_mixed, hits in found.items():
        name = "mixed" if is_mixed else "foreign"
        metrics |= {f"{name}_reviews": len(hits), f"{name}_found": float(np.mean(hits))}
    start = time.perf_counter()
    for text in english:
        identify_language(text)
    return metrics | {"languages_per_s": len(english) / (time.perf_counter() - start)}


def interval_coverage() -> dict[str, float]:
    """Return how often intervals contain the labeled share, and the mean error of shares."""
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
            f"labeled_intervals_{model}": sum(part.size for part in inside),
            f"labeled_coverage_{model}": float(np.concatenate(inside).mean()),
            f"labeled_error_{model}": float(np.concatenate(errors).mean()),
        }
    return metrics


def _by_aspect(
    names: list[str], labels: list[int], predicted: list[int]
) -> tuple[NDArray[np.float64], AspectCounts]:
    """Return the labeled shares (A, C) of frequent aspects, and the counts of predictions."""
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
            parts = {
                "truth": truth,
                "drivers": drivers,
                "languages": languages,
                "labeled": interval_coverage,
            }
            parts["scale"] = scale
            metrics = parts[name]()
            write_result("report", metrics, ("duckdb", "pyarrow", "onnxruntime"), part=name)
        case _:
            print(__doc__)
