"""Run files -> `summary.json`: one entry a figure, mean and spread over seeds, the paper's beside.

Every table of `docs/results.md` is drawn from these entries. A difference is an entry too, paired
over seeds: its metric names what it is a difference to (`accuracy_vs_capsar`, `map_vs_centroid`).
"""

from __future__ import annotations

import json
from statistics import mean
from typing import TYPE_CHECKING, Any

import paper
from capsar.data.catalog import dataset as find_dataset
from capsar.labels import CLASSES
from cases import CASES, LONG_PAIR
from entries import RANKING, RIVALS
from runs import BERT, BEST, BEST_PARTS, DATASETS, EXPERIMENTS, MAIN, SWEEPS, finished
from summarize_spans import summarize_spans
from summarize_unseen import summarize_few_rows, summarize_unseen
from summary_values import by_seed, make_entry, paired

if TYPE_CHECKING:
    from pathlib import Path

    from summary_values import Entry, RunFile

SUMMARY = EXPERIMENTS / "results" / "summary.json"
BEST_ON_TEST = EXPERIMENTS / "results" / "best-on-test.json"
SPLITS = EXPERIMENTS / "results" / "splits.json"
FAITHFULNESS = EXPERIMENTS / "results" / "faithfulness.json"
UNSEEN = EXPERIMENTS / "results" / "unseen.json"
FEW_ROWS = EXPERIMENTS / "results" / "few-rows.json"
SCORES = ("cosine", "dot")
GOLDS = ("all", "same-polarity")

_WHO = ("capsules", "centroid")
_PRINTED_AS = {"capsar-best": "capsar", "capsar-bert-best": "capsar-bert"}
"""The rows of the paper that the best ones are measured by."""
_CONTROL: dict[str, Any] = {"row": "centroid", "encoder": None}


def summarize(
    runs: list[RunFile],
    best_on_test: list[dict[str, Any]] | None = None,
    faithfulness: list[RunFile] | None = None,
    unseen: dict[str, Any] | None = None,
    few_rows: dict[str, Any] | None = None,
) -> list[Entry]:
    """Return every entry that the runs at hand give."""
    groups: dict[tuple[str, str, str, str], list[RunFile]] = {}
    for run in runs:
        if run["source"] in MAIN + BERT + BEST + BEST_PARTS:
            key = (run["row"], run["encoder"], run["protocol"], run["dataset"])
            groups.setdefault(key, []).append(run)
    scores = {
        encoder: {who: chosen_score(runs, who, encoder) for who in _WHO}
        for encoder in {run["encoder"] for run in runs}
    }
    entries = [*_counts(), *_quoted()]
    for (row, encoder, protocol, dataset), some in groups.items():
        base = groups.get((_base(row), encoder, protocol, dataset), [])
        entries += _classification(some, base)
        entries += _robustness(some, base)
        entries += _detection(some, scores[encoder])
        if _is_main(some[0]):
            entries += _cases(some)
    entries += _pair(groups.get(("capsar", "bigru", "ours", "laptop"), []))
    for run in runs:
        if run["source"] in SWEEPS:
            entries += _point(run, scores[run["encoder"]]["capsules"])
    entries += summarize_spans(runs)
    for diagnosis in best_on_test or []:
        entries += _diagnosis(diagnosis)
    entries += _faithfulness(faithfulness or [])
    return [*entries, *summarize_unseen(unseen or {}), *summarize_few_rows(few_rows or {})]


def _base(row: str) -> str:
    """The row that a row is compared with, on the same encoder: an ablation with the whole."""
    if row in ("capsar", "bert"):
        return ""
    if row == "capsar-bert-best":
        return "capsar-bert"
    if row.startswith("capsar-best-"):
        return "capsar-best"
    return "bert" if "bert" in row else "capsar"


def chosen_score(runs: list[RunFile], who: str = "capsules", encoder: str = "bigru") -> str:
    """Return the word score with the better mean average precision on dev, over CAPSAR's runs."""
    whole = ("capsar", "ours") if encoder == "bigru" else ("capsar-bert", "ours")
    chosen = [
        run
        for run in runs
        if (run["row"], run["protocol"], run["encoder"]) == (*whole, encoder)
        and run["point"] is None
        and run["detection"]
    ]
    if not chosen:
        return SCORES[0]
    on_dev = {
        score: mean(run["detection"]["dev"][who][score]["all"]["map"] for run in chosen)
        for score in SCORES
    }
    return max(SCORES, key=on_dev.__getitem__)


def _counts() -> list[Entry]:
    """Table 1, from the catalog, whose counts are verified against the files."""
    entries = []
    for (dataset, part), counts in paper.COUNTS.items():
        labels = find_dataset(DATASETS[dataset]).file(part).labels
        entries += [
            make_entry("table1", f"{part}_{polarity}", [labels[polarity]], row="data",
                   dataset=dataset, paper_value=count)
            for polarity, count in counts.items()
        ]  # fmt: skip
    return entries


def _quoted() -> list[Entry]:
    return [
        make_entry(
            "table2", metric, [], row=row, dataset=dataset, protocol="paper", paper_value=value
        )
        for row, figures in paper.QUOTED.items()
        for (dataset, metric), value in figures.items()
    ]


def _classification(runs: list[RunFile], whole: list[RunFile]) -> list[Entry]:
    first = runs[0]
    base = _base(first["row"])
    row: str = first["row"]
    printed = paper.CLASSIFICATION.get(_PRINTED_AS.get(row, row), {})
    theirs = paper.CLASSIFICATION.get(base, {})
    entries = []
    for metric in ("accuracy", "macro_f1"):
        name = (first["dataset"], metric)
        values = by_seed(runs, "test", "figures", metric)
        entries.append(
            make_entry("table2", metric, values.values(), run=first, paper_value=printed.get(name))
        )
        dev = by_seed(runs, "dev", f"dev_{metric}")
        if dev:
            entries.append(make_entry("table2", f"dev_{metric}", dev.values(), run=first))
        if base:
            difference = paired(values, by_seed(whole, "test", "figures", metric))
            known = row in paper.CLASSIFICATION and name in printed and name in theirs
            gap = round(printed[name] - theirs[name], 4) if known else None
            entries.append(
                make_entry("table2", f"{metric}_vs_{base}", difference, run=first, paper_value=gap)
            )
            learnt = [run for run in runs if not never_moved(run)]
            if len(learnt) < len(runs):
                values = by_seed(learnt, "test", "figures", metric)
                difference = paired(values, by_seed(whole, "test", "figures", metric))
                entries.append(
                    make_entry("table2", f"{metric}_vs_{base}_learnt", difference, run=first)
                )
    for polarity in CLASSES:
        values = by_seed(runs, "test", "figures", "classes", str(polarity), "f1")
        entries.append(make_entry("table2", f"f1_{polarity}", values.values(), run=first))
    return entries


def never_moved(run: RunFile) -> bool:
    """Tell whether a run gave every dev example the same answer from first to last epoch."""
    figures = {entry.get("dev_macro_f1") for entry in run["history"]}
    return None not in figures and len(run["history"]) > 1 and len(figures) == 1


def _robustness(runs: list[RunFile], whole: list[RunFile]) -> list[Entry]:
    first = runs[0]
    entries = []
    paths: dict[str, tuple[str, ...]] = {}
    variants = first["arts"]["variants"] if first["arts"] else ()
    for name in variants:
        paths[f"accuracy_{name}"] = ("arts", "variants", name, "accuracy")
    if variants:
        paths["ars"] = ("arts", "ars")
    if first["mixed_polarity"]:
        paths["mixed_accuracy"] = ("mixed_polarity", "accuracy")
    for metric, path in paths.items():
        values = by_seed(runs, *path)
        entries.append(make_entry("arts", metric, values.values(), run=first))
        base = _base(first["row"])
        if base and metric == "ars":
            difference = paired(values, by_seed(whole, *path))
            entries.append(make_entry("arts", f"{metric}_vs_{base}", difference, run=first))
    return entries


def _detection(runs: list[RunFile], score: dict[str, str]) -> list[Entry]:
    runs = [run for run in runs if run["detection"]]
    if not runs:
        return []
    first = runs[0]
    entries = _statistics(runs)
    for gold in GOLDS:
        ranked = {
            (who, name, metric): by_seed(runs, "detection", "test", who, name, gold, metric)
            for who in _WHO
            for name in SCORES
            for metric in (*RANKING, "r_at_5_ceiling")
        }
        ceiling = ranked["capsules", "cosine", "r_at_5_ceiling"].values()
        entries.append(make_entry("table4", "r_at_5_ceiling", ceiling, run=first, gold=gold))
        # The control needs no network, so it is one row, beside the row that it controls.
        whose = _WHO if _is_main(first) else _WHO[:1]
        for who in whose:
            row = _CONTROL if who == "centroid" else {}
            for metric in RANKING:
                printed = paper.DETECTION[first["dataset"], metric]
                best = ranked[who, score[who], metric].values()
                own = gold == "all" and who == "capsules" and first["encoder"] == "bigru"
                shown = printed if own else None
                entries.append(
                    make_entry(
                        "table4", metric, best, run=first, gold=gold, paper_value=shown, **row
                    )
                )
                entries += [
                    make_entry("table4", f"{metric}_{name}", ranked[who, name, metric].values(),
                           run=first, gold=gold, **row)
                    for name in SCORES
                ]  # fmt: skip
        for metric in RANKING:
            difference = paired(
                ranked["capsules", score["capsules"], metric],
                ranked["centroid", score["centroid"], metric],
            )
            entries.append(
                make_entry("table4", f"{metric}_vs_centroid", difference, run=first, gold=gold)
            )
            for name in SCORES:
                difference = paired(*(ranked[who, name, metric] for who in _WHO))
                entries.append(
                    make_entry("table4", f"{metric}_{name}_vs_centroid", difference, run=first,
                           gold=gold)
                )  # fmt: skip
    return entries


def _is_main(run: RunFile) -> bool:
    return (run["row"], run["protocol"]) == ("capsar", "ours")


def _statistics(runs: list[RunFile]) -> list[Entry]:
    first = runs[0]
    entries = []
    for metric in ("gold_words", "sentence_words", "none_active", "active_capsules"):
        values = by_seed(runs, "detection", "test", "statistics", metric)
        printed = paper.DETECTION.get((first["dataset"], metric))
        entries.append(
            make_entry("table4", metric, values.values(), run=first, paper_value=printed)
        )
    if _is_main(first):
        for who in _WHO:
            row = _CONTROL if who == "centroid" else {}
            for name in SCORES:
                dev = by_seed(runs, "detection", "dev", who, name, "all", "map")
                entries.append(
                    make_entry(
                        "table4", f"dev_map_{name}", dev.values(), run=first, gold="all", **row
                    )
                )
    return entries


def _cases(runs: list[RunFile]) -> list[Entry]:
    """Table 3: the share of seeds that are right on each case, beside whether the paper is."""
    entries = []
    for case in CASES:
        if case.dataset == runs[0]["dataset"]:
            values = [float(_right(run, case.name)) for run in runs]
            printed = float(case.paper["CAPSAR"] == case.polarity)
            entries.append(
                make_entry("table3", f"case_{case.name}", values, run=runs[0],
                       paper_value=printed)
            )  # fmt: skip
    return entries


def _pair(runs: list[RunFile]) -> list[Entry]:
    if not runs:
        return []
    values = [float(all(_right(run, name) for name in LONG_PAIR)) for run in runs]
    return [make_entry("table3", "long_pair", values, run=runs[0], paper_value=1.0)]


def _right(run: RunFile, name: str) -> bool:
    (case,) = (case for case in run["cases"] if case["case"] == name)
    return bool(case["predicted"] == case["polarity"])


def _point(run: RunFile, score: str) -> list[Entry]:
    """One point of a figure: its row is the sweep's name and the value."""
    row = f"{run['source']}-{run['point'][1]:g}"
    figures = run["test"]["figures"]
    values = {"accuracy": figures["accuracy"], "macro_f1": figures["macro_f1"]}
    values |= {"dev_macro_f1": run["dev"]["dev_macro_f1"]}
    values |= {"train_examples": run["train_examples"], "coverage": run["coverage"]["test"]}
    entries = [
        make_entry("figures", name, [value], run=run, row=row) for name, value in values.items()
    ]
    if run["detection"]:
        value = run["detection"]["test"]["capsules"][score]["all"]["map"]
        entries.append(make_entry("figures", "map", [value], run=run, row=row, gold="all"))
    return entries


def _diagnosis(diagnosis: dict[str, Any]) -> list[Entry]:
    """What choosing the epoch on the test part would have shown: never used."""
    epochs = diagnosis["epochs"]
    selected = epochs[diagnosis["best_epoch"]]
    entries = []
    for metric in ("accuracy", "macro_f1"):
        best = max(epoch[f"test_{metric}"] for epoch in epochs)
        for name, value in (("dev_selected", selected[f"test_{metric}"]), ("best_on_test", best)):
            entries.append(make_entry("diagnosis", f"{metric}_{name}", [value], run=diagnosis))
    return entries


def _faithfulness(judged: list[RunFile]) -> list[Entry]:
    """How faithful *because* is, its rivals, and the differences over seeds."""
    groups: dict[tuple[str, str], list[RunFile]] = {}
    for run in judged:
        groups.setdefault((run["row"], run["dataset"]), []).append(run)
    entries = []
    for some in groups.values():
        first = some[0]
        for measure in ("comprehensiveness", "sufficiency"):
            own = by_seed(some, "faithfulness", measure)
            entries.append(make_entry("faithfulness", measure, own.values(), run=first))
            for rival in RIVALS:
                name = f"{measure}_{rival}"
                theirs = by_seed(some, "faithfulness", name)
                entries.append(make_entry("faithfulness", name, theirs.values(), run=first))
                difference = paired(own, theirs)
                entries.append(
                    make_entry("faithfulness", f"{measure}_vs_{rival}", difference, run=first)
                )
        lengths = by_seed(some, "faithfulness", "length")
        entries.append(make_entry("faithfulness", "length", lengths.values(), run=first))
    return entries


def summarize_committed() -> list[Entry]:
    """Summarize the run files at hand."""
    judged = summarize(
        finished(),
        _read(BEST_ON_TEST).get("runs", []),
        _read(FAITHFULNESS).get("runs", []),
        _read(UNSEEN),
        _read(FEW_ROWS),
    )
    return [*judged, *_splits(_read(SPLITS).get("shared", {}))]


def _splits(shared: dict[str, dict[str, int]]) -> list[Entry]:
    """How much of each test part stands in its training part."""
    return [
        make_entry("splits", f"shared_{what}", [number], row="data", dataset=dataset)
        for dataset, counts in shared.items()
        for what, number in counts.items()
    ]


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content
