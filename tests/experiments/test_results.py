"""Committed results: the page, the summary and the run files agree, and can be made again."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

import figures
from capsar.config import run_config
from cases import CASES
from interval import difference_of
from render import FIGURES, RESULTS_PAGE, render
from runs import DATASETS, RESULTS, finished, planned
from shipped import SEEN, UNSEEN
from summarize import SUMMARY, chosen_score, summarize, summarize_committed

KEYS = [
    "table", "row", "encoder", "vectors", "extra_data", "dataset", "protocol", "gold", "metric",
    "mean", "sd", "n", "paper", "config_hash",
]  # fmt: skip
PLANNED = {run.name: run for run in planned()}


def test_the_summary_is_that_of_the_run_files() -> None:
    assert json.loads(SUMMARY.read_text(encoding="utf-8")) == summarize_committed()


def test_the_page_is_rendered_from_the_files_byte_for_byte() -> None:
    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    drawn = {path.stem for path in figures.FOLDER.glob("*.svg")}
    assert drawn <= set(FIGURES)
    assert RESULTS_PAGE.read_text(encoding="utf-8") == render(summary, finished(), drawn)


def test_entries_have_the_agreed_form() -> None:
    for entry in summarize_committed():
        assert list(entry) == KEYS
        known = {*UNSEEN, *SEEN} if entry["table"] == "unseen" else DATASETS
        assert entry["dataset"] in known
        assert entry["protocol"] in ("ours", "fixed", "paper", None)
        assert entry["gold"] in ("all", "same-polarity", None)
        assert (entry["mean"] is None) == (entry["n"] == 0)
        assert (entry["sd"] is None) == (entry["n"] < 2)


def test_an_entry_is_named_once() -> None:
    names = [
        tuple(entry[key] for key in KEYS if key not in ("mean", "sd", "n", "paper"))
        for entry in summarize_committed()
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_run_file_is_that_of_a_planned_run(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    run = PLANNED[path.stem]
    assert content["name"] == path.stem
    assert content["config_hash"] == run.config_hash
    # Settings that came later had their defaults.
    assert run_config(content["config"]).as_dict() == run.shown_config()
    assert (content["row"], content["dataset"], content["seed"], content["protocol"]) == (
        run.row, run.dataset, run.seed, run.protocol,
    )  # fmt: skip
    assert content["vectors"] == run.vectors
    assert re.fullmatch(r"[0-9a-f]{40}", content["commit"])
    assert {"versions", "machine", "seconds", "history", "test", "calibration"} <= set(content)
    confusion = content["test"]["figures"]["confusion"]
    assert sum(map(sum, confusion)) == content["test"]["figures"]["num_examples"]
    best = content["history"][content["best_epoch"]]
    if run.shown_config()["train"]["keep"] == "last":
        assert content["best_epoch"] == len(content["history"]) - 1
    elif content["protocol"] == "ours":
        assert chosen_by(best) == max(map(chosen_by, content["history"]))
    else:
        assert content["best_epoch"] == len(content["history"]) - 1 == 79


def chosen_by(entry: dict[str, float]) -> float:
    """Macro-F1, or with an extraction head the mean of that and the F1 of spans."""
    macro_f1 = entry["dev_macro_f1"]
    return (macro_f1 + entry["dev_span_f1"]) / 2 if "dev_span_f1" in entry else macro_f1


def test_plans_of_a_name_are_of_one_configuration() -> None:
    assert len(PLANNED) == len(planned())
    by_hash: dict[str, set[str]] = {}
    for run in planned():
        shown = run.shown_config()
        shown["train"].pop("seed")
        by_hash.setdefault(run.config_hash, set()).add(json.dumps([run.dataset, shown]))
    assert all(len(configs) == 1 for configs in by_hash.values())


# Made-up runs, worked by hand.


def ranking(value: float) -> dict[str, Any]:
    figures = {"p_at_1": value, "r_at_5": value, "map": value, "r_at_5_ceiling": 0.9}
    return {"all": figures, "same-polarity": figures}


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
        for part in ("dev", "test")
    }  # fmt: skip
    row = {"from": 0.5, "count": 20, "mean_length": 0.55, "right": 10}
    polarities = ("negative", "neutral", "positive")
    return {
        "name": name, "row": run.row, "source": run.source, "point": run.point,
        "encoder": run.encoder, "dataset": run.dataset, "protocol": run.protocol, "seed": run.seed,
        "config_hash": run.config_hash, "config": run.shown_config(), "vectors": run.vectors,
        "commit": "0" * 40, "versions": {"python": "3"}, "machine": "one core", "seconds": 36.0,
        "best_epoch": 0, "dev": {"dev_accuracy": 0.7, "dev_macro_f1": 0.6},
        "history": [{"epoch": 0, "loss": 1.0, "dev_accuracy": 0.7, "dev_macro_f1": 0.6}],
        "train_examples": 100, "coverage": {"train": 1.0, "test": 0.5},
        "test": {"figures": {
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
    page = render(entries, runs)
    assert "(3 of 5 seeds)" in page
    assert "−.0200 [−.1471, +.1071]" in page


@pytest.mark.parametrize(
    ("mean", "sd", "n", "verdict"),
    [(-0.02, 0.01, 5, "falls"), (0.02, 0.01, 5, "rises"), (-0.01, 0.01, 5, "cannot be told"),
     (-0.5, None, 1, "too few seeds"), (-0.5, 0.01, 2, "too few seeds")],
)  # fmt: skip
def test_a_verdict_needs_an_interval_without_zero(
    mean: float, sd: float | None, n: int, verdict: str
) -> None:
    assert difference_of({"mean": mean, "sd": sd, "n": n}).verdict == verdict


def test_a_run_that_never_moved_is_told() -> None:
    run, other = made_up("capsar-restaurant-0", 0.65), made_up("capsar-restaurant-1", 0.8)
    run["history"] *= 2
    page = " ".join(render(summarize([run, other]), [run, other]).split())
    assert "1 of 2 runs of CAPSAR (1 on Restaurant) never moved from one dev macro-F1" in page
    run["history"][1] = run["history"][1] | {"dev_macro_f1": 0.7}
    assert "never moved" not in render(summarize([run, other]), [run, other])


def test_the_score_is_chosen_on_dev_and_not_on_test() -> None:
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


def test_the_claim_of_the_paper_is_judged_on_each_encoder_by_itself() -> None:
    gaps = {"minilm": (0.02, 0.03, 0.04), "mpnet": (-0.02, -0.03)}
    runs = [
        made_up(f"{row}-{encoder}-restaurant-{seed}", 0.8 + gap * (row == "capsar-bert"), 0.6)
        for encoder, several in gaps.items()
        for seed, gap in enumerate(several)
        for row in ("bert", "capsar-bert")
    ]
    entries = summarize(runs)
    rise = pick(entries, encoder="all-MiniLM-L6-v2", metric="accuracy_vs_bert")
    assert (rise["mean"], rise["n"]) == (pytest.approx(0.03), 3)
    assert rise["paper"] == pytest.approx(0.8594 - 0.8476)
    page = " ".join(render(entries, runs).split())
    assert (
        "| all-MiniLM-L6-v2 | CAPSAR-BERT | Restaurant | accuracy | +.0300 [+.0052, +.0548] | 3 |"
        " +.0118 | rises |"
    ) in page
    assert "| accuracy | −.0250 [−.0885, +.0385] | 2 | +.0118 | too few seeds |" in page
    assert "on all-MiniLM-L6-v2: the paper says that every figure rises. Ours is above it" in page


def test_an_encoder_chooses_its_own_word_score() -> None:
    run = made_up("capsar-bert-minilm-restaurant-0", 0.8, detection=0.6)
    dev = run["detection"]["dev"]["capsules"]
    dev["cosine"], dev["dot"] = dev["dot"], dev["cosine"]
    runs = [run, made_up("capsar-restaurant-0", 0.8, detection=0.6)]
    assert chosen_score(runs) == "dot"
    assert chosen_score(runs, encoder="all-MiniLM-L6-v2") == "cosine"
    found = pick(summarize(runs), row="capsar-bert", metric="map", gold="all")
    assert found["mean"] == pytest.approx(0.6)


def test_the_page_renders_whatever_there_is() -> None:
    nothing = render(summarize([]), [])
    assert "| Restaurant | train | 807 | 637 | 2164 |" in nothing
    assert "| Twitter | train | 1560 (paper 1562) |" in nothing
    assert "| MGAN | quoted |  | .8125 |" in nothing
    assert "## Table 4" not in nothing
    runs = [made_up(name, 0.8, detection=0.6) for name in PLANNED if "restaurant" in name]
    page = render(summarize(runs), runs, FIGURES)
    assert "of 5 seeds" not in page
    for title in ("Table 4", "ARTS", "What limits", "Against lambda", "Do the ablations fall?"):
        assert title in page
    assert page.count("](figures/") == len(FIGURES)
    assert page == render(summarize(runs), runs, FIGURES)


def test_the_diagnosis_is_told_apart() -> None:
    run = {"row": "capsar", "encoder": "bigru", "vectors": "v", "dataset": "laptop",
           "protocol": "ours", "config_hash": "h", "best_epoch": 0,
           "epochs": [{"test_accuracy": 0.7, "test_macro_f1": 0.6},
                      {"test_accuracy": 0.6, "test_macro_f1": 0.65}]}  # fmt: skip
    entries = summarize([], [run])
    assert pick(entries, metric="macro_f1_best_on_test")["mean"] == 0.65
    assert pick(entries, metric="accuracy_dev_selected")["mean"] == 0.7
    assert "| Laptop | macro-F1 | .6000 | .6500 | +.0500 |" in render(entries, [])


def test_faithfulness_is_summarized_by_seed() -> None:
    judged = [
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
    entries = summarize([], None, judged)
    assert pick(entries, metric="comprehensiveness")["mean"] == pytest.approx(0.3)
    gap = pick(entries, metric="comprehensiveness_vs_random")
    assert (gap["mean"], gap["sd"], gap["n"]) == (pytest.approx(0.2), pytest.approx(0.1), 3)
    page = render(entries, [])
    assert "| Laptop, Bi-GRU (3 of 5 seeds) | *because* | .3000 ± .1000 | .3000 ± .1000 |" in page
    # 4.303 * .1 / sqrt(3) = .2484 on either side of +.2, and of -.2 against gradients.
    assert "| Laptop, Bi-GRU | *because* − random words | +.2000 [−.0484, +.4484] |" in page
    assert "| Laptop, Bi-GRU | *because* − signed gradients | −.2000 [−.4484, +.0484] |" in page


def test_the_committed_figures_are_those_of_the_committed_runs(tmp_path: Path) -> None:
    drawn = {path.name: path.read_bytes() for path in figures.draw_all(tmp_path)}
    committed = {path.name: path.read_bytes() for path in figures.FOLDER.glob("*.svg")}
    assert set(drawn) == set(committed)
    stale = [name for name in drawn if drawn[name] != committed[name]]
    assert not stale, f"{stale}: draw them again with `python experiments/figures.py`"


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
    assert {path.stem for path in drawn[0]} == set(FIGURES)
    for first, second in zip(*drawn, strict=True):
        assert first.read_bytes() == second.read_bytes()
        assert b"<dc:date>" not in first.read_bytes()


def test_nothing_is_drawn_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "finished", list)
    monkeypatch.setattr(figures, "HEATMAPS", tmp_path / "absent.json")
    assert figures.draw_all(tmp_path) == []
