"""Entries and blocks of extracted spans and confidences, from made-up runs."""

from __future__ import annotations

from typing import Any

import pytest
from test_results import made_up, pick

from pages import extensions
from run import FOLDS, SPANS, planned
from summarize import Results, summarize


def with_head(name: str, accuracy: float, f1: float) -> dict[str, Any]:
    """Return a made-up run with spans and confidences."""
    share = {"precision": f1, "recall": f1, "f1": f1}
    found = {
        "spans": share, "spans_with_terms": share, "joint": share | {"f1": f1 - 0.2},
        "false_per_100": 100 * (1 - f1),
    }  # fmt: skip
    sure = {"ece": 0.03, "ece_bound": 0.04, "brier": 0.3, "log_loss": 0.5, "accuracy": accuracy,
            "accuracy_at_80": accuracy + 0.05}  # fmt: skip
    run = made_up(name, accuracy)
    capsules = found | {"spans": {"precision": 0.3, "recall": 0.3, "f1": 0.3}}
    return run | {
        "spans": {"spans": found, "capsules": capsules},
        "validation_spans": found,
        "confidence": {"calibrated": sure, "uncalibrated": sure | {"brier": 0.4}},
    }


def test_planned_rows_with_an_extraction_head() -> None:
    plans = {(run.row, run.encoder, run.dataset): 0 for run in planned(SPANS) if run.config().model}
    for run in planned(SPANS):
        plans[run.row, run.encoder, run.dataset] += 1
        assert run.config().model.span_weight > 0
    assert plans == {
        (row, encoder, dataset): seeds
        for row, encoder, seeds in (
            ("capsar-spans", "bigru", 5),
            ("capsar-spans-folds", "bigru", 5),
            ("capsar-bert-spans", "all-MiniLM-L6-v2", 3),
        )
        for dataset in ("restaurant", "laptop")
    }
    for with_folds in (*planned(FOLDS), *planned(("capsar-spans-folds",))):
        assert with_folds.config().data.folds == 3
    others = [run for run in planned() if run.source not in (*SPANS, "capsar-bert-extended")]
    assert all(run.config().model.span_weight == 0 for run in others)


def test_spans_and_confidences_are_summarized_by_hand() -> None:
    runs = [
        with_head("capsar-spans-restaurant-0", 0.80, 0.8),
        with_head("capsar-spans-restaurant-1", 0.82, 0.9),
        made_up("capsar-restaurant-0", 0.79),
        made_up("capsar-restaurant-1", 0.83),
    ]
    entries = summarize(runs)

    def mean(table: str, metric: str) -> float:
        entry = pick(entries, table=table, metric=metric, row="capsar-spans")
        assert (entry["n"], entry["dataset"], entry["encoder"]) == (2, "restaurant", "bigru")
        return float(entry["mean"])

    assert mean("spans", "span_f1") == pytest.approx(0.85)
    assert mean("spans", "joint_f1") == pytest.approx(0.65)
    assert mean("spans", "false_per_100") == pytest.approx(15)
    assert mean("spans", "span_f1_capsules") == pytest.approx(0.3)
    assert mean("spans", "validation_span_f1") == pytest.approx(0.85)
    assert mean("spans", "accuracy_vs_capsar") == pytest.approx(0.0)  # + .01 and - .01
    assert mean("confidence", "ece") == pytest.approx(0.03)
    assert mean("confidence", "ece_bound") == pytest.approx(0.04)
    assert mean("confidence", "brier_uncalibrated") == pytest.approx(0.4)
    assert mean("confidence", "accuracy_at_80") == pytest.approx(0.86)
    results = Results(entries, runs)
    shown = extensions.spans(results)
    assert "| Restaurant | CAPSAR with a head, Bi-GRU | spans | 2 | .8500 ± .0707 |" in shown
    assert "| capsules | 2 | .3000 ± .0000 |" in shown
    assert "| accuracy | .8100 ± .0141 | +.0000 [" in extensions.spans_cost(results)
    shown = extensions.confidence(results)
    assert "| Restaurant | CAPSAR with a head, Bi-GRU | ours | 2 | .0300" in shown
    # Table 2 of the paper does not contain these rows.
    assert not [e for e in entries if e["table"] == "table2" and e["row"] == "capsar-spans"]
