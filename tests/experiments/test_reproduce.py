"""The order of reproduction: the initial network, teachers, students; also with several jobs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import run as runs
from reproduce import Task, execute, plan

GENERAL = "capsar-general-all-0"
TEACHERS = tuple(f"capsar-bert-extended-laptop-{seed}" for seed in range(5))


@pytest.fixture(autouse=True)
def empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was trained or evaluated before."""
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RUN_FILES", tmp_path / "results")


def students(dataset: str = "laptop") -> list[runs.Run]:
    return [run for run in runs.planned(("capsar-extended",)) if run.dataset == dataset]


def test_everything_stands_after_what_it_needs() -> None:
    tasks = plan(runs.planned())
    assert {run.name for run in runs.planned()} <= {task.name for task in tasks}
    before: set[str] = set()
    for task in tasks:
        assert before.issuperset(task.needs), task
        assert task.name not in before
        before.add(task.name)
    by_name = {task.name: task for task in tasks}
    assert by_name["capsar-extended-laptop-3"].needs == (*TEACHERS, GENERAL)
    assert by_name["capsar-extended-wo-teacher-restaurant-0"].needs == (GENERAL,)
    assert by_name[GENERAL].command == ("run.py", "train", GENERAL)
    assert by_name[TEACHERS[0]].command == ("run.py", TEACHERS[0])
    assert by_name["capsar-restaurant-0"].needs == ()


def test_a_student_without_its_teachers_bundles_plans_the_teachers() -> None:
    """The metrics of a teacher may be committed, and its bundle missing."""
    tasks = plan(students()[:1])
    assert [task.name for task in tasks] == [*TEACHERS, GENERAL, students()[0].name]
    assert tasks[0].command == ("run.py", "train", TEACHERS[0])


def test_finished_steps_are_not_repeated() -> None:
    for name in (*TEACHERS, GENERAL):
        assert name in {task.name for task in plan(students()[:1])}
        runs.find_run(name).bundle.mkdir(parents=True)
    assert [task.name for task in plan(students()[:1])] == [students()[0].name]


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_no_task_starts_before_what_it_needs_has_ended(jobs: int) -> None:
    tasks = plan([*students(), *students("restaurant"), *runs.planned(("capsar-bert-extended",))])
    ended: set[str] = set()
    running: set[str] = set()
    lock = threading.Lock()

    def start(task: Task) -> bool:
        with lock:
            assert ended.issuperset(task.needs)
            running.add(task.name)
            assert len(running) <= jobs
        time.sleep(0.01 if "bert-" in task.name else 0.002)
        with lock:
            running.remove(task.name)
            ended.add(task.name)
        return True

    assert execute(tasks, jobs, start) == {}
    assert ended == {task.name for task in tasks}


def test_what_needs_a_failed_task_is_not_started() -> None:
    tasks = plan([*students()[:1], *runs.planned(("capsar",))[:1]])
    started: list[str] = []

    def start(task: Task) -> bool:
        started.append(task.name)
        return task.name != GENERAL

    problems = execute(tasks, 2, start)
    assert problems == {GENERAL: "failed", students()[0].name: f"needs {GENERAL}"}
    assert set(started) == {*TEACHERS, GENERAL, "capsar-restaurant-0"}
