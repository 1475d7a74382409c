"""Run files -> `results/summary.json`: one entry per metric, mean and spread over seeds.

Most tables of the docs are rendered from these entries. A difference is an entry too, paired over
seeds: its metric names the reference (`accuracy_vs_capsar`, `map_vs_centroid`).
`python experiments/summarize.py` writes the file.
"""

from __future__ import annotations

from functools import cached_property
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import paper
from capsar.data.catalog import dataset as find_dataset
from capsar.schema import CLASSES
from paper import LONG_PAIR
from pretrained.sets import VADER
from run import (
    BERT,
    DATASETS,
    EXTENDED,
    EXTENDED_ABLATIONS,
    MAIN,
    RESULTS,
    ROOT,
    SPANS,
    SWEEPS,
    finished,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

RunFile = dict[str, Any]
Entry = dict[str, Any]
Values = dict[int, float]
"""A metric by seed."""

SUMMARY = RESULTS / "summary.json"
STUDIES = ("best-on-test", "faithfulness", "out-of-domain", "few-rows", "overlap")
"""Result files other than run files that are summarized."""
TASK = ("accuracy", "macro_f1")
BERT_BASELINES = ("bert", "bert-mean")
"""What CAPSAR-BERT is compared with, on the same encoder."""
RANKING = ("p_at_1", "r_at_5", "map")
SCORES = ("cosine", "dot")
GOLDS = ("all", "same-polarity")
BASELINE_RANKERS = ("random", "gradient", "gradient_norm")
SPAN_BASES = {
    "capsar-spans": "capsar",
    "capsar-spans-folds": "capsar-folds",
    "capsar-bert-spans": "capsar-bert",
}
"""The row without an extraction head with which each row with one is compared."""
SPAN_METRICS = {
    "span_f1": ("spans", "f1"),
    "span_precision": ("spans", "precision"),
    "span_recall": ("spans", "recall"),
    "span_f1_with_terms": ("spans_with_terms", "f1"),
    "joint_f1": ("joint", "f1"),
    "false_per_100": ("false_per_100",),
}
_CONFIDENCE = ("ece", "ece_bound", "brier", "log_loss", "accuracy_at_80", "accuracy")
_RANKERS = ("capsules", "centroid")
_PRINTED_AS = {"capsar-extended": "capsar", "capsar-bert-extended": "capsar-bert"}
"""The rows of the paper with which the extended rows are compared."""
_CONTROL: dict[str, Any] = {"row": "centroid", "encoder": None}


class SummaryIndex:
    """Entries of the summary, found by their fields."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def find(self, table: str, **facts: object) -> list[Entry]:
        """Return the entries of a table with these values."""
        return [
            entry
            for entry in self._entries
            if entry["table"] == table and all(entry[k] == v for k, v in facts.items())
        ]

    def one(self, table: str, **facts: object) -> Entry | None:
        """Return the only such entry, or None."""
        found = self.find(table, **facts)
        if len(found) > 1:
            raise ValueError(f"{len(found)} entries of {table} for {facts}")
        return found[0] if found else None

    def all_of(self, table: str, metrics: Sequence[str], **facts: object) -> list[Entry]:
        """Return one entry per metric, or nothing if one is missing or has no runs."""
        found = [self.one(table, metric=metric, **facts) for metric in metrics]
        return [entry for entry in found if entry] if all(e and e["n"] for e in found) else []


class Results:
    """Everything that a block is rendered from: the summary, the run files, any result file."""

    def __init__(
        self, entries: Sequence[Entry] | None = None, runs: Sequence[RunFile] | None = None
    ) -> None:
        self._entries, self._runs = entries, runs

    @cached_property
    def summary(self) -> SummaryIndex:
        """The entries of `summary.json`."""
        entries: Any = read_json(SUMMARY) if self._entries is None else self._entries
        return SummaryIndex(entries)

    @cached_property
    def runs(self) -> Sequence[RunFile]:
        """All run files, in the order of the plan."""
        return finished() if self._runs is None else self._runs

    def read(self, name: str) -> dict[str, Any]:
        """Return `NAME.json` from the results of the experiments or of the benchmarks."""
        paths = sorted(ROOT.glob(f"*/results/{name}.json"))
        return read_json(paths[0]) if paths else {}


def make_entry(
    table: str,
    metric: str,
    values: Iterable[float],
    *,
    run: RunFile | None = None,
    paper_value: float | None = None,
    **facts: str | None,
) -> Entry:
    """Return the entry of one metric: mean, spread, and what was measured."""
    some = list(values)
    about = run or {}
    return {
        "table": table,
        "row": facts.get("row") or about.get("row"),
        "encoder": facts.get("encoder", about.get("encoder")),
        "vectors": about.get("vectors"),
        "extra_data": _extra_data(about),
        "dataset": facts.get("dataset") or about.get("dataset"),
        "protocol": facts.get("protocol") or about.get("protocol"),
        "gold": facts.get("gold"),
        "metric": metric,
        "mean": round(mean(some), 6) if some else None,
        "sd": round(stdev(some), 6) if len(some) > 1 else None,
        "n": len(some),
        "paper": paper_value,
        "config_hash": about.get("config_hash"),
    }


def _extra_data(run: RunFile) -> str | None:
    """Return the training data of a run other than the training set of its dataset."""
    settings = run.get("config", {}).get("train", {})
    teachers = {name.rpartition("-")[0] for name in settings.get("teacher") or ()}
    sources = [f"fine-tuned from {settings['init_from']}"] if settings.get("init_from") else []
    sources += [f"distilled from {name}" for name in sorted(teachers)]
    return ", ".join(sources) or None


def by_seed(runs: Sequence[RunFile], *path: str) -> Values:
    """Return the value at a path of keys for each run that has it."""
    found: Values = {}
    for run in sorted(runs, key=lambda run: int(run["seed"])):
        value: Any = run
        for name in path:
            value = value.get(name) if value else None
        if value is not None:
            found[run["seed"]] = value
    return found


def paired(ours: Values, theirs: Values) -> list[float]:
    """Return the differences of the seeds that both have."""
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def summarize(
    runs: Sequence[RunFile], studies: Mapping[str, dict[str, Any]] | None = None
) -> list[Entry]:
    """Return all entries that some runs and studies (by file stem) give."""
    studies = studies or {}
    groups = _grouped(runs, MAIN + BERT + EXTENDED + EXTENDED_ABLATIONS)
    scores = {
        encoder: {ranker: chosen_score(runs, ranker, encoder) for ranker in _RANKERS}
        for encoder in {run["encoder"] for run in runs}
    }
    entries = [*_counts(), *_quoted()]
    for (row, encoder, protocol, dataset), some in groups.items():
        entries += _classification(some)
        for base in _bases(row):
            if whole := groups.get((base, encoder, protocol, dataset)):
                entries += _classification_gaps(some, base, whole)
        entries += _robustness(some)
        entries += _detection(some, scores[encoder])
        if _is_main(some[0]):
            entries += _cases(some)
    for run in runs:
        if run["source"] in SWEEPS:
            entries += _sweep_point(run, scores[run["encoder"]]["capsules"])
    entries += _spans_and_confidence(runs)
    for diagnosis in studies.get("best-on-test", {}).get("runs", ()):
        entries += _diagnosis(diagnosis)
    entries += _faithfulness(studies.get("faithfulness", {}).get("runs", ()))
    entries += _out_of_domain(studies.get("out-of-domain", {}))
    entries += _few_rows(studies.get("few-rows", {}))
    return [*entries, *_overlap(studies.get("overlap", {}).get("shared", {}))]


def _grouped(
    runs: Iterable[RunFile], sources: Sequence[str] | None = None
) -> dict[tuple[str, str, str, str], list[RunFile]]:
    """Group runs of different seeds, without the points of sweeps."""
    groups: dict[tuple[str, str, str, str], list[RunFile]] = {}
    for run in runs:
        if run["point"] is None and (sources is None or run["source"] in sources):
            key = (run["row"], run["encoder"], run["protocol"], run["dataset"])
            groups.setdefault(key, []).append(run)
    return groups


def _bases(row: str) -> tuple[str, ...]:
    """Return the rows with which a row is compared, on the same encoder."""
    if row in ("capsar", "bert"):
        return ()
    if row == "capsar-bert-extended":
        return ("capsar-bert",)
    if row.startswith("capsar-extended-"):
        return ("capsar-extended",)
    if row.startswith("capsar-bert"):
        return BERT_BASELINES
    return ("bert",) if "bert" in row else ("capsar",)


def _is_main(run: RunFile) -> bool:
    return (run["row"], run["protocol"]) == ("capsar", "ours")


def chosen_score(runs: Sequence[RunFile], ranker: str = "capsules", encoder: str = "bigru") -> str:
    """Return the word score with the better validation mAP, over the runs of CAPSAR."""
    row = "capsar" if encoder == "bigru" else "capsar-bert"
    chosen = [
        run
        for run in runs
        if (run["row"], run["protocol"], run["encoder"]) == (row, "ours", encoder)
        and run["point"] is None
        and run["detection"]
    ]
    if not chosen:
        return SCORES[0]
    maps = {
        score: mean(run["detection"]["validation"][ranker][score]["all"]["map"] for run in chosen)
        for score in SCORES
    }
    return max(SCORES, key=maps.__getitem__)


def _entries(
    table: str,
    run: RunFile | None,
    metrics: Mapping[str, Iterable[float]],
    **facts: Any,  # noqa: ANN401  (those of `make_entry`)
) -> Iterator[Entry]:
    """Yield the entries of several metrics of the same runs; metrics without values are skipped."""
    for metric, values in metrics.items():
        if some := list(values):
            yield make_entry(table, metric, some, run=run, **facts)


def _counts() -> Iterator[Entry]:
    """Table 1, from the catalog, whose counts are verified against the files."""
    for (dataset, part), counts in paper.COUNTS.items():
        labels = find_dataset(DATASETS[dataset]).file(part).labels
        facts: dict[str, Any] = {"row": "data", "dataset": dataset}
        for polarity, count in counts.items():
            values = [labels[polarity]]
            yield make_entry("table1", f"{part}_{polarity}", values, paper_value=count, **facts)


def _quoted() -> Iterator[Entry]:
    for row, metrics in paper.QUOTED.items():
        facts: dict[str, Any] = {"row": row, "protocol": "paper"}
        for (dataset, metric), value in metrics.items():
            yield make_entry("table2", metric, [], dataset=dataset, paper_value=value, **facts)


def _classification(runs: list[RunFile]) -> Iterator[Entry]:
    first = runs[0]
    row: str = first["row"]
    printed = paper.CLASSIFICATION.get(_PRINTED_AS.get(row, row), {})
    for metric in TASK:
        own = by_seed(runs, "test", "metrics", metric).values()
        paper_value = printed.get((first["dataset"], metric))
        yield make_entry("table2", metric, own, run=first, paper_value=paper_value)
        validation = by_seed(runs, "validation", f"validation_{metric}")
        yield from _entries("table2", first, {f"validation_{metric}": validation.values()})
    path = ("test", "metrics", "classes")
    by_class = {f"f1_{one}": by_seed(runs, *path, str(one), "f1").values() for one in CLASSES}
    yield from _entries("table2", first, by_class)


def _classification_gaps(runs: list[RunFile], base: str, whole: list[RunFile]) -> Iterator[Entry]:
    """Yield the differences of a row to another, and those without collapsed runs."""
    first = runs[0]
    printed, theirs = (paper.CLASSIFICATION.get(row, {}) for row in (first["row"], base))
    trained = [run for run in runs if not is_collapsed(run)]
    for metric in TASK:
        name, path = (first["dataset"], metric), ("test", "metrics", metric)
        gap = round(printed[name] - theirs[name], 4) if name in printed and name in theirs else None
        gaps = paired(by_seed(runs, *path), by_seed(whole, *path))
        yield make_entry("table2", f"{metric}_vs_{base}", gaps, run=first, paper_value=gap)
        if len(trained) < len(runs):
            gaps = paired(by_seed(trained, *path), by_seed(whole, *path))
            name_of_gap = f"{metric}_vs_{base}_without_collapsed"
            yield make_entry("table2", name_of_gap, gaps, run=first)


def is_collapsed(run: RunFile) -> bool:
    """Return whether validation macro-F1 is the same after every epoch of a run."""
    values = {entry.get("validation_macro_f1") for entry in run["history"]}
    return None not in values and len(run["history"]) > 1 and len(values) == 1


def _robustness(runs: list[RunFile]) -> Iterator[Entry]:
    paths: dict[str, tuple[str, ...]] = {"ars": ("arts", "ars")}
    for name in (runs[0]["arts"] or {}).get("variants", ()):
        paths[f"accuracy_{name}"] = ("arts", "variants", name, "accuracy")
    paths["mixed_accuracy"] = ("mixed_polarity", "accuracy")
    metrics = {metric: by_seed(runs, *path).values() for metric, path in paths.items()}
    yield from _entries("arts", runs[0], metrics)


def _detection(runs: list[RunFile], score: dict[str, str]) -> Iterator[Entry]:
    runs = [run for run in runs if run["detection"]]
    if not runs:
        return
    first = runs[0]
    for metric in ("gold_words", "sentence_words", "none_active", "active_capsules"):
        values = by_seed(runs, "detection", "test", "statistics", metric).values()
        printed = paper.DETECTION.get((first["dataset"], metric))
        yield make_entry("table4", metric, values, run=first, paper_value=printed)
    for gold in GOLDS:
        ranked = {
            (ranker, name, metric): by_seed(runs, "detection", "test", ranker, name, gold, metric)
            for ranker in _RANKERS
            for name in SCORES
            for metric in (*RANKING, "r_at_5_ceiling")
        }
        ceiling = {"r_at_5_ceiling": ranked["capsules", "cosine", "r_at_5_ceiling"].values()}
        yield from _entries("table4", first, ceiling, gold=gold)
        # The control needs no network: it is one row, beside the row that it controls.
        for ranker in _RANKERS if _is_main(first) else _RANKERS[:1]:
            facts: dict[str, Any] = _CONTROL if ranker == "centroid" else {}
            is_printed = gold == "all" and ranker == "capsules" and first["encoder"] == "bigru"
            for metric in RANKING:
                printed = paper.DETECTION[first["dataset"], metric] if is_printed else None
                best = ranked[ranker, score[ranker], metric].values()
                yield make_entry(
                    "table4", metric, best, run=first, gold=gold, paper_value=printed, **facts
                )
                by_score = {f"{metric}_{s}": ranked[ranker, s, metric].values() for s in SCORES}
                yield from _entries("table4", first, by_score, gold=gold, **facts)
        compared = {"": tuple(score[ranker] for ranker in _RANKERS)}
        compared |= {f"_{name}": (name, name) for name in SCORES}
        gaps = {
            f"{metric}{suffix}_vs_centroid": paired(
                ranked["capsules", own, metric], ranked["centroid", control, metric]
            )
            for metric in RANKING
            for suffix, (own, control) in compared.items()
        }
        yield from _entries("table4", first, gaps, gold=gold)


def _cases(runs: list[RunFile]) -> Iterator[Entry]:
    """Table 3: the share of seeds that are right on both sentences of the pair."""

    def is_right(run: RunFile, name: str) -> bool:
        (case,) = (case for case in run["cases"] if case["case"] == name)
        return bool(case["predicted"] == case["polarity"])

    if runs[0]["dataset"] == "laptop":
        values = [float(all(is_right(run, name) for name in LONG_PAIR)) for run in runs]
        yield make_entry("table3", "long_pair", values, run=runs[0], paper_value=1.0)


def _sweep_point(run: RunFile, score: str) -> Iterator[Entry]:
    """One point of a figure: its row is the name of the sweep and the value."""
    row = f"{run['source']}-{run['point'][1]:g}"
    metrics = {metric: [run["test"]["metrics"][metric]] for metric in TASK}
    metrics["validation_macro_f1"] = [run["validation"]["validation_macro_f1"]]
    metrics["train_examples"] = [run["train_examples"]]
    metrics["coverage"] = [run["coverage"]["test"]]
    yield from _entries("sweeps", run, metrics, row=row)
    if run["detection"]:
        value = run["detection"]["test"]["capsules"][score]["all"]["map"]
        yield make_entry("sweeps", "map", [value], run=run, row=row, gold="all")


def _spans_and_confidence(runs: Sequence[RunFile]) -> Iterator[Entry]:
    """Yield the entries of extracted spans, and of the confidences of every row.

    Spans of capsules have the suffix `_capsules`, metrics without calibration `_uncalibrated`.
    """
    groups = _grouped(runs)
    for (row, encoder, protocol, dataset), some in groups.items():
        metrics: dict[str, Iterable[float]] = {}
        for metric, path in SPAN_METRICS.items():
            metrics[metric] = by_seed(some, "spans", "spans", *path).values()
            metrics[f"{metric}_capsules"] = by_seed(some, "spans", "capsules", *path).values()
            metrics[f"validation_{metric}"] = by_seed(some, "validation_spans", *path).values()
        if some[0]["source"] in SPANS:
            base = SPAN_BASES[row]
            whole = groups.get((base, encoder, protocol, dataset), [])
            for metric in TASK:
                own, theirs = (by_seed(r, "test", "metrics", metric) for r in (some, whole))
                metrics[metric] = own.values()
                metrics[f"{metric}_vs_{base}"] = paired(own, theirs)
        yield from _entries("spans", some[0], metrics)
        confidence = {
            f"{metric}{suffix}": by_seed(some, "confidence", kind, metric).values()
            for kind, suffix in (("calibrated", ""), ("uncalibrated", "_uncalibrated"))
            for metric in _CONFIDENCE
        }
        yield from _entries("confidence", some[0], confidence)


def _diagnosis(diagnosis: dict[str, Any]) -> Iterator[Entry]:
    """What selecting the epoch on the test set would have given: used nowhere."""
    epochs = diagnosis["epochs"]
    selected = epochs[diagnosis["best_epoch"]]
    for metric in TASK:
        values = {
            f"{metric}_validation_selected": [selected[f"test_{metric}"]],
            f"{metric}_best_on_test": [max(epoch[f"test_{metric}"] for epoch in epochs)],
        }
        yield from _entries("diagnosis", diagnosis, values)


def _faithfulness(runs: Iterable[RunFile]) -> Iterator[Entry]:
    """How faithful attributions are, and differences to baseline rankings over seeds."""
    groups: dict[tuple[str, str], list[RunFile]] = {}
    for run in runs:
        groups.setdefault((run["row"], run["dataset"]), []).append(run)
    for some in groups.values():
        for measure in ("comprehensiveness", "sufficiency"):
            own = by_seed(some, "faithfulness", measure)
            metrics = {measure: list(own.values())}
            for ranker in BASELINE_RANKERS:
                theirs = by_seed(some, "faithfulness", f"{measure}_{ranker}")
                metrics[f"{measure}_{ranker}"] = list(theirs.values())
                metrics[f"{measure}_vs_{ranker}"] = paired(own, theirs)
            yield from _entries("faithfulness", some[0], metrics)


def _out_of_domain(study: dict[str, Any]) -> Iterator[Entry]:
    """The bundled models, the previous release, VADER and the majority class on each set."""
    sources = dict(study.get("models", {}))
    for name, model in study.get("models", {}).items():
        sources[f"{name}-previous"] = model["previous"]
    if VADER in study.get("baselines", {}):
        sources["vader"] = study["baselines"][VADER]
    for row, source in sources.items():
        for dataset, found in source["sets"].items():
            metrics = {metric: [value] for metric, value in _set_metrics(found).items()}
            yield from _entries("out-of-domain", None, metrics, row=row, dataset=dataset)
    for dataset, found in study.get("majority", {}).items():
        metrics = {metric: [found[metric]] for metric in TASK}
        yield from _entries("out-of-domain", None, metrics, row="majority", dataset=dataset)


def _set_metrics(found: dict[str, Any]) -> dict[str, float]:
    metrics = found["metrics"]
    values = {metric: metrics[metric] for metric in TASK}
    values["accuracy_low"], values["accuracy_high"] = found["intervals"]["accuracy"]
    neutral, rows = list(metrics["classes"]).index("neutral"), metrics["confusion"]
    predicted = sum(row[neutral] for row in rows)
    values["neutral_share"] = sum(rows[neutral]) / metrics["num_examples"]
    values["predicted_neutral_share"] = predicted / metrics["num_examples"]
    for reference in ("vader", "previous"):
        for key, value in found.get(f"minus_{reference}", {}).items():
            values[f"{key}_minus_{reference}"] = value
    if "confidence" in found:
        values["ece"] = found["confidence"]["calibrated"]["ece"]
        values["confidence"] = found["confidence"]["calibrated"]["confidence"]
    if "spans" in found:
        values["span_f1"] = found["spans"]["spans"]["f1"]
        values["joint_f1"] = found["spans"]["joint"]["f1"]
        if found["spans"]["false_per_100"] is not None:
            values["false_per_100"] = found["spans"]["false_per_100"]
    if "arts" in found:
        values["ars"] = found["arts"]["ars"]
    return values


def _few_rows(study: dict[str, Any]) -> Iterator[Entry]:
    """`base` fine-tuned on few labeled rows: on the test set, and on the rows not drawn."""
    metrics: dict[str, list[float]] = {}
    for run in study.get("runs", ()):
        for prefix, own, untouched in (
            ("", run, study["untouched"]),
            ("rest_", run["rest"], run["rest_untouched"]),
        ):
            for metric in (*TASK, "span_f1", "joint_f1"):
                value = own[metric]
                metrics.setdefault(f"{prefix}{metric}", []).append(value)
                gaps = metrics.setdefault(f"{prefix}{metric}_vs_base", [])
                gaps.append(value - untouched[metric])
    yield from _entries("out-of-domain", None, metrics, row="base-200-rows", dataset="laptop")


def _overlap(shared: dict[str, dict[str, int]]) -> Iterator[Entry]:
    """How much of each test set also occurs in its training set."""
    for dataset, counts in shared.items():
        metrics = {f"shared_{kind}": [number] for kind, number in counts.items()}
        yield from _entries("overlap", None, metrics, row="data", dataset=dataset)


def summarize_committed() -> list[Entry]:
    """Summarize the committed run files and studies."""
    return summarize(finished(), {name: read_json(RESULTS / f"{name}.json") for name in STUDIES})


def write_summary() -> None:
    """Write `summary.json` from the run files."""
    write_json(SUMMARY, summarize_committed())


if __name__ == "__main__":
    write_summary()
