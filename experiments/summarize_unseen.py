"""`unseen.json` and `few-rows.json` -> entries of the summary: the models that ship."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from summary_values import make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from summary_values import Entry

TASK = ("accuracy", "macro_f1")


def summarize_unseen(unseen: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries of every set: of the models, and of its most frequent class."""
    for dataset, figures in unseen.get("majority", {}).items():
        for metric in TASK:
            yield make_entry("unseen", metric, [figures[metric]], row="majority", dataset=dataset)
    for row, model in unseen.get("models", {}).items():
        for dataset, judged in model["sets"].items():
            for metric, value in _metrics(judged).items():
                yield make_entry("unseen", metric, [value], row=row, dataset=dataset)


def _metrics(judged: dict[str, Any]) -> dict[str, float]:
    found = {metric: judged["figures"][metric] for metric in TASK}
    for metric in TASK:
        low, high = judged["intervals"][metric]
        found |= {f"{metric}_low": low, f"{metric}_high": high}
    found |= _neutral_shares(judged["figures"])
    for kind, figures in judged["confidence"].items():
        found["ece" if kind == "calibrated" else "ece_uncalibrated"] = figures["ece"]
    if "spans" in judged:
        spans = judged["spans"]
        found |= {"span_f1": spans["spans"]["f1"], "joint_f1": spans["joint"]["f1"]}
    if "arts" in judged:
        found["ars"] = judged["arts"]["ars"]
    return found


def _neutral_shares(figures: dict[str, Any]) -> dict[str, float]:
    """Return how many aspects are neutral, and how many are told to be."""
    neutral, rows = list(figures["classes"]).index("neutral"), figures["confusion"]
    told = sum(row[neutral] for row in rows)
    total = figures["num_examples"]
    return {"neutral_share": sum(rows[neutral]) / total, "told_neutral_share": told / total}


def summarize_few_rows(few: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries of models that went on from `base` with few labelled rows."""
    if not few:
        return
    for metric in (*TASK, "span_f1", "joint_f1"):
        runs = few["runs"]
        parts = {  # the test part, and what was not drawn of the training part
            "": [(run[metric], few["untouched"][metric]) for run in runs],
            "rest_": [(run["rest"][metric], run["rest_untouched"][metric]) for run in runs],
        }
        for prefix, pairs in parts.items():
            own = [value for value, _ in pairs]
            gaps = [value - untouched for value, untouched in pairs]
            for name, values in ((metric, own), (f"{metric}_vs_base", gaps)):
                yield make_entry(
                    "unseen", f"{prefix}{name}", values, row="base-200-rows", dataset="laptop"
                )
