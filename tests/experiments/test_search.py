"""The hyperparameter search: given trials, pruning, and how it is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import run as runs
from pages import best
from studies import search
from summarize import Results

BEST_DROPOUT = 0.2
"""The setting with the highest made-up value; given trials have 0.5."""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A search of twelve trials with a known objective."""

    def value_of(settings: dict[str, dict[str, Any]], dataset: str, number: int) -> float:
        if number == 5:
            raise RuntimeError("stopped by hand")
        worth = 0.7 - abs(settings["model"]["input_dropout"] - BEST_DROPOUT)
        return worth + 0.1 * (dataset == "laptop")

    monkeypatch.setattr(search, "STUDY", tmp_path / "search.jsonl")
    monkeypatch.setattr(search, "value_of", value_of)
    monkeypatch.setattr(search, "close_test_sets", lambda: None)
    monkeypatch.setattr(search, "commit_of_code", lambda: "0" * 40)
    monkeypatch.setattr(sys, "argv", ["search.py", "--trials", "6"])
    with pytest.raises(RuntimeError):
        search.main()
    search.main()  # joins the study
    summary: dict[str, Any] = json.loads((tmp_path / "search.json").read_text())
    return summary


def test_given_trials_come_first_and_worse_ones_are_pruned(study: dict[str, Any]) -> None:
    trials = study["trials"]
    assert [trial["number"] for trial in trials] == list(range(12))
    given = [trial for trial in trials if trial["given"]]
    assert [trial["settings"] for trial in given] == [
        search.PAPER_SETTINGS | change for change in search.GIVEN
    ]
    assert [trial["value"] for trial in given] == [0.45] * 3
    assert [trial["number"] for trial in trials if trial["state"] == "fail"] == [5]
    for trial in trials[3:]:
        worse = trial["settings"]["input_dropout"] > 0.5  # worse than the given ones
        if trial["state"] == "pruned":
            assert trial["value"] is trial["restaurant"] is None
        elif trial["state"] == "complete":
            assert not worse
    assert study["seconds"] == pytest.approx(sum(trial["seconds"] for trial in trials), abs=1e-4)


def made_trial(number: int, state: str, *, given: bool = False, **settings: Any) -> dict[str, Any]:
    found = {"laptop": 0.7 + number / 100, "restaurant": 0.6, "value": 0.65 + number / 200}
    if state != "complete":
        found |= {"restaurant": None, "value": None}
    return found | {
        "number": number, "state": state, "given": given, "settings": {"alpha": 3.0} | settings,
    }  # fmt: skip


def test_search_results_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    study: dict[str, Any] = {}
    monkeypatch.setattr(Results, "read", lambda *_: study)
    assert not best.search(Results([], []))
    trials = [
        made_trial(0, "complete", given=True),
        made_trial(1, "fail", given=True),
        made_trial(2, "complete", given=True, alpha=4.0),
        made_trial(3, "complete", alpha=2.345),
        made_trial(4, "pruned"),
        made_trial(5, "complete", alpha=1.0),
    ]
    study |= {"trials": trials, "seconds": 5400, "folds": 3, "max_epochs": 12}
    page = best.search(Results([], []))
    assert page.startswith("6 trials, 1.5 hours of one core")
    assert "1 trials were pruned after Laptop" in " ".join(page.split())
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| 0 | none | .6000 | .7000 | .6500 |",
        "| 2 | `alpha = 4` | .6000 | .7200 | .6600 |",
        "| 5 | `alpha = 1` | .6000 | .7500 | .6750 |",
        "| 3 | `alpha = 2.35` | .6000 | .7300 | .6650 |",
    ]
    said = " ".join(page.split())
    assert "differs by +.0250 from the settings of CAPSAR" in said
    assert "by +.0150 from those of `capsar-best`" in said


def test_given_settings_are_those_of_the_rows() -> None:
    """The given trials have the searched settings of the rows."""
    apart = {"max_epochs", "patience", "aspect_dropout", "feature_distill_epochs", "distill_weight"}
    found = {}
    for row, changes in (("capsar", {}), ("capsar-best", search.BEST_SETTINGS)):
        config = runs.planned((row,))[0].shown_config()
        own = found[row] = config["model"] | config["train"]
        expected: dict[str, Any] = search.PAPER_SETTINGS | changes
        assert {name: own[name] for name in expected} == expected
    differ = {
        name for name, value in found["capsar"].items() if value != found["capsar-best"][name]
    }
    assert differ - {"teacher", "seed"} == apart | set(search.BEST_SETTINGS)
