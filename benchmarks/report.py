"""Is a report right, and does it scale? `python benchmarks/report.py truth|labelled|scale`.

`truth` reports on corpora whose shares are set, told through a confusion matrix that the report
knows from some examples only, and counts how often intervals hold the truth. `labelled` does so
with the frequent aspects of labelled test parts. `scale` reports on 500,000 and on 5,000,000 scored
rows, each in a fresh process.
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
from typing import Any

import numpy as np

from capsar.labels import CLASSES
from capsar.reporting.merging import merge
from capsar.reporting.options import ReportOptions
from capsar.reporting.run import report
from measure import peak_memory_mb, run_fresh, write_result
from report_corpus import NAMES, World, confusion_counts, write_scored
from report_labelled import judge_labelled

PACKAGES = ("duckdb", "altair", "pyarrow")
WORLDS = 8
ROWS = 8_000
EXAMPLES = 1_500
"""On which the confusion is measured, anew in every world."""
SMALL, LARGE = 500_000, 5_000_000
PAIRS = Path(__file__).parent.parent / "tests" / "reporting" / "names.toml"


def truth() -> None:
    """Count how often the truth is inside its interval, and how often nothing is called clear."""
    inside: dict[str, list[bool]] = {}
    alarms = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(WORLDS):
            world = World(num_products=3, num_months=6, seed=seed, tail=300)
            content = _reported(Path(scratch), world, seed, corrected=True)
            _judge(inside, content, world)
            told = _reported(Path(scratch), world, seed, corrected=False)
            inside.setdefault("uncorrected", []).extend(_cells_inside(told, world))
            same = replace(world, product_spread=0.0)
            content = _reported(Path(scratch), same, seed, corrected=True)
            alarms += any(row["q"] < 0.05 for row in content["differences"])
            print(f"world {seed + 1} of {WORLDS}", file=sys.stderr)
    apart = [
        line.split(" / ")
        for line in tomllib.loads(PAIRS.read_text(encoding="utf-8"))["apart"].strip().splitlines()
    ]
    joined = [pair for pair in apart if len(merge(dict(zip(pair, (1000, 10), strict=True)))) < 2]
    metrics: dict[str, float] = {"worlds": WORLDS, "worlds_with_a_false_alarm": alarms}
    for name, hits in inside.items():
        metrics |= {f"intervals_{name}": len(hits), f"coverage_{name}": float(np.mean(hits))}
    metrics |= {"pairs_apart": len(apart), "pairs_joined": len(joined)}
    write_result("report", metrics, PACKAGES, part="truth")


def _reported(scratch: Path, world: World, seed: int, *, corrected: bool) -> dict[str, Any]:
    folder = scratch / "scored"
    shutil.rmtree(folder, ignore_errors=True)
    write_scored(folder, world, ROWS, seed=seed)
    path = scratch / "confusion.json"
    path.write_text(json.dumps(confusion_counts(EXAMPLES, np.random.default_rng(seed))))
    options = ReportOptions(
        by="product", over="date", every="month", confusion=path if corrected else None, threads=1
    )
    return report(folder, None, options, form="json")


def _judge(inside: dict[str, list[bool]], content: dict[str, Any], world: World) -> None:
    """Note for every interval of a set aspect whether it holds the truth."""
    inside.setdefault("product_and_month", []).extend(_cells_inside(content, world))
    for aspect in content["aspects"]:
        number = _number(aspect["name"])
        if number is None:
            continue
        shares = world.shares[number]
        for cell, true in zip(aspect["by_group"], shares.mean(1), strict=True):
            inside.setdefault("product", []).extend(_holds(cell, true))
        for cell, true in zip(aspect["by_period"], shares.mean(0), strict=True):
            inside.setdefault("month", []).extend(_holds(cell, true))
        inside.setdefault("whole", []).extend(_holds(aspect, shares.mean((0, 1))))


def _cells_inside(content: dict[str, Any], world: World) -> list[bool]:
    found = []
    for aspect, by_group in zip(content["aspects"], content["cells"], strict=True):
        number = _number(aspect["name"])
        if number is not None:
            for group, by_period in enumerate(by_group):
                for period, cell in enumerate(by_period):
                    found += _holds(cell, world.shares[number, group, period])
    return found


def _number(name: str) -> int | None:
    """The number of a set aspect, under the name that is written most; nothing for the tail."""
    known = [way.split("|")[0] for way in NAMES]
    return known.index(name) if name in known else None


def _holds(cell: dict[str, Any], true: Any) -> list[bool]:  # noqa: ANN401
    if not cell["mentions"]:
        return []
    return [
        cell[str(polarity)][1] <= share <= cell[str(polarity)][2]
        for polarity, share in zip(CLASSES, true, strict=True)
    ]


def labelled() -> None:
    """Judge reported shares by labels."""
    write_result("report", judge_labelled(), ("onnxruntime", "numpy"), part="labelled")


def scale() -> None:
    """Measure a small and a large corpus, each reported on in a fresh process."""
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, rows in (("small", SMALL), ("large", LARGE)):
            folder = write_scored(Path(scratch) / name, World(num_months=24, tail=50_000), rows)
            print(f"{rows} rows are written", file=sys.stderr)
            found = run_fresh(__file__, "one", folder, Path(scratch) / "report.html")
            metrics |= {f"{name}_{key}": value for key, value in found.items()}
            shutil.rmtree(folder)
    metrics["time_ratio"] = metrics["large_seconds"] / metrics["small_seconds"]
    metrics["cpu_ratio"] = metrics["large_cpu_seconds"] / metrics["small_cpu_seconds"]
    write_result("report", metrics, PACKAGES, part="scale")


def one(folder: str, output: str) -> None:
    """Report once, and print what it took."""
    start = time.perf_counter()
    content = report(folder, output, ReportOptions(by="product", over="date"))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "rows": content["totals"]["rows"],
        "mentions": content["totals"]["mentions"],
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": peak_memory_mb(),
        "page_mb": Path(output).stat().st_size / 1e6,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    {"truth": truth, "labelled": labelled, "scale": scale, "one": one}[sys.argv[1]](*sys.argv[2:])  # type: ignore[operator]
