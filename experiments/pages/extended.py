"""Blocks of `docs/results/extensions.md` about the rows that are trained on additional data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics.interval import gap_to_paper
from pages import formatting as fmt
from pages.formatting import DATASETS, METRICS, VARIANTS, number, spread, table
from summarize import RANKING, TASK

if TYPE_CHECKING:
    from summarize import Results

_BIGRU = {"capsar-extended": "CAPSAR, Bi-GRU"}
_BERT = {"capsar-bert-extended": "CAPSAR-BERT, all-MiniLM-L6-v2"}
ROWS = _BIGRU | _BERT
ABLATIONS = {
    "capsar-extended-wo-teacher": "the teacher",
    "capsar-extended-wo-general": "the general network",
}
"""Each without one of the changes, on Restaurant."""
_TRIAL_METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "p_at_1": "P@1",
    "r_at_5": "R@5",
    "map": "mAP",
}


def overview(results: Results) -> str:
    """Return which metrics differ significantly from the paper."""
    named = []
    for name, metrics, rows, gold in (
        ("table2", TASK, ROWS, None),
        ("table4", RANKING, _BIGRU, "all"),
    ):
        for shown, label, entries in fmt.each(results, name, metrics, rows, gold=gold):
            model = label.split(",")[0]
            for entry in entries:
                gap = gap_to_paper(entry)
                text = f"{model} on {shown}, {METRICS[entry['metric']]} ({fmt.interval(gap)})"
                named.append((text, gap))
    return fmt.bullets(fmt.by_verdict(named).split("; "))


def accuracy(results: Results) -> str:
    """Return accuracy and macro-F1 beside the paper and beside the row without the changes."""
    rows = [
        [shown, label, own["n"], *fmt.compared(own), *fmt.compared(macro),
         *(fmt.gap(gain) for gain in gains if gain and gain["n"])]
        for shown, label, (own, macro, *gains) in fmt.each(
            results, "table2", TASK, ROWS,
            optional=["accuracy_vs_capsar", "accuracy_vs_capsar-bert"],
        )
    ]  # fmt: skip
    header = ["dataset", "model", "seeds", "accuracy", "paper", "Δ", "macro-F1", "paper", "Δ",
              "accuracy minus that without the changes"]  # fmt: skip
    return table(header, rows)


def extra_data(results: Results) -> str:
    """Return what each row was trained on besides the training set."""
    return fmt.bullets(
        f"{shown}, {label}: {entry['extra_data']}; vectors: `{entry['vectors']}`."
        for shown, label, (entry,) in fmt.each(results, "table2", ["accuracy"], ROWS)
        if entry["extra_data"]
    )


def detection(results: Results) -> str:
    """Return aspect detection, gold of all terms."""
    rows = [
        [shown, *(cell for entry in entries for cell in fmt.compared(entry))]
        for shown, _, entries in fmt.each(results, "table4", RANKING, _BIGRU, gold="all")
    ]
    header = ["dataset", *(c for name in RANKING for c in (METRICS[name], "paper", "Δ"))]
    return table(header, rows)


def arts(results: Results) -> str:
    """Return accuracy on the ARTS variants."""
    rows = [
        [shown, label, *map(spread, entries)]
        for shown, label, entries in fmt.each(
            results, "arts", list(VARIANTS), {"capsar": "CAPSAR", **ROWS}, protocol="ours"
        )
    ]
    return table(["dataset", "model", *VARIANTS.values()], rows)


def ablation(results: Results) -> str:
    """Return the row without one of its changes."""
    names = [*TASK, *(f"{metric}_vs_capsar-extended" for metric in TASK)]
    rows = [
        [label, own["n"], spread(own), spread(macro), *map(fmt.gap, gaps)]
        for _, label, (own, macro, *gaps) in fmt.each(results, "table2", names, ABLATIONS)
    ]
    header = ["without", "seeds", "accuracy", "macro-F1", "accuracy minus full", "macro-F1 minus"]
    return table(header, rows)


def trials(results: Results) -> str:
    """Return the settings that were tried by cross-validation on the training sets."""
    rows = [
        [
            DATASETS[trial["dataset"]],
            f"`{trial['model']}`",
            ", ".join(f"`{change}`" for change in trial["changes"]),
            *(number((trial | trial["detection"])[name]) for name in _TRIAL_METRICS),
        ]
        for trial in results.read("extended-trials").get("trials", ())
    ]
    return table(["dataset", "fine-tuned", "settings", *_TRIAL_METRICS.values()], rows)
