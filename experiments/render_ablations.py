"""The part of `docs/results.md` about the ablations: do figures fall without a part?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cells import by_verdict, interval, listed, paragraph, signed, table
from entries import DATASETS, METRICS, ROWS
from interval import difference_of
from summarize import never_moved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from entries import Entries
    from summary_values import Entry, RunFile

_ABLATIONS = ("capsar-wo-r", "capsar-wo-h")
_SEEDS = {"": "", "_learnt": ", runs that learnt"}
_TASK = ("accuracy", "macro_f1")


def in_short(found: Entries) -> list[str]:
    """Return what holds, in sentences."""
    words = {
        "falls": "falls, with an interval that leaves out 0, in",
        "rises": "rises, with an interval that leaves out 0, in",
        "cannot be told": "cannot be told from no difference in",
    }
    lines = []
    for row in _ABLATIONS:
        named = [(f"{DATASETS[d]} {METRICS[m]}", entry) for d, m, entry in _entries(found, row)]
        told = by_verdict(named, words)
        if told:
            lines.append(
                f"{ROWS[row]} against CAPSAR: the paper says that every figure falls. Ours "
                f"{'; it '.join(told)}."
            )
    return lines


def _entries(found: Entries, row: str, suffix: str = "") -> list[tuple[str, str, Entry]]:
    return [
        (dataset, metric, entry)
        for dataset in DATASETS
        for metric in _TASK
        for entry in found.all_of(
            "table2", [f"{metric}_vs_capsar{suffix}"], row=row, protocol="ours", dataset=dataset
        )
    ]


def differences(found: Entries) -> str:
    """Return the table of differences to CAPSAR, or nothing where there are none."""
    rows = []
    for row, suffix, mark in [(row, *which) for row in _ABLATIONS for which in _SEEDS.items()]:
        for dataset, metric, entry in _entries(found, row, suffix):
            difference = difference_of(entry)
            printed = "" if entry["paper"] is None else signed(entry["paper"])
            rows.append([
                ROWS[row] + mark, DATASETS[dataset], METRICS[metric], interval(difference),
                str(entry["n"]), printed, difference.verdict,
            ])  # fmt: skip
    if not rows:
        return ""
    header = ["ablation", "dataset", "metric", "minus CAPSAR", "pairs", "paper", "ours"]
    said = paragraph(
        """Differences to CAPSAR with the same seed, with 95 % intervals over seeds (Student's t).
        They say nothing of another test set."""
    )
    return f"### Do the ablations fall?\n\n{said}\n\n{table(header, rows)}"


def stalled(runs: Sequence[RunFile]) -> str:
    """Say which runs never left the answer that is the same for every dev example."""
    lines = []
    for row, shown in ROWS.items():
        judged = [run for run in runs if run["row"] == row and run["point"] is None]
        stalled = [run for run in judged if never_moved(run)]
        if stalled:
            where = Counter(DATASETS[run["dataset"]] for run in stalled)
            told = listed([f"{count} on {dataset}" for dataset, count in where.items()])
            lines.append(
                f"{len(stalled)} of {len(judged)} runs of {shown} ({told}) never moved from one "
                "dev macro-F1: they did not learn, and pull the means above down."
            )
    return "\n\n".join(map(paragraph, lines))
