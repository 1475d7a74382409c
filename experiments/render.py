"""`summary.json` and the run files -> `docs/results.md`: a pure function, so a test can repeat it.

No figure and no judgement on this page is written by hand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import render_ablations
import render_bert
import render_best
import render_detection
import render_faithfulness
import render_limits
import render_spans
import render_unseen
from capsar.config import run_config
from cases import CASES, LONG_PAIR
from cells import compared, counted, listed, number, paragraph, seeds, spread, table
from entries import DATASETS, METRICS, ROWS, VARIANTS, Entries
from runs import ROOT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from summary_values import Entry, RunFile

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
        render_faithfulness.faithfulness(found),
        _arts(found, runs),
        render_bert.section(found),
        render_best.section(found),
        render_spans.spans(found),
        render_spans.confidence(found),
        render_unseen.section(found),
        render_limits.section(found, runs),
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
    lines += render_ablations.in_short(found) + render_detection.in_short(found)
    lines += render_bert.in_short(found) + render_best.in_short(found)
    if not lines:
        return ""
    shown = "\n".join(paragraph(f"- {line}", "  ") for line in lines)
    return f"## In short\n\n{shown}"


def _against(entry: Entry) -> str:
    gap = entry["mean"] - entry["paper"]
    where = "above" if gap > 0 else "below"
    return f"{number(abs(gap))} {where} the paper's {number(entry['paper'])}"


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
    parts = ["## Table 1: the data", table(header, rows), said, _shared(found)]
    return "\n\n".join(part for part in parts if part)


def _shared(found: Entries) -> str:
    """Say how much of each test part its training part holds."""
    told = []
    for dataset, shown in DATASETS.items():
        names = [f"shared_{what}" for what in ("exact", "near", "examples", "test_examples")]
        entries = found.all_of("splits", names, dataset=dataset)
        if entries:
            exact, near, examples, total = (f"{entry['mean']:g}" for entry in entries)
            told.append(
                f"{shown} {exact} exactly and {near} nearly ({examples} of {total} examples)"
            )
    if not told:
        return ""
    return paragraph(
        f"""As published, training parts hold sentences of their test parts: {"; ".join(told)}. The
        rows below are of the published splits, as everybody's are, and keep them; whatever else is
        trained on is cleared of them."""
    )


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
    parts += [render_ablations.differences(found), render_ablations.stalled(runs), _by_class(found)]
    return "\n\n".join(part for part in parts if part)


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
        "<!-- not run: needs datasets that may not be passed on, and a day -->\n"
        "```sh\nCAPSAR_DATA=… python experiments/reproduce.py all --jobs 2\n```",
    ]
    if runs:
        commits = counted(f"`{run['commit'][:12]}`" for run in runs)
        machines = counted(run["machine"] for run in runs)
        versions = counted(
            ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            for run in runs
        )
        # A point of a sweep that is a run of a table was not trained again. Settings that came
        # after some runs had their defaults.
        settings = [run_config(run["config"]).as_dict() for run in runs]
        seconds = {
            json.dumps(own, sort_keys=True): run["seconds"]
            for own, run in zip(settings, runs, strict=True)
        }
        hours = sum(map(float, seconds.values())) / 3600
        parts.append(paragraph(
            f"""Trained at commit {commits}. {machines}; {versions}. Training took {hours:.1f} hours
            of one core in all."""
        ))  # fmt: skip
    return "\n\n".join(part for part in parts if part)
