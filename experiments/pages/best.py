"""Blocks of `docs/results/extensions.md` about `capsar-best`: CAPSAR with additional data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from metrics.interval import gap_to_paper
from pages import formatting as fmt
from pages.formatting import DATASETS, METRICS, VARIANTS, number, spread, table
from summarize import RANKING, TASK

if TYPE_CHECKING:
    from summarize import Results

_BEST = {"capsar-best": "CAPSAR, Bi-GRU"}
ROWS = {**_BEST, "capsar-bert-best": "CAPSAR-BERT: the teacher"}
ABLATIONS = {
    "capsar-best-wo-distillation": "pseudo-labelled reviews",
    "capsar-best-wo-teacher": "any teacher, and its pseudo-labels",
    "capsar-best-wo-feature-distillation": "feature distillation",
    "capsar-best-wo-both": "feature distillation, and MAMS",
    "capsar-best-wo-labelled": "other labelled reviews",
    "capsar-best-wo-ema": "the moving average of weights (EMA)",
    "capsar-best-wo-settings": "settings other than the paper's",
}
"""Each without one of the changes, on Restaurant."""
_SHOWN_TRIALS = 6
"""How many of the searched trials are shown, best first."""
_TRIAL_METRICS = {
    "agreement": "agreement with the teacher",
    "distance": "squared distance of lengths",
    "validation_accuracy": "validation accuracy",
    "validation_macro_f1": "macro-F1",
    "validation_p_at_1": "P@1",
    "validation_r_at_5": "R@5",
    "validation_map": "mAP",
}


def overview(results: Results) -> str:
    """Return which metrics differ significantly from the paper."""
    named = []
    for name, metrics, gold in (("table2", TASK, None), ("table4", RANKING, "all")):
        for shown, _, entries in fmt.each(results, name, metrics, _BEST, gold=gold):
            for entry in entries:
                gap = gap_to_paper(entry)
                named.append((f"{shown} {METRICS[entry['metric']]} ({fmt.interval(gap)})", gap))
    return fmt.bullets(fmt.by_verdict(named).split("; "))


def accuracy(results: Results) -> str:
    """Return accuracy and macro-F1 beside the paper and beside the row without the changes."""
    rows = [
        [shown, label, own["n"], *fmt.compared(own), *fmt.compared(macro), spread(validation),
         *(fmt.gap(gain) for gain in gains if gain and gain["n"])]
        for shown, label, (own, macro, validation, *gains) in fmt.each(
            results, "table2", [*TASK, "validation_macro_f1"], ROWS,
            optional=["accuracy_vs_capsar", "accuracy_vs_capsar-bert"],
        )
    ]  # fmt: skip
    header = ["dataset", "model", "seeds", "accuracy", "paper", "Δ", "macro-F1", "paper", "Δ",
              "validation macro-F1", "accuracy minus that without the changes"]  # fmt: skip
    return table(header, rows)


def extra_data(results: Results) -> str:
    """Return what each row was trained on besides the training set."""
    return fmt.bullets(
        f"{shown}, {label}: {entry['extra_data']}; vectors: `{entry['vectors']}`."
        for shown, label, (entry,) in fmt.each(results, "table2", ["accuracy"], ROWS)
        if entry["extra_data"]
    )


def exposure(results: Results) -> str:
    """Return the generations of the row that were scored on the test set."""
    rows = [
        [DATASETS[dataset], index, one["seeds"], number(one["accuracy"]), f"`{one['commit']}`"]
        for dataset, generations in results.read("best-generations").get("generations", {}).items()
        for index, one in enumerate(generations, 1)
    ]
    return table(["dataset", "generation", "seeds", "test accuracy", "committed in"], rows)


def feature_distillation(results: Results) -> str:
    """Return validation macro-F1 by seed, with and without feature distillation."""
    sources = ("capsar-best", "capsar-best-wo-feature-distillation")
    values = {
        (run["source"], run["seed"]): run["validation"]["validation_macro_f1"]
        for run in results.runs
        if run["dataset"] == "restaurant" and run["source"] in sources
    }
    rows = [
        [seed, *(number(values[source, seed]) for source in sources)]
        for seed in sorted(seed for source, seed in values if source == sources[1])
    ]
    return table(["seed", "with feature distillation", "without"], rows)


def detection(results: Results) -> str:
    """Return aspect detection, gold of all terms."""
    rows = [
        [shown, *(cell for entry in entries for cell in fmt.compared(entry))]
        for shown, _, entries in fmt.each(results, "table4", RANKING, _BEST, gold="all")
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
    names = [*TASK, *(f"{metric}_vs_capsar-best" for metric in TASK)]
    rows = [
        [label, own["n"], spread(own), spread(macro), *map(fmt.gap, gaps)]
        for _, label, (own, macro, *gaps) in fmt.each(results, "table2", names, ABLATIONS)
    ]
    header = ["without", "seeds", "accuracy", "macro-F1", "accuracy minus full", "macro-F1 minus"]
    return table(header, rows)


def search(results: Results) -> str:
    """Return the hyperparameter search: the given trials and the best searched ones."""
    study = results.read("search")
    if not study:
        return ""
    trials: list[dict[str, Any]] = study["trials"]
    complete = [trial for trial in trials if trial["state"] == "complete"]
    given = [trial for trial in complete if trial["given"]]
    searched = sorted(
        (trial for trial in complete if not trial["given"]),
        key=lambda trial: -float(trial["value"]),
    )
    names = [name for name in DATASETS if name in given[0]]
    rows = [
        [
            str(trial["number"]), _changes(trial["settings"], given[0]["settings"]),
            *(number(trial[name]) for name in names), number(trial["value"]),
        ]
        for trial in (*given, *searched[:_SHOWN_TRIALS])
    ]  # fmt: skip
    pruned = sum(trial["state"] == "pruned" for trial in trials)
    said = fmt.paragraph(
        f"""{len(trials)} trials, {study["seconds"] / 3600:.1f} hours of one core,
        {study["folds"]}-fold cross-validation, at most {study["max_epochs"]} epochs; {pruned}
        trials were pruned after Laptop."""
    )
    parts = [said, table(["trial", "changed", *(DATASETS[name] for name in names), "mean"], rows)]
    if searched:
        gains = [
            fmt.signed(searched[0]["value"] - trial["value"]) for trial in (given[0], given[-1])
        ]
        parts.append(fmt.paragraph(
            f"""The best trial differs by {gains[0]} from the settings of CAPSAR and by {gains[1]}
            from those of `capsar-best`. As the maximum of many trials it is biased upward, and no
            setting was taken from it."""
        ))  # fmt: skip
    return "\n\n".join(parts)


def _changes(settings: dict[str, Any], reference: dict[str, Any]) -> str:
    changed = [
        f"`{name} = {f'{value:.3g}' if isinstance(value, float) else json.dumps(value)}`"
        for name, value in settings.items()
        if value != reference[name]
    ]
    return ", ".join(changed) or "none"


def trials(results: Results) -> str:
    """Return the settings that were tried one by one."""
    rows = [
        [
            DATASETS[trial["dataset"]],
            ", ".join(f"`{name} = {json.dumps(v)}`" for name, v in trial["changes"].items())
            or "none",
            *(number(trial[name]) if name in trial else "" for name in _TRIAL_METRICS),
        ]
        for trial in results.read("best-trials").get("trials", ())
    ]
    return table(["dataset", "changed", *_TRIAL_METRICS.values()], rows)
