"""`summary.json` and the run files -> `docs/results.md`: a pure function, so a test can repeat it.

No figure and no judgement on this page is written by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import render_bert
import render_detection
from cases import CASES, LONG_PAIR
from cells import (
    compared,
    counted,
    interval,
    listed,
    number,
    paragraph,
    seeds,
    signed,
    spread,
    table,
)
from entries import DATASETS, METRICS, ROWS, VARIANTS, Entries
from interval import difference_of
from runs import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from summarize import Entry, RunFile

RESULTS_PAGE = ROOT / "docs" / "results.md"
FIGURES = {
    "one-active": "One sentiment capsule active: capsule lengths, and what the active one is about "
    "(the paper's figure 2, on a sentence of our own)",
    "two-active": "Two active (the paper's figure 3, on a sentence of our own)",
    "training": "Training curves of CAPSAR, a line a seed; the dot is the epoch chosen on dev",
    "length": "Is a capsule's length a probability? CAPSAR, all seeds together",
    "routing": "Routing iterations (Restaurant, one seed)",
    "lambda": "The weight of reconstruction (Restaurant, one seed)",
    "train-share": "Training size (Restaurant, one seed)",
    "coverage": "Test words with a pre-trained vector (Restaurant, one seed)",
}
_ABLATIONS = ("capsar-wo-r", "capsar-wo-h")
_TASK = ("accuracy", "macro_f1")
_CLASSES = ("negative", "neutral", "positive")


def render(summary: Sequence[Entry], runs: Sequence[RunFile], figures: Collection[str] = ()) -> str:
    """Return the page that the figures at hand give."""
    found = Entries(summary)
    parts = [
        _head(runs),
        _short(found),
        _table1(found),
        _table2(found, runs),
        _table3(found, runs),
        render_detection.table4(found),
        _arts(found, runs),
        render_bert.section(found),
        _limits(found, runs),
        _figures(figures),
        _repeat(runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(runs: Sequence[RunFile]) -> str:
    vectors = sorted({f"`{run['vectors']}`" for run in runs if run["source"] == "capsar"})
    said = paragraph(
        f"""Rendered from `experiments/results/` by `python experiments/reproduce.py`; nothing here
        is written by hand, and a test renders it again. Figures are means over seeds ± standard
        deviation. *ours*: the epoch is chosen on a dev part cut from the training data (at most 30
        epochs, patience 6 once answers differ); *fixed*: 80 epochs on all training data, the last
        weights. The test part is never read before training has ended, and chooses nothing. Word
        vectors: {listed(vectors) if vectors else "none"}; the paper's GloVe 42B could not be had.
        {len(runs)} runs are behind this page."""
    )
    return f"# Results\n\n{said}"


def _short(found: Entries) -> str:
    lines = []
    for dataset, shown in DATASETS.items():
        which = {"row": "capsar", "protocol": "ours", "dataset": dataset}
        entries = found.all_of("table2", _TASK, **which)
        told = [f"{METRICS[e['metric']]} {spread(e)}, {_against(e)}" for e in entries]
        if told:
            lines.append(f"{shown}: {'; '.join(told)}{seeds(entries[0])}.")
    lines += _ablation_lines(found) + render_detection.in_short(found)
    lines += render_bert.in_short(found)
    if not lines:
        return ""
    shown = "\n".join(paragraph(f"- {line}", "  ") for line in lines)
    return f"## In short\n\n{shown}"


def _against(entry: Entry) -> str:
    gap = entry["mean"] - entry["paper"]
    where = "above" if gap > 0 else "below"
    return f"{number(abs(gap))} {where} the paper's {number(entry['paper'])}"


def _ablation_lines(found: Entries) -> list[str]:
    words = {
        "falls": "falls, with an interval that leaves out 0, in",
        "rises": "rises, with an interval that leaves out 0, in",
        "cannot be told": "cannot be told from no difference in",
    }
    lines = []
    for row in _ABLATIONS:
        verdicts: dict[str, list[str]] = {}
        for dataset, metric, entry in _ablation_entries(found, row):
            shown = f"{DATASETS[dataset]} {METRICS[metric]}"
            verdicts.setdefault(difference_of(entry).verdict, []).append(shown)
        told = [f"{words[v]} {listed(verdicts[v])}" for v in words if v in verdicts]
        if told:
            lines.append(
                f"{ROWS[row]} against CAPSAR: the paper says that every figure falls. Ours "
                f"{'; it '.join(told)}."
            )
    return lines


def _ablation_entries(found: Entries, row: str) -> list[tuple[str, str, Entry]]:
    return [
        (dataset, metric, entry)
        for dataset in DATASETS
        for metric in _TASK
        for entry in found.all_of(
            "table2", [f"{metric}_vs_capsar"], row=row, protocol="ours", dataset=dataset
        )
    ]


def _table1(found: Entries) -> str:
    rows = []
    for dataset, shown in DATASETS.items():
        for part in ("train", "test"):
            names = [f"{part}_{polarity}" for polarity in _CLASSES]
            cells = [
                f"{e['mean']:g}" + (f" (paper {e['paper']:g})" if e["mean"] != e["paper"] else "")
                for e in found.all_of("table1", names, dataset=dataset)
            ]
            rows.append([shown, part, *cells])
    differ = {DATASETS[e["dataset"]] for e in found.find("table1") if e["mean"] != e["paper"]}
    others = [shown for shown in DATASETS.values() if shown not in differ]
    said = paragraph(
        f"""The counts of {listed(others)} are the paper's (the first release of the training files,
        without *conflict*). No file with the paper's other counts is known."""
    )
    header = ["dataset", "part", *_CLASSES]
    return f"## Table 1: the data\n\n{table(header, rows)}\n\n{said}"


def _table2(found: Entries, runs: Sequence[RunFile]) -> str:
    parts = ["## Table 2: accuracy and macro-F1, the aspect given"]
    header = ["model", "protocol", "accuracy", "paper", "Δ", "macro-F1", "paper", "Δ", "on dev"]
    quoted = list(dict.fromkeys(e["row"] for e in found.find("table2", protocol="paper")))
    for dataset, shown in DATASETS.items():
        rows = []
        for row in (*quoted, *ROWS):
            for protocol in ("paper", "ours", "fixed"):
                which = {"row": row, "protocol": protocol, "dataset": dataset}
                accuracy = found.one("table2", metric="accuracy", **which)
                if accuracy is None:
                    continue
                macro = found.one("table2", metric="macro_f1", **which)
                dev = found.one("table2", metric="dev_macro_f1", **which)
                run = "quoted" if protocol == "paper" else protocol + seeds(accuracy)
                label = row if protocol == "paper" else f"**{ROWS[row]}**"
                on_dev = spread(dev) if dev else ""
                rows.append([label, run, *compared(accuracy), *compared(macro), on_dev])
        parts.append(f"### {shown}\n\n{table(header, rows)}")
    parts.append("The last column is macro-F1 on dev at the chosen epoch.")
    parts += [_ablations(found), _stalled(runs), _by_class(found)]
    return "\n\n".join(part for part in parts if part)


def _ablations(found: Entries) -> str:
    rows = []
    for row in _ABLATIONS:
        for dataset, metric, entry in _ablation_entries(found, row):
            difference = difference_of(entry)
            rows.append([
                ROWS[row], DATASETS[dataset], METRICS[metric], interval(difference),
                str(entry["n"]), signed(entry["paper"]), difference.verdict,
            ])  # fmt: skip
    if not rows:
        return ""
    header = ["ablation", "dataset", "metric", "minus CAPSAR", "pairs", "paper", "ours"]
    said = paragraph(
        """Differences to CAPSAR with the same seed, with 95 % intervals over seeds (Student's t).
        They say nothing of another test set."""
    )
    return f"### Do the ablations fall?\n\n{said}\n\n{table(header, rows)}"


def _stalled(runs: Sequence[RunFile]) -> str:
    """Say which runs never left the answer that is the same for every dev example."""
    lines = []
    for row, shown in ROWS.items():
        judged = [run for run in runs if run["row"] == row and run["point"] is None]
        stalled = [run for run in judged if _never_moved(run)]
        if stalled:
            where = Counter(DATASETS[run["dataset"]] for run in stalled)
            told = listed([f"{count} on {dataset}" for dataset, count in where.items()])
            lines.append(
                f"{len(stalled)} of {len(judged)} runs of {shown} ({told}) never moved from one "
                "dev macro-F1: they did not learn, and pull the means above down."
            )
    return "\n\n".join(map(paragraph, lines))


def _never_moved(run: RunFile) -> bool:
    figures = {entry.get("dev_macro_f1") for entry in run["history"]}
    return None not in figures and len(run["history"]) > 1 and len(figures) == 1


def _by_class(found: Entries) -> str:
    rows = []
    for dataset, shown in DATASETS.items():
        which = {"row": "capsar", "protocol": "ours", "dataset": dataset}
        entries = found.all_of("table2", [f"f1_{name}" for name in _CLASSES], **which)
        if entries:
            rows.append([shown, *map(spread, entries)])
    header = ["F1 of CAPSAR, ours", *_CLASSES]
    return f"### By class\n\n{table(header, rows)}" if rows else ""


def _table3(found: Entries, runs: Sequence[RunFile]) -> str:
    chosen = sorted((r for r in runs if r["source"] == "capsar"), key=lambda run: int(run["seed"]))
    if not any(run["cases"] for run in chosen):
        return ""
    rows = []
    for case in CASES:
        predicted = [
            _mark(told["predicted"], case.polarity)
            for run in chosen
            for told in run["cases"]
            if (run["dataset"], told["case"]) == (case.dataset, case.name)
        ]
        rows.append([
            case.name, f"{DATASETS[case.dataset]} `{case.sentence}`", f"*{case.aspect}*",
            case.polarity, " ".join(predicted) or "–",
            *(_mark(told, case.polarity) for told in case.paper.values()),
        ])  # fmt: skip
    parts = [
        "## Table 3: the paper's case sentences",
        paragraph(
            """Named by their ids in the published test files; the last four columns are the
            paper's. + positive, 0 neutral, − negative, ✗ wrong."""
        ),
        table(["case", "sentence", "aspect", "true", "ours, by seed", *CASES[0].paper], rows),
    ]
    pair = found.one("table3", metric="long_pair")
    if pair:
        parts.append(paragraph(
            f"""The target-sensitive pair (cases {" and ".join(LONG_PAIR)}, *long* said of two
            aspects) is right as a whole in {round(pair["mean"] * pair["n"])} of {pair["n"]} seeds;
            the paper's CAPSAR has it right."""
        ))  # fmt: skip
    return "\n\n".join(parts)


def _mark(predicted: str, truth: str) -> str:
    sign = {"positive": "+", "neutral": "0", "negative": "−"}[predicted]
    return sign if predicted == truth else f"{sign}✗"


def _arts(found: Entries, runs: Sequence[RunFile]) -> str:
    rows = []
    for dataset, shown in DATASETS.items():
        for row, label in ROWS.items():
            for protocol in ("ours", "fixed"):
                which = {"row": row, "protocol": protocol, "dataset": dataset}
                entries = [found.one("arts", metric=metric, **which) for metric in VARIANTS]
                first = next((entry for entry in entries if entry), None)
                if first:
                    cells = [spread(entry) if entry else "" for entry in entries]
                    rows.append([shown, label, protocol + seeds(first), *cells])
    if not rows:
        return ""
    judged = {DATASETS[run["dataset"]]: run["arts"] for run in runs if run.get("arts")}
    sizes = " ".join(
        f"{shown}: {', '.join(str(part['num_examples']) for part in arts['variants'].values())} "
        f"examples in the four variants, {arts['num_groups']} (sentence, aspect)."
        for shown, arts in sorted(judged.items(), reverse=True)
    )
    said = paragraph(
        f"""Accuracy on the rewritten test sentences of Xing et al. (EMNLP 2020), the share of
        (sentence, aspect) that is right in all variants, and accuracy on the test sentences whose
        own terms differ in polarity. The paper has no such table. `capsar evaluate BUNDLE --dataset
        semeval14-restaurants --robustness` prints it for any model. {sizes} Records of the
        published files that cannot be read (`capsar data check` names them) are left out."""
    )
    header = ["dataset", "model", "protocol", *VARIANTS.values()]
    return f"## Robustness: ARTS\n\n{said}\n\n{table(header, rows)}"


def _limits(found: Entries, runs: Sequence[RunFile]) -> str:
    sweeps = {
        "sweep-train-share": "training examples",
        "sweep-vector-share": "test words with a vector",
        "sweep-routing": "routing iterations",
        "sweep-lambda": "lambda",
    }
    parts = [_sweep(found, runs, source, label) for source, label in sweeps.items()]
    parts = [part for part in (*parts, _diagnosis(found)) if part]
    return "\n\n".join(["## What limits these figures", *parts]) if parts else ""


def _sweep(found: Entries, runs: Sequence[RunFile], source: str, label: str) -> str:
    some = sorted(
        (run for run in runs if run["source"] == source), key=lambda run: float(run["point"][1])
    )
    rows, values = [], []
    for run in some:
        point = f"{run['point'][1]:g}"
        entries = found.find("figures", row=f"{source}-{point}")
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
    parts = [f"### Against {label} (Restaurant, one seed)", table(header, rows)]
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


def _figures(figures: Collection[str]) -> str:
    shown = [
        f"![{text}](figures/{name}.svg)\n\n*{text}.*"
        for name, text in FIGURES.items()
        if name in figures
    ]
    return "\n\n".join(["## Figures", *shown]) if shown else ""


def _repeat(runs: Sequence[RunFile]) -> str:
    parts = [
        "## Repeat it",
        "```\nCAPSAR_DATA=… python experiments/reproduce.py all --jobs 2\n```",
    ]
    if runs:
        commits = counted(f"`{run['commit'][:12]}`" for run in runs)
        machines = counted(run["machine"] for run in runs)
        versions = counted(
            ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            for run in runs
        )
        # A point of a sweep that is a run of a table was not trained again.
        seconds = {json.dumps(run["config"], sort_keys=True): run["seconds"] for run in runs}
        hours = sum(map(float, seconds.values())) / 3600
        parts.append(paragraph(
            f"""Trained at commit {commits}. {machines}; {versions}. Training took {hours:.1f} hours
            of one core in all."""
        ))  # fmt: skip
    return "\n\n".join(part for part in parts if part)
