"""The part of `docs/results.md` about what limits the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cells import number, paragraph, signed, table
from entries import DATASETS, METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entries import Entries
    from summary_values import RunFile

_TASK = ("accuracy", "macro_f1")


def section(found: Entries, runs: Sequence[RunFile]) -> str:
    """Return the section, or nothing where there are no figures."""
    sweeps = {
        "sweep-train-share": "training examples",
        "sweep-vector-share": "test words with a vector",
        "sweep-routing": "routing iterations",
        "sweep-lambda": "lambda",
    }
    parts = [
        _sweep(found, runs, source, label, dataset)
        for source, label in sweeps.items()
        for dataset in DATASETS
    ]
    parts = [part for part in (*parts, _diagnosis(found)) if part]
    return "\n\n".join(["## What limits these figures", *parts]) if parts else ""


def _sweep(found: Entries, runs: Sequence[RunFile], source: str, label: str, dataset: str) -> str:
    some = sorted(
        (run for run in runs if (run["source"], run["dataset"]) == (source, dataset)),
        key=lambda run: float(run["point"][1]),
    )
    rows, values = [], []
    for run in some:
        point = f"{run['point'][1]:g}"
        entries = found.find("figures", row=f"{source}-{point}", dataset=dataset)
        told = {entry["metric"]: entry["mean"] for entry in entries}
        values.append(told["macro_f1"])
        if source == "sweep-train-share":
            point = f"{told['train_examples']:g}"
        elif source == "sweep-vector-share":
            point = f"{told['coverage'] * 100:.1f} %"
        cells = [number(told[name]) for name in ("accuracy", "macro_f1", "dev_macro_f1")]
        rows.append([point, *cells, number(told["map"]) if "map" in told else "–"])
    if not rows:
        return ""
    header = [label, "accuracy", "macro-F1", "macro-F1 on dev", "detection mAP"]
    parts = [f"### Against {label} ({DATASETS[dataset]}, one seed)", table(header, rows)]
    if len(values) > 1:
        parts.append(paragraph(
            f"""From {rows[0][0]} to {rows[-1][0]}, macro-F1 moves by
            {signed(values[-1] - values[0])}; the last step, from {rows[-2][0]}, is
            {signed(values[-1] - values[-2])}."""
        ))  # fmt: skip
    return "\n\n".join(parts)


def _diagnosis(found: Entries) -> str:
    rows = []
    for dataset, shown in DATASETS.items():
        for metric in _TASK:
            names = [f"{metric}_dev_selected", f"{metric}_best_on_test"]
            pair = [entry["mean"] for entry in found.all_of("diagnosis", names, dataset=dataset)]
            if pair:
                gap = signed(pair[1] - pair[0])
                rows.append([shown, METRICS[metric], *map(number, pair), gap])
    if not rows:
        return ""
    said = paragraph(
        """One seed, shown once as a diagnosis and used nowhere: what choosing the epoch by the test
        figures would have added, each metric at its own best epoch."""
    )
    header = ["dataset", "metric", "epoch chosen on dev", "best epoch on test", "gap"]
    return f"### Had the epoch been chosen on the test part\n\n{said}\n\n{table(header, rows)}"
