"""The order of reproduction: teacher, pseudo-labels, student; also with several jobs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import pseudo_labels
import run as runs
from reproduce import Task, execute, plan

TEACHER = "capsar-bert-best-laptop-0"
LABELS = "pseudo-labels-laptop"


@pytest.fixture(autouse=True)
def empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was trained, labelled or evaluated before."""
    monkeypatch.setattr(runs, "WORK", tmp_path / "runs")
    monkeypatch.setattr(pseudo_labels, "WORK", tmp_path / "runs")
    monkeypatch.setattr(runs, "RUN_FILES", tmp_path / "results")


def students(dataset: str = "laptop") -> list[runs.Run]:
    return [run for run in runs.planned(("capsar-best",)) if run.dataset == dataset]


def test_everything_stands_after_what_it_needs() -> None:
    tasks = plan(runs.planned())
    assert {run.name for run in runs.planned()} <= {task.name for task in tasks}
    before: set[str] = set()
    for task in tasks:
        assert before.issuperset(task.needs), task
        assert task.name not in before
        before.add(task.name)
    by_name = {task.name: task for task in tasks}
    assert by_name["capsar-best-laptop-3"].needs == (TEACHER, LABELS)
    assert by_name[LABELS].needs == (TEACHER,)
    assert by_name[LABELS].command == ("pseudo_labels.py", "laptop")
    assert by_name["capsar-best-twitter-0"].needs == ("capsar-bert-best-twitter-0",)
    assert by_name["capsar-best-wo-teacher-restaurant-0"].needs == ()
    assert by_name["capsar-restaurant-0"].needs == ()


def test_a_student_without_its_teachers_bundle_plans_the_teacher() -> None:
    """The metrics of the teacher may be committed, and its bundle missing."""
    tasks = plan(students()[:1])
    assert [task.name for task in tasks] == [TEACHER, LABELS, students()[0].name]
    assert tasks[0].command == ("run.py", "train", TEACHER)


def test_finished_steps_are_not_repeated() -> None:
    runs.find_run(TEACHER).bundle.mkdir(parents=True)
    assert [task.name for task in plan(students()[:1])] == [LABELS, students()[0].name]
    path = pseudo_labels.labels_path("laptop")
    runs.write_json(path.with_suffix(".json"), {"teacher": "another"})
    path.write_text("")
    assert [task.name for task in plan(students()[:1])] == [LABELS, students()[0].name]
    teacher = runs.find_run(TEACHER).folder.name
    runs.write_json(path.with_suffix(".json"), {"teacher": teacher})
    assert [task.name for task in plan(students()[:1])] == [students()[0].name]


@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_no_task_starts_before_what_it_needs_has_ended(jobs: int) -> None:
    tasks = plan([*students(), *students("restaurant"), *runs.planned(("capsar-bert-best",))])
    ended: set[str] = set()
    running: set[str] = set()
    lock = threading.Lock()

    def start(task: Task) -> bool:
        with lock:
            assert ended.issuperset(task.needs)
            running.add(task.name)
            assert len(running) <= jobs
        time.sleep(0.01 if "best-" in task.name else 0.002)
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
        return task.name != LABELS

    problems = execute(tasks, 2, start)
    assert problems == {LABELS: "failed", students()[0].name: f"needs {LABELS}"}
    assert set(started) == {TEACHER, LABELS, "capsar-restaurant-0"}
