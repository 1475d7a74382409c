"""Blocks of `docs/results/reproduction.md`: the paper's tables 1 to 3, ablations, sweeps, ARTS."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from capsar.config import run_config
from metrics.interval import difference_of, gap_to_paper
from pages import formatting as fmt
from pages.formatting import DATASETS, METRICS, ROWS, number, spread, table
from paper import CASES, LONG_PAIR
from summarize import RANKING, TASK, is_collapsed

if TYPE_CHECKING:
    from summarize import Results

_CLASSES = ("negative", "neutral", "positive")
_MAIN = {"capsar": "CAPSAR"}
_ABLATIONS = {row: ROWS[row] for row in ("capsar-wo-r", "capsar-wo-h")}
_SWEEPS = {
    "sweep-train-ratio": "training examples",
    "sweep-vector-ratio": "test words with a vector",
    "sweep-routing": "routing iterations",
    "sweep-lambda": "lambda",
}
_POINT_METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "validation_macro_f1": "validation macro-F1",
    "map": "detection mAP",
}


def overview(results: Results) -> str:
    """Return the main results as a list."""
    lines = []
    for what, name, metrics, gold in (
        ("", "table2", TASK, None),
        (", aspect detection", "table4", RANKING, "all"),
    ):
        for shown, _, entries in fmt.each(
            results, name, metrics, _MAIN, protocol="ours", gold=gold
        ):
            parts = [
                f"{METRICS[e['metric']]} {spread(e)} (paper {number(e['paper'])}, difference "
                f"{fmt.interval(gap_to_paper(e))})"
                for e in entries
            ]
            lines.append(f"{shown}{what}: {'; '.join(parts)}{fmt.seeds(entries[0])}.")
    comparisons: list[tuple[Any, ...]] = [
        (f"{label} against CAPSAR (in the paper, every metric is lower)", "table2", TASK,
         {row: label}, "capsar", None)
        for row, label in _ABLATIONS.items()
    ]  # fmt: skip
    control = "Capsules against the centroid control, which needs no network"
    comparisons.append((control, "table4", RANKING, _MAIN, "centroid", "all"))
    for title, name, metrics, rows, reference, gold in comparisons:
        names = [f"{metric}_vs_{reference}" for metric in metrics]
        named = [
            (f"{shown} {METRICS[metric]}", difference_of(entry))
            for shown, _, entries in fmt.each(
                results, name, names, rows, protocol="ours", gold=gold
            )
            for metric, entry in zip(metrics, entries, strict=True)
        ]
        if named:
            lines.append(f"{title}: {fmt.by_verdict(named)}.")
    return fmt.bullets(lines)


def table1(results: Results) -> str:
    """Return the numbers of labeled aspects."""
    rows = []
    for dataset, shown in DATASETS.items():
        for part in ("train", "test"):
            names = [f"{part}_{polarity}" for polarity in _CLASSES]
            cells = [
                f"{e['mean']:g}" + (f" (paper {e['paper']:g})" if e["mean"] != e["paper"] else "")
                for e in results.summary.all_of("table1", names, dataset=dataset)
            ]
            rows.append([shown, part, *cells])
    return table(["dataset", "split", *_CLASSES], rows)


def overlap(results: Results) -> str:
    """Return how much of each test set occurs in its training set."""
    names = [f"shared_{kind}" for kind in ("exact", "near", "examples", "test_examples")]
    rows = [
        [shown, *(f"{entry['mean']:g}" for entry in entries)]
        for shown, _, entries in fmt.each(results, "overlap", names, {"data": ""})
    ]
    header = ["dataset", "test sentences in train, exact", "near", "their examples", "examples"]
    return table(header, rows)


def table2(results: Results) -> str:
    """Return accuracy and macro-F1 of the paper's rows and of ours, one table per dataset."""
    found = results.summary
    header = ["model", "protocol", "accuracy", "paper", "Δ", "macro-F1", "paper", "Δ",
              "validation macro-F1"]  # fmt: skip
    parts = []
    for dataset, shown in DATASETS.items():
        rows = []
        for quoted in found.find("table2", protocol="paper", dataset=dataset, metric="accuracy"):
            row = quoted["row"]
            macro = found.one(
                "table2", protocol="paper", dataset=dataset, metric="macro_f1", row=row
            )
            rows.append([row, "quoted", *fmt.compared(quoted), *fmt.compared(macro), ""])
        for _, label, (accuracy, macro, validation) in fmt.each(
            results, "table2", TASK, ROWS, optional=["validation_macro_f1"], dataset=dataset
        ):
            run = accuracy["protocol"] + fmt.seeds(accuracy)
            cells = [*fmt.compared(accuracy), *fmt.compared(macro), spread(validation)]
            rows.append([f"**{label}**", run, *cells])
        parts.append(f"### {shown}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def by_class(results: Results) -> str:
    """Return the F1 of each class."""
    names = [f"f1_{name}" for name in _CLASSES]
    rows = [
        [shown, *map(spread, entries)]
        for shown, _, entries in fmt.each(results, "table2", names, _MAIN, protocol="ours")
    ]
    return table(["F1 of CAPSAR, ours", *_CLASSES], rows)


def ablations(results: Results) -> str:
    """Return the differences of the ablations to CAPSAR."""
    rows = []
    for suffix, label in {"": "", "_without_collapsed": ", without collapsed runs"}.items():
        names = [f"{metric}_vs_capsar{suffix}" for metric in TASK]
        for shown, ablation, entries in fmt.each(results, "table2", names, _ABLATIONS):
            for metric, entry in zip(TASK, entries, strict=True):
                rows.append([ablation + label, shown, *fmt.difference_cells(metric, entry)])
    header = ["ablation", "dataset", "metric", "minus CAPSAR", "pairs", "paper", "ours"]
    return table(header, sorted(rows, key=lambda row: row[0], reverse=True))


def collapsed(results: Results) -> str:
    """Return which runs predict one class for every validation example after every epoch."""
    lines = []
    for row, label in ROWS.items():
        runs = [run for run in results.runs if run["row"] == row and run["point"] is None]
        stuck = Counter(DATASETS[run["dataset"]] for run in runs if is_collapsed(run))
        if stuck:
            where = fmt.listed([f"{count} on {dataset}" for dataset, count in stuck.items()])
            lines.append(
                f"{stuck.total()} of {len(runs)} runs of {label} collapsed ({where}): their "
                "validation macro-F1 never changed, and they lower the means above."
            )
    return fmt.bullets(lines)


def table3(results: Results) -> str:
    """Return the predictions for the paper's case sentences."""
    chosen = [run for run in results.runs if run["source"] == "capsar"]
    chosen.sort(key=lambda run: int(run["seed"]))
    rows = []
    for case in CASES:
        predicted = [
            _mark(found["predicted"], case.polarity)
            for run in chosen
            for found in run["cases"]
            if (run["dataset"], found["case"]) == (case.dataset, case.name)
        ]
        rows.append([
            case.name, f"{DATASETS[case.dataset]} `{case.sentence}`", f"*{case.aspect}*",
            case.polarity, " ".join(predicted) or "–",
            *(_mark(polarity, case.polarity) for polarity in case.paper.values()),
        ])  # fmt: skip
    shown = table(["case", "sentence", "aspect", "gold", "ours, by seed", *CASES[0].paper], rows)
    pair = results.summary.one("table3", metric="long_pair")
    if pair is None:
        return shown
    said = fmt.paragraph(
        f"""The target-sensitive pair (cases {fmt.listed(list(LONG_PAIR))}, *long* used of two
        aspects) is right as a whole in {round(pair["mean"] * pair["n"])} of {pair["n"]} seeds; in
        the paper, CAPSAR predicts both correctly."""
    )
    return f"{shown}\n\n{said}"


def _mark(predicted: str, gold: str) -> str:
    sign = {"positive": "+", "neutral": "0", "negative": "−"}[predicted]
    return sign if predicted == gold else f"{sign}✗"


def arts(results: Results) -> str:
    """Return accuracy on the ARTS variants and on sentences with mixed polarity."""
    first, *others = reversed(fmt.VARIANTS)  # Twitter has only mixed polarity
    rows = [
        [shown, label, entries[0]["protocol"] + fmt.seeds(entries[0]),
         *map(spread, reversed(entries))]
        for shown, label, entries in fmt.each(results, "arts", [first], ROWS, optional=others)
    ]  # fmt: skip
    sizes = {
        f"{DATASETS[run['dataset']]}: "
        + ", ".join(str(part["num_examples"]) for part in run["arts"]["variants"].values())
        + f" examples in the four variants, {run['arts']['num_groups']} (sentence, aspect) pairs."
        for run in results.runs
        if run.get("arts")
    }
    header = ["dataset", "model", "protocol", *fmt.VARIANTS.values()]
    return f"{table(header, rows)}\n\n{fmt.paragraph(' '.join(sorted(sizes)))}"


def sweeps(results: Results) -> str:
    """Return one table per sweep and dataset."""
    parts = []
    for source, label in _SWEEPS.items():
        for dataset, shown in DATASETS.items():
            runs = [r for r in results.runs if (r["source"], r["dataset"]) == (source, dataset)]
            values = sorted(float(run["point"][1]) for run in runs)
            rows = [_point(results, source, dataset, value) for value in values]
            if rows:
                title = f"### Against {label} ({shown}, one seed)"
                parts.append(f"{title}\n\n{table([label, *_POINT_METRICS.values()], rows)}")
    return "\n\n".join(parts)


def _point(results: Results, source: str, dataset: str, value: float) -> list[str]:
    entries = results.summary.find("sweeps", row=f"{source}-{value:g}", dataset=dataset)
    values = {entry["metric"]: entry["mean"] for entry in entries}
    shown = {
        "sweep-train-ratio": f"{values['train_examples']:g}",
        "sweep-vector-ratio": f"{values['coverage'] * 100:.1f} %",
    }.get(source, f"{value:g}")
    return [shown, *(number(values[m]) if m in values else "–" for m in _POINT_METRICS)]


def best_on_test(results: Results) -> str:
    """Return what selecting the epoch on the test set would have given."""
    rows = []
    for metric in TASK:
        names = [f"{metric}_validation_selected", f"{metric}_best_on_test"]
        for shown, _, entries in fmt.each(results, "diagnosis", names, _MAIN):
            selected, best = (entry["mean"] for entry in entries)
            cells = [number(selected), number(best), fmt.signed(best - selected)]
            rows.append([shown, METRICS[metric], *cells])
    header = ["dataset", "metric", "epoch selected on validation", "best epoch on test", "gap"]
    return table(header, rows)


def provenance(results: Results) -> str:
    """Return commits, machine, versions and time of all runs."""
    runs = results.runs
    commits = fmt.counted(f"`{run['commit'][:12]}`" for run in runs)
    machines = fmt.counted(run["machine"] for run in runs)
    versions = fmt.counted(
        ", ".join(f"{name} {version}" for name, version in run["versions"].items()) for run in runs
    )
    # A point of a sweep that equals a run of a table was not trained again.
    seconds = {
        json.dumps(run_config(run["config"]).as_dict(), sort_keys=True): run["seconds"]
        for run in runs
    }
    hours = sum(map(float, seconds.values())) / 3600
    return fmt.paragraph(
        f"""{len(runs)} runs, trained at commit {commits}. {machines}; {versions}. Training took
        {hours:.1f} hours of one core."""
    )
