"""The blocks of `docs/baselines.md`, from made-up results."""

from __future__ import annotations

from typing import Any

import pytest

from pages import baselines
from pages.baselines import ENCODER
from summarize import Results


def results_of(
    monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]], **metrics: float
) -> Results:
    content = {
        "metrics": metrics,
        "restaurant": "capsar-bert",
        "absent": {"Other": "It needs a network."},
        "environments": {"setfit": {"setfit": "1.2"}},
        "machine": "one",
    }
    monkeypatch.setattr(Results, "read", lambda *_: content)
    return Results(entries, [])


def entry_of(row: str, mean: float) -> dict[str, Any]:
    return {
        "table": "table2", "row": row, "encoder": ENCODER, "dataset": "restaurant",
        "protocol": "ours", "gold": None, "metric": "accuracy", "mean": mean, "n": 3,
    }  # fmt: skip


def out_of_domain(row: str, mean: float) -> dict[str, Any]:
    facts = {"table": "out-of-domain", "encoder": None, "protocol": None, "n": 1}
    return entry_of(row, mean) | facts


def row_of(text: str, start: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_last_column_names_where_ours_are_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {
        "setfit_accuracy": 0.75,
        "base_peak_mb": 300, "fast_peak_mb": 100, "setfit_peak_mb": 200,
        "base_lines": 3, "setfit_lines": 4,
    }  # fmt: skip
    entries = [
        entry_of("bert", 0.82), entry_of("capsar-bert", 0.83), out_of_domain("base", 0.8),
        out_of_domain("fast", 0.7),
    ]  # fmt: skip
    results = results_of(monkeypatch, entries, **metrics)
    shown = baselines.comparison(results)
    accuracy = row_of(shown, "accuracy")
    assert accuracy[1:6] == [".8000", ".7000", ".8300", ".7500", ".8200"]
    assert accuracy[-1] == "`base` than BERT pair; `fast` than SetFit-ABSA and BERT pair"
    assert row_of(shown, "peak memory")[-1] == "`base` than SetFit-ABSA"
    assert row_of(shown, "lines")[-1] == ""
    assert "polarity: F1" not in shown
    assert baselines.excluded(results) == "**Other** is not compared. It needs a network."


@pytest.mark.parametrize(("ratio", "verdict"), [(50.0, "reached"), (49.9, "**not reached**")])
def test_a_ratio_is_compared_with_its_target(
    ratio: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = results_of(monkeypatch, [], fast_over_setfit=ratio)
    assert row_of(baselines.speed_ratios(results), "`fast`")[1:] == [f"{ratio}", "50", verdict]
