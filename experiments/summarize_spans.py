"""Run files -> the entries about found spans and about confidences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runs import SPANS
from summary_values import by_seed, make_entry, paired

if TYPE_CHECKING:
    from summary_values import Entry, RunFile

BASES = {
    "capsar-spans": "capsar",
    "capsar-spans-folds": "capsar-folds",
    "capsar-bert-spans": "capsar-bert",
}
"""The row that each is compared with in task A: the same without the head."""
FOUND = {
    "span_f1": ("spans", "f1"),
    "span_precision": ("spans", "precision"),
    "span_recall": ("spans", "recall"),
    "span_f1_with_terms": ("spans_with_terms", "f1"),
    "joint_f1": ("joint", "f1"),
    "false_per_100": ("false_per_100",),
}
CONFIDENCE = ("ece", "ece_bound", "brier", "log_loss", "accuracy_at_80")
TASK = ("accuracy", "macro_f1")


def summarize_spans(runs: list[RunFile]) -> list[Entry]:
    """Return the entries of rows with an extraction head, and of every row's confidences."""
    groups: dict[tuple[str, str, str, str], list[RunFile]] = {}
    for run in runs:
        if run["point"] is None:
            key = (run["row"], run["encoder"], run["protocol"], run["dataset"])
            groups.setdefault(key, []).append(run)
    entries: list[Entry] = []
    for (row, encoder, protocol, dataset), some in groups.items():
        entries += _found(some)
        entries += _confidence(some)
        if some[0]["source"] in SPANS:
            base = groups.get((BASES[row], encoder, protocol, dataset), [])
            entries += _task(some, base, BASES[row])
    return entries


def _task(runs: list[RunFile], base: list[RunFile], name: str) -> list[Entry]:
    """Task A of a row with a head, and beside the same without it, seed by seed."""
    entries = []
    for metric in TASK:
        values = by_seed(runs, "test", "figures", metric)
        theirs = by_seed(base, "test", "figures", metric)
        dev = by_seed(runs, "dev", f"dev_{metric}")
        entries += [
            make_entry("spans", metric, values.values(), run=runs[0]),
            make_entry("spans", f"dev_{metric}", dev.values(), run=runs[0]),
        ]
        gaps = paired(values, theirs)
        if gaps:
            entries.append(make_entry("spans", f"{metric}_vs_{name}", gaps, run=runs[0]))
    return entries


def _found(runs: list[RunFile]) -> list[Entry]:
    """Spans by the head, and by opened capsules under names that end in `_capsules`."""
    entries = []
    for mode, suffix in (("spans", ""), ("capsules", "_capsules")):
        for metric, path in FOUND.items():
            values = by_seed(runs, "found", mode, *path)
            if values:
                entries.append(
                    make_entry("spans", f"{metric}{suffix}", values.values(), run=runs[0])
                )
            dev = by_seed(runs, "dev_found", *path) if mode == "spans" else {}
            if dev:
                entries.append(make_entry("spans", f"dev_{metric}", dev.values(), run=runs[0]))
    return entries


def _confidence(runs: list[RunFile]) -> list[Entry]:
    """Calibrated figures, and uncalibrated ones under names that end in `_uncalibrated`."""
    entries = []
    for kind, suffix in (("calibrated", ""), ("uncalibrated", "_uncalibrated")):
        for metric in (*CONFIDENCE, "accuracy"):
            values = by_seed(runs, "confidence", kind, metric)
            if values:
                entries.append(
                    make_entry("confidence", f"{metric}{suffix}", values.values(), run=runs[0])
                )
    surest = by_seed(runs, "confidence", "calibrated", "accuracy_at_80")
    gains = paired(surest, by_seed(runs, "confidence", "calibrated", "accuracy"))
    if gains:
        entries.append(make_entry("confidence", "accuracy_gain_at_80", gains, run=runs[0]))
    return entries
