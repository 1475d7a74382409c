"""Committed results: the summary and the run files agree, and pages show what they hold."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from capsar.config import run_config
from metrics.interval import difference_of
from pages import detection, extensions, figures, reproduction
from paper import CASES
from pretrained.sets import IN_DOMAIN, OUT_OF_DOMAIN
from run import DATASETS, ROOT, RUN_FILES, planned
from summarize import SUMMARY, Results, chosen_score, summarize, summarize_committed

KEYS = [
    "table", "row", "encoder", "vectors", "extra_data", "dataset", "protocol", "gold", "metric",
    "mean", "sd", "n", "paper", "config_hash",
]  # fmt: skip
PLANNED = {run.name: run for run in planned()}


def test_the_summary_is_that_of_the_run_files() -> None:
    assert json.loads(SUMMARY.read_text(encoding="utf-8")) == summarize_committed()


def test_entries_have_the_documented_form() -> None:
    for entry in summarize_committed():
        assert list(entry) == KEYS
        known = {*OUT_OF_DOMAIN, *IN_DOMAIN} if entry["table"] == "out-of-domain" else DATASETS
        assert entry["dataset"] in known
        assert entry["protocol"] in ("ours", "fixed", "paper", None)
        assert entry["gold"] in ("all", "same-polarity", None)
        assert (entry["mean"] is None) == (entry["n"] == 0)
        assert (entry["sd"] is None) == (entry["n"] < 2)


def test_an_entry_is_unique() -> None:
    names = [
        tuple(entry[key] for key in KEYS if key not in ("mean", "sd", "n", "paper"))
        for entry in summarize_committed()
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", sorted(RUN_FILES.glob("*.json")), ids=lambda path: path.stem)
def test_a_run_file_is_that_of_a_planned_run(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    run = PLANNED[path.stem]
    assert content["name"] == path.stem
    assert content["config_hash"] == run.config_hash
    # Settings that were added later had their defaults.
    assert run_config(content["config"]).as_dict() == run.shown_config()
    assert (content["row"], content["dataset"], content["seed"], content["protocol"]) == (
        run.row, run.dataset, run.seed, run.protocol,
    )  # fmt: skip
    assert content["vectors"] == run.vectors
    assert re.fullmatch(r"[0-9a-f]{40}", content["commit"])
    assert {"versions", "machine", "seconds", "history", "test", "calibration"} <= set(content)
    confusion = content["test"]["metrics"]["confusion"]
    assert sum(map(sum, confusion)) == content["test"]["metrics"]["num_examples"]
    best = content["history"][content["best_epoch"]]
    last = len(content["history"]) - 1
    selection = run.shown_config()["train"]["checkpoint_selection"]
    if content["protocol"] == "fixed":
        assert content["best_epoch"] == last == 79
    elif selection == "last" or content["validation"] is None:
        assert content["best_epoch"] == last
    else:
        assert selected_by(best) == max(map(selected_by, content["history"]))


def selected_by(entry: dict[str, float]) -> float:
    """Macro-F1, or with an extraction head the mean of that and the F1 of spans."""
    macro_f1, span_f1 = entry["validation_macro_f1"], entry.get("validation_span_f1")
    return macro_f1 if span_f1 is None else (macro_f1 + span_f1) / 2


def test_runs_with_one_hash_have_one_configuration() -> None:
    assert len(PLANNED) == len(planned())
    by_hash: dict[str, set[str]] = {}
    for run in planned():
        shown = run.shown_config()
        shown["train"].pop("seed")
        by_hash.setdefault(run.config_hash, set()).add(json.dumps([run.dataset, shown]))
    assert all(len(configs) == 1 for configs in by_hash.values())


def test_no_machine_path_is_committed() -> None:
    for path in (ROOT / "experiments" / "results").rglob("*.json"):
        assert str(ROOT.parent) not in path.read_text(encoding="utf-8"), path.name


# Made-up runs, computed by hand.


def ranking(value: float) -> dict[str, Any]:
    metrics = {"p_at_1": value, "r_at_5": value, "map": value, "r_at_5_ceiling": 0.9}
    return {"all": metrics, "same-polarity": metrics}


def made_up(name: str, accuracy: float, detection: float | None = None) -> dict[str, Any]:
    run = PLANNED[name]
    scores = detection and {
        part: {
            "statistics": {
                "gold_words": 2.5, "sentence_words": 16, "none_active": 0.25,
                "active_capsules": 1.5,
            },
            "capsules": {"cosine": ranking(detection), "dot": ranking(detection + 0.1)},
            "centroid": {"cosine": ranking(0.5), "dot": ranking(0.4)},
        }
        for part in ("validation", "test")
    }  # fmt: skip
    row = {"from": 0.5, "count": 20, "mean_length": 0.55, "right": 10}
    polarities = ("negative", "neutral", "positive")
    validation = {"validation_accuracy": 0.7, "validation_macro_f1": 0.6}
    return {
        "name": name, "row": run.row, "source": run.source, "point": run.point,
        "encoder": run.encoder, "dataset": run.dataset, "protocol": run.protocol, "seed": run.seed,
        "config_hash": run.config_hash, "config": run.shown_config(), "vectors": run.vectors,
        "commit": "0" * 40, "versions": {"python": "3"}, "machine": "one core", "seconds": 36.0,
        "best_epoch": 0, "validation": validation,
        "history": [{"epoch": 0, "loss": 1.0} | validation],
        "train_examples": 100, "coverage": {"train": 1.0, "test": 0.5},
        "test": {"metrics": {
            "accuracy": accuracy, "macro_f1": accuracy - 0.1,
            "classes": {polarity: {"f1": 0.5} for polarity in polarities},
        }},
        "calibration": {kind: [row] for kind in ("longest", "true", "every")},
        "mixed_polarity": {"accuracy": 0.6}, "detection": scores or None,
        "cases": [
            {"case": case.name, "polarity": case.polarity, "predicted": "positive"}
            for case in CASES if case.dataset == run.dataset
        ],
        "arts": {
            "variants": {
                name: {"accuracy": accuracy, "num_examples": 9}
                for name in ("original", "adv1", "adv2", "adv3")
            },
            "ars": 0.3, "num_groups": 7,
        },
    }  # fmt: skip


def pick(entries: list[dict[str, Any]], **facts: object) -> dict[str, Any]:
    (entry,) = (e for e in entries if all(e[k] == v for k, v in facts.items()))
    return entry


def test_means_spreads_and_paired_differences_by_hand() -> None:
    runs = [
        made_up("capsar-restaurant-0", 0.80),
        made_up("capsar-restaurant-1", 0.84),
        made_up("capsar-restaurant-2", 0.10),  # its seed has no partner
        made_up("capsar-wo-r-restaurant-0", 0.79),
        made_up("capsar-wo-r-restaurant-1", 0.81),
    ]
    entries = summarize(runs)
    whole = pick(entries, row="capsar", metric="accuracy", dataset="restaurant")
    assert (whole["mean"], whole["n"], whole["paper"]) == (pytest.approx(0.58), 3, 0.8286)
    fall = pick(entries, row="capsar-wo-r", metric="accuracy_vs_capsar")
    assert (fall["mean"], fall["n"]) == (pytest.approx(-0.02), 2)
    assert fall["sd"] == pytest.approx(0.014142, abs=1e-6)
    assert fall["paper"] == pytest.approx(0.8185 - 0.8286)
    difference = difference_of(fall)
    assert difference.half_width == pytest.approx(12.7062 * 0.01, rel=1e-4)  # t of one degree
    assert difference.verdict == "too few seeds"
    results = Results(entries, runs)
    assert "(3 of 5 seeds)" in reproduction.table2(results)
    assert "−.0200 [−.1471, +.1071]" in reproduction.ablations(results)


@pytest.mark.parametrize(
    ("mean", "sd", "n", "verdict"),
    [(-0.02, 0.01, 5, "lower"), (0.02, 0.01, 5, "higher"),
     (-0.01, 0.01, 5, "not significantly different"),
     (-0.5, None, 1, "too few seeds"), (-0.5, 0.01, 2, "too few seeds")],
)  # fmt: skip
def test_a_verdict_needs_an_interval_without_zero(
    mean: float, sd: float | None, n: int, verdict: str
) -> None:
    assert difference_of({"mean": mean, "sd": sd, "n": n}).verdict == verdict


def test_a_collapsed_run_is_shown() -> None:
    run, other = made_up("capsar-restaurant-0", 0.65), made_up("capsar-restaurant-1", 0.8)
    run["history"] *= 2
    results = Results([], [run, other])
    assert "1 of 2 runs of CAPSAR collapsed (1 on Restaurant)" in reproduction.collapsed(results)
    run["history"][1] = run["history"][1] | {"validation_macro_f1": 0.7}
    assert not reproduction.collapsed(results)


def test_the_score_is_chosen_on_validation_and_not_on_test() -> None:
    run = made_up("capsar-restaurant-0", 0.8, detection=0.6)
    assert (chosen_score([run]), chosen_score([run], "centroid")) == ("dot", "cosine")
    turned = copy.deepcopy(run)
    turned["detection"]["test"]["capsules"]["dot"] = ranking(0.0)
    assert chosen_score([turned]) == "dot"
    entries = summarize([turned])
    best = pick(entries, row="capsar", metric="map", gold="all", dataset="restaurant")
    assert (best["mean"], best["paper"]) == (0.0, 0.7139)
    against = pick(entries, row="capsar", metric="map_vs_centroid", gold="all")
    assert against["mean"] == pytest.approx(-0.5)
    assert pick(entries, row="centroid", metric="map", gold="all")["mean"] == 0.5


def test_differences_are_computed_per_encoder() -> None:
    gaps = {"minilm": (0.02, 0.03, 0.04), "mpnet": (-0.02, -0.03)}
    runs = [
        made_up(f"{row}-{encoder}-restaurant-{seed}", 0.8 + gap * (row == "capsar-bert"), 0.6)
        for encoder, several in gaps.items()
        for seed, gap in enumerate(several)
        for row in ("bert", "capsar-bert")
    ]
    runs.append(made_up("bert-minilm-mean-restaurant-0", 0.83, 0.6))
    entries = summarize(runs)
    which = {"row": "capsar-bert", "encoder": "all-MiniLM-L6-v2"}
    rise = pick(entries, metric="accuracy_vs_bert", **which)
    assert (rise["mean"], rise["n"]) == (pytest.approx(0.03), 3)
    assert pick(entries, metric="accuracy_vs_bert-mean", **which)["mean"] == pytest.approx(-0.01)
    assert rise["paper"] == pytest.approx(0.8594 - 0.8476)
    shown = extensions.bert_differences(Results(entries, runs))
    assert (
        "| Restaurant | all-MiniLM-L6-v2 | CAPSAR-BERT | BERT | accuracy "
        "| +.0300 [+.0052, +.0548] | 3 | +.0118 | higher |"
    ) in shown
    assert "| accuracy | −.0250 [−.0885, +.0385] | 2 | +.0118 | too few seeds |" in shown


def test_an_encoder_chooses_its_own_word_score() -> None:
    run = made_up("capsar-bert-minilm-restaurant-0", 0.8, detection=0.6)
    scores = run["detection"]["validation"]["capsules"]
    scores["cosine"], scores["dot"] = scores["dot"], scores["cosine"]
    runs = [run, made_up("capsar-restaurant-0", 0.8, detection=0.6)]
    assert chosen_score(runs) == "dot"
    assert chosen_score(runs, encoder="all-MiniLM-L6-v2") == "cosine"
    found = pick(summarize(runs), row="capsar-bert", metric="map", gold="all")
    assert found["mean"] == pytest.approx(0.6)


def test_blocks_render_with_missing_and_with_all_results() -> None:
    nothing = Results(summarize([]), [])
    assert "| Restaurant | train | 807 | 637 | 2164 |" in reproduction.table1(nothing)
    assert "| Twitter | train | 1560 (paper 1562) |" in reproduction.table1(nothing)
    assert "| MGAN | quoted |  | .8125 |" in reproduction.table2(nothing)
    runs = [made_up(name, 0.8, detection=0.6) for name in PLANNED if "restaurant" in name]
    results = Results(summarize(runs), runs)
    assert "of 5 seeds" not in reproduction.table2(results)
    assert "### Against lambda (Restaurant, one seed)" in reproduction.sweeps(results)
    for block in (reproduction.table3, reproduction.arts, detection.table4, reproduction.overview):
        assert "Restaurant" in block(results)
        block(nothing)


def test_the_diagnosis_is_shown() -> None:
    run = {"row": "capsar", "encoder": "bigru", "vectors": "v", "dataset": "laptop",
           "protocol": "ours", "config_hash": "h", "best_epoch": 0,
           "epochs": [{"test_accuracy": 0.7, "test_macro_f1": 0.6},
                      {"test_accuracy": 0.6, "test_macro_f1": 0.65}]}  # fmt: skip
    entries = summarize([], {"best-on-test": {"runs": [run]}})
    assert pick(entries, metric="macro_f1_best_on_test")["mean"] == 0.65
    assert pick(entries, metric="accuracy_validation_selected")["mean"] == 0.7
    shown = reproduction.best_on_test(Results(entries, []))
    assert "| Laptop | macro-F1 | .6000 | .6500 | +.0500 |" in shown


def test_faithfulness_is_summarized_by_seed() -> None:
    studied = [
        {"row": "capsar", "encoder": "bigru", "vectors": "v", "dataset": "laptop",
         "protocol": "ours", "config_hash": "h", "seed": seed,
         "faithfulness": {
             "length": 0.8,
             **{name: value for name in ("comprehensiveness", "sufficiency")
                for name, value in ((name, own), (f"{name}_random", 0.1),
                                    (f"{name}_gradient", 0.5), (f"{name}_gradient_norm", 0.2))},
         }}
        for seed, own in ((0, 0.2), (1, 0.3), (2, 0.4))
    ]  # fmt: skip
    entries = summarize([], {"faithfulness": {"runs": studied}})
    assert pick(entries, metric="comprehensiveness")["mean"] == pytest.approx(0.3)
    gap = pick(entries, metric="comprehensiveness_vs_random")
    assert (gap["mean"], gap["sd"], gap["n"]) == (pytest.approx(0.2), pytest.approx(0.1), 3)
    results = Results(entries, [])
    shown = detection.faithfulness(results)
    assert "| Laptop, Bi-GRU, 3 seeds | attributions | .3000 ± .1000 | .3000 ± .1000 |" in shown
    # 4.303 * .1 / sqrt(3) = .2484 on either side of +.2, and of -.2 against gradients.
    shown = detection.faithfulness_differences(results)
    assert "| Laptop, Bi-GRU | attributions − random words | +.2000 [−.0484, +.4484] |" in shown
    label = "attributions − gradient x input, signed"
    assert f"| Laptop, Bi-GRU | {label} | −.2000 [−.4484, +.0484] |" in shown


def test_the_committed_figures_are_those_of_the_committed_runs(tmp_path: Path) -> None:
    drawn = {path.name: path.read_bytes() for path in figures.draw_all(tmp_path)}
    committed = {path.name: path.read_bytes() for path in figures.FOLDER.glob("*.svg")}
    assert set(drawn) == set(committed)
    stale = [name for name in drawn if drawn[name] != committed[name]]
    assert not stale, f"{stale}: draw them again with `python experiments/pages/figures.py`"


def test_figures_are_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [made_up(name, 0.8, detection=0.6) for name in PLANNED]
    monkeypatch.setattr(figures, "finished", lambda: runs)
    heatmaps = tmp_path / "heatmaps.json"
    sentence = {"words": ["Cold", "soup"], "aspects": [1], "lengths": [0.9, 0.1, 0.6],
                "cosine": [[0.1, 0.9]] * 3, "norms": [1.0, 2.0]}  # fmt: skip
    names = ("one-active", "two-active")
    heatmaps.write_text(json.dumps({"sentences": dict.fromkeys(names, sentence)}))
    monkeypatch.setattr(figures, "HEATMAPS", heatmaps)
    drawn = [figures.draw_all(tmp_path / folder) for folder in ("a", "b")]
    assert {path.stem for path in drawn[0]} == {path.stem for path in figures.FOLDER.glob("*.svg")}
    for first, second in zip(*drawn, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert b"<dc:date>" not in first.read_bytes()


def test_nothing_is_drawn_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "finished", list)
    monkeypatch.setattr(figures, "HEATMAPS", tmp_path / "absent.json")
    assert figures.draw_all(tmp_path) == []
