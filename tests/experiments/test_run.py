"""One small real run: trained, deleted, repeated, interrupted and resumed."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import run as runs
from studies.diagnose import diagnose

SETTINGS = (
    ("data", "vectors", "glove.840B.300d.subset"),
    ("data", "validation_ratio", 0.1),
    ("data", "train_ratio", 0.05),
    ("model", "units", 8),
    ("model", "primary_dim", 4),
    ("model", "intermediate_capsules", 4),
    ("model", "intermediate_dim", 8),
    ("model", "class_dim", 8),
    ("train", "max_epochs", 3),
)
ONE = runs.Run("tiny", "capsar", "ours", "laptop", 1, SETTINGS)
THIN = dataclasses.replace(ONE, dataset="restaurant", vector_ratio=0.5)
VARYING = {"seconds", "evaluated_at", "commit"}


@pytest.fixture
def work(tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPSAR_DATA", str(shared))
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RUN_FILES", tmp_path / "results")
    return tmp_path


def metrics_of(run: runs.Run) -> dict[str, Any]:
    content = run.read()
    assert content is not None
    return {name: value for name, value in content.items() if name not in VARYING}


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("run", [ONE, THIN], ids=["all vectors", "half of the vectors"])
def test_a_deleted_run_gives_the_same_metrics_again(run: runs.Run, work: Path) -> None:
    assert run.read() is None
    runs.do_run(run)
    first = metrics_of(run)
    assert str(work) not in run.result.read_text(encoding="utf-8")
    assert first["config"] == run.shown_config()
    assert first["detection"]["test"]["statistics"]["num_sentences"] in (600, 411)
    assert first["test"]["metrics"]["num_examples"] in (1120, 638)
    assert sum(map(sum, first["validation_confusion"])) == first["validation_examples"]
    assert [case["case"] for case in first["cases"]]
    for bins in first["calibration"].values():
        assert len(bins) == 10
    # Without the run file only, it is evaluated again, not trained again.
    run.result.unlink()
    runs.do_run(run)
    assert metrics_of(run) == first
    # Without all of it, it is trained again.
    run.result.unlink()
    shutil.rmtree(run.folder)
    runs.do_run(run)
    assert metrics_of(run) == first


def test_a_run_waits_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RUN_FILES", tmp_path)
    ONE.folder.mkdir(parents=True)
    ended = threading.Event()

    def wait() -> None:
        runs.do_run(ONE)
        ended.set()

    waiting = threading.Thread(target=wait, daemon=True)
    with (ONE.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        runs.write_json(ONE.result, {"config_hash": ONE.config_hash})  # the other one has ended
    waiting.join(60)
    assert ended.is_set()
    assert not (ONE.folder / "checkpoints").exists()


@pytest.mark.data
@pytest.mark.slow
def test_the_diagnosis_resumes(work: Path) -> None:
    whole = diagnose(ONE, work / "whole")
    assert [epoch["epoch"] for epoch in whole["epochs"]] == [0, 1, 2]
    assert all("test_macro_f1" in epoch for epoch in whole["epochs"])
    kept = work / "whole" / "test.json"
    found = json.loads(kept.read_text())
    found.pop("2")  # as if stopped between the last checkpoint and its evaluation
    kept.write_text(json.dumps(found))
    assert diagnose(ONE, work / "whole") == whole


def test_metrics_of_another_configuration_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RUN_FILES", tmp_path)
    runs.write_json(ONE.result, {"config_hash": "another"})
    assert ONE.read() is None
    runs.write_json(ONE.result, {"config_hash": ONE.config_hash})
    assert ONE.read() is not None
    assert [path.name for path in tmp_path.iterdir()] == [ONE.result.name]


@pytest.mark.data
def test_vectors_of_several_files_are_joined_and_thinned(work: Path) -> None:
    names = ("glove.840B.300d.subset", "glove.840B.300d.projected")
    parts = [runs.find_vectors(name).read_bytes().splitlines() for name in names]
    assert runs.find_vectors("+".join(names)).read_bytes().splitlines() == parts[0] + parts[1]
    half = runs.find_vectors("+".join(names), 0.5)
    assert half.is_relative_to(work)
    kept = half.read_bytes().splitlines()
    assert 0.45 < len(kept) / sum(map(len, parts)) < 0.55
    assert set(kept) <= set(parts[0] + parts[1])


def test_the_hash_of_a_run_depends_on_the_runs_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    student = runs.find_run("capsar-extended-laptop-0")
    before, find_run = student.config_hash, runs.find_run
    for needed in student.needs:

        def change(name: str, needed: str = needed) -> runs.Run:
            found = find_run(name)
            return dataclasses.replace(found, vector_ratio=0.5) if name == needed else found

        monkeypatch.setattr(runs, "find_run", change)
        assert student.config_hash != before
