"""The search: what it begins with, what ends early, and what is told of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import render_search
import runs
import search

BEST_DROPOUT = 0.2
"""Where the made-up worth of settings is greatest; those that are given have 0.5."""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A search of twelve trials, of settings whose worth is known."""

    def value_of(settings: dict[str, dict[str, Any]], dataset: str, number: int) -> float:
        if number == 5:
            raise RuntimeError("stopped by hand")
        worth = 0.7 - abs(settings["model"]["input_dropout"] - BEST_DROPOUT)
        return worth + 0.1 * (dataset == "laptop")

    monkeypatch.setattr(search, "STUDY", tmp_path / "search.jsonl")
    monkeypatch.setattr(search, "value_of", value_of)
    monkeypatch.setattr(search, "close_test_parts", lambda: None)
    monkeypatch.setattr(search, "commit_of_code", lambda: "0" * 40)
    monkeypatch.setattr(sys, "argv", ["search.py", "--trials", "6"])
    with pytest.raises(RuntimeError):
        search.main()
    search.main()  # joins what there is
    told: dict[str, Any] = json.loads((tmp_path / "search.json").read_text())
    return told


def test_a_search_begins_with_what_is_known_and_stops_what_is_worse(study: dict[str, Any]) -> None:
    trials = study["trials"]
    assert [trial["number"] for trial in trials] == list(range(12))
    given = [trial for trial in trials if trial["given"]]
    assert [trial["settings"] for trial in given] == [
        search.FAITHFUL | change for change in search.FIRST
    ]
    assert [trial["value"] for trial in given] == [0.45] * 3
    assert [trial["number"] for trial in trials if trial["state"] == "fail"] == [5]
    for trial in trials[3:]:
        worse = trial["settings"]["input_dropout"] > 0.5  # than those that are given
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


def test_what_a_search_found_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "search.json"
    monkeypatch.setattr(render_search, "_SEARCH", path)
    assert not render_search.section()
    trials = [
        made_trial(0, "complete", given=True),
        made_trial(1, "fail", given=True),
        made_trial(2, "complete", given=True, alpha=4.0),
        made_trial(3, "complete", alpha=2.345),
        made_trial(4, "pruned"),
        made_trial(5, "complete", alpha=1.0),
    ]
    path.write_text(json.dumps({"trials": trials, "seconds": 5400, "folds": 3, "max_epochs": 12}))
    page = render_search.section()
    assert page.startswith("### What was searched\n\n6 trials")
    assert "(1.5 hours of one core" in page
    assert "After Laptop, 1 were worse than the median" in " ".join(page.split())
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| 0 | none | .6000 | .7000 | .6500 |",
        "| 2 | `alpha = 4` | .6000 | .7200 | .6600 |",
        "| 5 | `alpha = 1` | .6000 | .7500 | .6750 |",
        "| 3 | `alpha = 2.35` | .6000 | .7300 | .6650 |",
    ]
    assert "differs by +.0250 from" in page
    assert "+.0150 from those of `capsar-best`" in " ".join(page.split())


def test_what_is_settled_is_what_capsar_best_has() -> None:
    """The trials named after rows have the settings of those rows, as far as they are searched."""
    apart = {"max_epochs", "patience", "no_aspect_share", "imitate_epochs", "teacher_share"}
    found = {}
    for row, changes in (("capsar", {}), ("capsar-best", search.SETTLED)):
        config = runs.planned((row,))[0].shown_config()
        own = found[row] = config["model"] | config["train"]
        expected: dict[str, Any] = search.FAITHFUL | changes
        assert {name: own[name] for name in expected} == expected
    differ = {
        name for name, value in found["capsar"].items() if value != found["capsar-best"][name]
    }
    assert differ - {"teacher", "seed"} == apart | set(search.SETTLED)
