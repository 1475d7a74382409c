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


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A search of ten trials, of settings whose worth is known."""

    def value_of(settings: dict[str, dict[str, Any]], dataset: str, number: int) -> float:
        worth = 0.7 - abs(settings["model"]["input_dropout"] - 0.5) / 2
        return worth + 0.02 * (settings["train"]["average"] == 0.99) + 0.1 * (dataset == "laptop")

    monkeypatch.setattr(search, "STUDY", tmp_path / "search.jsonl")
    monkeypatch.setattr(search, "value_of", value_of)
    monkeypatch.setattr(search, "close_test_parts", lambda: None)
    monkeypatch.setattr(search, "commit_of_code", lambda: "0" * 40)
    for trials in ("4", "6"):  # the second one joins
        monkeypatch.setattr(sys, "argv", ["search.py", "--trials", trials])
        search.main()
    told: dict[str, Any] = json.loads((tmp_path / "search.json").read_text())
    return told


def test_a_search_begins_with_what_is_known_and_stops_what_is_worse(study: dict[str, Any]) -> None:
    trials = study["trials"]
    assert [trial["number"] for trial in trials] == list(range(10))
    assert [trial["settings"] for trial in trials[:3]] == [
        search.FAITHFUL | change for change in search.FIRST
    ]
    assert [trial["value"] for trial in trials[:3]] == [0.75, 0.77, 0.77]
    stopped = [trial for trial in trials if trial["state"] == "pruned"]
    assert stopped
    assert all(trial["restaurant"] is None and trial["laptop"] for trial in stopped)
    assert study["seconds"] == pytest.approx(sum(trial["seconds"] for trial in trials), abs=1e-4)


def test_what_a_search_found_is_told(
    study: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render_search, "_SEARCH", tmp_path / "search.json")
    page = render_search.section()
    assert page.startswith("### What was searched\n\n10 trials")
    assert "| 0 | none | .7000 | .8000 | .7500 |" in page
    assert "| 1 | `average = 0.99` | .7200 | .8200 | .7700 |" in page
    (tmp_path / "search.json").unlink()
    assert not render_search.section()


def test_what_is_settled_is_what_capsar_best_has() -> None:
    """The trials named after rows have the settings of those rows."""
    for row, changes in (("capsar", {}), ("capsar-best", search.SETTLED)):
        config = runs.planned((row,))[0].config().as_dict()
        own = config["model"] | config["train"]
        expected: dict[str, Any] = search.FAITHFUL | changes
        assert {name: own[name] for name in expected} == expected
