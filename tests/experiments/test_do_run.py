"""One run, for real and small: done, deleted, done again, stopped and gone on with."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import perform
import runs
from diagnose import diagnose

SETTINGS = (
    ("data", "vectors", "glove.840B.300d.subset"),
    ("data", "dev_share", 0.1),
    ("data", "train_share", 0.05),
    ("model", "units", 8),
    ("model", "primary_dim", 4),
    ("model", "intermediate_capsules", 4),
    ("model", "intermediate_dim", 8),
    ("model", "class_dim", 8),
    ("train", "max_epochs", 3),
)
ONE = runs.Run("tiny", "capsar", "ours", "laptop", 1, SETTINGS)
THIN = dataclasses.replace(ONE, dataset="restaurant", vector_share=0.5)
VARYING = {"seconds", "judged_at", "commit"}


@pytest.fixture
def work(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPSAR_DATA", str(shared))
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "results")
    return tmp_path


def figures_of(run: runs.Run) -> dict[str, Any]:
    content = run.read()
    assert content is not None
    return {name: value for name, value in content.items() if name not in VARYING}


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("run", [ONE, THIN], ids=["whole vectors", "thinned vectors"])
def test_a_run_deleted_and_run_again_gives_the_same_figures(run: runs.Run, work: Path) -> None:
    assert run.read() is None
    assert perform.do_run(run) == 0
    first = figures_of(run)
    assert str(work) not in run.result.read_text(encoding="utf-8")
    assert first["config"] == run.shown_config()
    assert first["detection"]["test"]["statistics"]["num_sentences"] in (600, 411)
    assert first["test"]["figures"]["num_examples"] in (1120, 638)
    assert [case["case"] for case in first["cases"]]
    for bins in first["calibration"].values():
        assert len(bins) == 10
    # Only the figures are gone: the run is judged again, not trained again.
    run.result.unlink()
    perform.do_run(run)
    assert figures_of(run) == first
    # All is gone.
    run.result.unlink()
    shutil.rmtree(run.folder)
    perform.do_run(run)
    assert figures_of(run) == first


def test_a_run_that_another_process_is_at_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    ONE.folder.mkdir(parents=True)
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(perform.do_run(ONE)), daemon=True)
    with (ONE.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        runs.write_json(ONE.result, {"config_hash": ONE.config_hash})  # the other one is done
    waiting.join(60)
    assert ended == [0]
    assert not (ONE.folder / "checkpoints").exists()


@pytest.mark.data
@pytest.mark.slow
def test_the_diagnosis_goes_on_where_it_was_stopped(work: Path) -> None:
    whole = diagnose(ONE, work / "whole")
    assert [epoch["epoch"] for epoch in whole["epochs"]] == [0, 1, 2]
    assert all("test_macro_f1" in epoch for epoch in whole["epochs"])
    kept = work / "whole" / "test.json"
    judged = json.loads(kept.read_text())
    judged.pop("2")  # as if stopped after the last checkpoint and before judging it
    kept.write_text(json.dumps(judged))
    assert diagnose(ONE, work / "whole") == whole


def test_figures_of_another_configuration_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    runs.write_json(ONE.result, {"config_hash": "another"})
    assert ONE.read() is None
    runs.write_json(ONE.result, {"config_hash": ONE.config_hash})
    assert ONE.read() is not None
    assert [path.name for path in tmp_path.iterdir()] == [ONE.result.name]
