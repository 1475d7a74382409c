"""Reproduce the results: `python experiments/reproduce.py table1|…|all --jobs 2`.

Runs what is missing in dependency order (a network, then those that are fine-tuned from it or
distilled from it), resumes what was stopped, writes one JSON file per run and renders the pages
from these files. `--dry-run` prints the order. See `experiments/README.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from pages.render import render_pages
from run import (
    ALL,
    BERT,
    EXPERIMENTS,
    EXTENDED,
    EXTENDED_ABLATIONS,
    FOLDS,
    MAIN,
    SPANS,
    SWEEPS,
    Run,
    find_run,
    planned,
)
from summarize import write_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TARGETS = {
    "table1": (),
    "table2": MAIN,
    "table3": ("capsar",),
    "table4": ("capsar",),
    "arts": ("capsar",),
    "figures": ("capsar", *SWEEPS),
    "bert": BERT,
    "spans": FOLDS + SPANS,
    "extended": EXTENDED + EXTENDED_ABLATIONS,
    "all": ALL,
}
_REFRESHING = Lock()


@dataclass(frozen=True, slots=True)
class Task:
    """One process: a run, or the training of one that others need."""

    name: str
    command: tuple[str, ...]
    """A script below `experiments/` and its arguments."""
    needs: tuple[str, ...] = ()
    """The tasks that must end before it starts."""


def plan(runs: Sequence[Run]) -> list[Task]:
    """Return the tasks of some runs, each after those that it needs.

    The metrics of a run that others need may be committed while its bundle is missing: then it is
    only trained.
    """
    names = {run.name for run in runs}
    tasks: dict[str, Task] = {}

    def add(run: Run) -> None:
        if run.name in tasks:
            return
        needs = [find_run(name) for name in run.needs]
        missing = [one for one in needs if one.name in names or not one.bundle.is_dir()]
        for one in missing:
            add(one)
        command = ("run.py",) if run.name in names else ("run.py", "train")
        needed = tuple(one.name for one in missing)
        tasks[run.name] = Task(run.name, (*command, run.name), needed)

    for run in runs:
        add(run)
    return list(tasks.values())


def execute(tasks: Sequence[Task], jobs: int, start: Callable[[Task], bool]) -> dict[str, str]:
    """Start each task once those that it needs have ended, at most `jobs` at a time.

    Args:
        tasks: In an order in which each stands after those that it needs.
        jobs: The most tasks at a time.
        start: Does one task and returns whether it succeeded.

    Returns:
        The tasks that were not done, and why.
    """
    waiting = list(tasks)
    running: dict[Future[bool], Task] = {}
    done: set[str] = set()
    problems: dict[str, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            for task in list(waiting):
                failed = [name for name in task.needs if name in problems]
                if failed:
                    problems[task.name] = f"needs {', '.join(failed)}"
                elif len(running) < jobs and done.issuperset(task.needs):
                    running[pool.submit(start, task)] = task
                else:
                    continue
                waiting.remove(task)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                if future.result():
                    done.add(task.name)
                else:
                    problems[task.name] = "failed"
    return problems


def start_process(task: Task) -> bool:
    """Run a task in its own process with one thread, then render the pages."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    script, *arguments = task.command
    command = [sys.executable, str(EXPERIMENTS / script), *arguments]
    succeeded = subprocess.run(command, env=environment, check=False).returncode == 0
    with _REFRESHING:
        refresh()
    return succeeded


def refresh() -> None:
    """Write the summary and the pages from the run files."""
    write_summary()
    render_pages()


def draw_figures() -> None:
    """Draw the figures; score the sentences of the heat maps if that was not done before."""
    from pages.figures import HEATMAPS, draw_all, score_heatmaps

    bundle = planned(("capsar",))[0].bundle
    if bundle.is_dir() and not HEATMAPS.is_file():
        score_heatmaps(bundle)
    draw_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--jobs", type=int, default=1, help="tasks at a time, one thread each")
    parser.add_argument("--dry-run", action="store_true", help="print the tasks in their order")
    options = parser.parse_args()
    missing = [run for run in planned(TARGETS[options.target]) if run.read() is None]
    for run in missing:
        needed = [run, *map(find_run, run.needs)]
        encoders = sorted({one.pretrained for one in needed if not one.can_run})
        if encoders:
            print(f"skipped: {run.name} needs {encoders} below CAPSAR_ENCODERS", file=sys.stderr)
            missing = [other for other in missing if other != run]
    tasks = plan(missing)
    if options.dry_run:
        for task in tasks:
            print(task.name, *(f"after {name}" for name in task.needs))
        return 0
    problems = execute(tasks, options.jobs, start_process)
    if options.target in ("figures", "all"):
        draw_figures()
    refresh()
    for name, problem in problems.items():
        print(f"{name}: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
