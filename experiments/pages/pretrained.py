"""Blocks of `docs/results/pretrained.md`: the bundled models on out-of-domain sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.formatting import gap, number, spread, table
from pretrained.sets import BUNDLED, IN_DOMAIN, OUT_OF_DOMAIN

if TYPE_CHECKING:
    from summarize import Results

_COLUMNS = ("accuracy", "macro_f1", "ece", "span_f1", "joint_f1", "ars")
_LABELS = {name: f"`{name}`" for name in BUNDLED} | {"majority": "majority class"}
_TRAINED = {"capsar": "CAPSAR trained on it", "capsar-bert": "CAPSAR-BERT trained on it"}


def out_of_domain(results: Results) -> str:
    """Return the bundled models, the majority class and models trained on each set."""
    found, rows = results.summary, []
    for dataset, name in (OUT_OF_DOMAIN | IN_DOMAIN).items():
        shown = f"{name} (in training)" if dataset in IN_DOMAIN else name
        for row, label in _LABELS.items():
            own = {
                entry["metric"]: number(entry["mean"])
                for entry in found.find("out-of-domain", row=row, dataset=dataset)
            }
            if own:
                cells = [own.get(column, "") for column in _COLUMNS]
                bounds = (own.get("accuracy_low"), own.get("accuracy_high"))
                shown_bounds = f"{bounds[0]} to {bounds[1]}" if all(bounds) else ""
                rows.append([shown, label, cells[0], shown_bounds, *cells[1:]])
        for row, label in _TRAINED.items():
            which = {"row": row, "dataset": dataset, "protocol": "ours"}
            for entry in found.find("table2", metric="accuracy", **which):
                encoder = entry["encoder"]
                macro = found.one("table2", metric="macro_f1", encoder=encoder, **which)
                if entry["mean"] is not None:
                    cells = [spread(entry), "", spread(macro)]
                    rows.append([shown, f"{label} ({encoder})", *cells, "", "", "", ""])
    header = ["set", "model", "accuracy", "95 %", "macro-F1", "ECE", "span F1", "span + polarity"]
    return table([*header, "ARS"], rows)


def neutral_shares(results: Results) -> str:
    """Return how many aspects are neutral, and how many `base` predicts to be."""
    rows = []
    for dataset, shown in (OUT_OF_DOMAIN | IN_DOMAIN).items():
        names = ("neutral_share", "predicted_neutral_share")
        which = {"row": "base", "dataset": dataset}
        entries = results.summary.all_of("out-of-domain", names, **which)
        if entries:
            rows.append([shown, *(number(entry["mean"]) for entry in entries)])
    return table(["set", "neutral aspects", "predicted neutral by `base`"], rows)


def few_rows(results: Results) -> str:
    """Return `base` fine-tuned on 200 labelled rows of Laptop."""
    metrics = ("accuracy", "macro_f1", "span_f1", "joint_f1")
    rows = []
    for prefix, shown in {"": "test set", "rest_": "training rows not drawn"}.items():
        which = {"row": "base-200-rows", "dataset": "laptop"}
        names = [f"{prefix}{metric}" for metric in metrics]
        own = results.summary.all_of("out-of-domain", names, **which)
        gaps = results.summary.all_of("out-of-domain", [f"{n}_vs_base" for n in names], **which)
        if own and gaps:
            rows.append([shown, "fine-tuned", *map(spread, own)])
            rows.append([shown, "minus `base`", *map(gap, gaps)])
    return table(["evaluated on", "", "accuracy", "macro-F1", "span F1", "span + polarity"], rows)


def smoke_set(results: Results) -> str:
    """Return how many sentences of the smoke set are right."""
    rows = [
        [
            f"`{name}`", f"{found['polarities_right']} of {found['polarities']}",
            f"{found['sentences_right']} of {found['sentences']}",
        ]
        for name, found in results.read("smoke-set").get("models", {}).items()
    ]  # fmt: skip
    header = ["model", "polarities right, aspect given", "sentences entirely right"]
    return table(header, rows)
