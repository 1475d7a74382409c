"""One job, from input files to `_SUCCESS`."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.bulk import store
from capsar.bulk.job import Job, ScoreOptions
from capsar.bulk.ledger import SUCCESS, SUMMARY, open_ledger
from capsar.bulk.local import run_local
from capsar.bulk.output import read_report, scratch_folder
from capsar.bulk.summary import Tally
from capsar.errors import CapsarError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from capsar.bulk.fragments import Fragment
    from capsar.bulk.output import Report
    from capsar.bulk.summary import Progress, Summary

_REPORTS_AT_ONCE = 16


class JobStoppedError(CapsarError, RuntimeError):
    """A job that could not go on. Run again, it goes on where it was."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Who does the work."""

    name: str = "local"
    """`local`: processes of this machine; `ray`: actors of a Ray cluster."""
    workers: tuple[int, int] | None = None
    """How many at least and at most (Ray may add and remove some); by default one a processor."""
    address: str | None = None
    """Of a Ray cluster; without it Ray is started on this machine."""

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise ConfigError(f"There is no engine {self.name!r}; expected 'local' or 'ray'")
        if self.address and self.name != "ray":
            raise ConfigError("An address is that of a Ray cluster; choose the engine 'ray'")
        if self.workers is not None and not 1 <= self.workers[0] <= self.workers[1]:
            raise ConfigError(f"workers must be 1 or more, the least first, got {self.workers}")

    def range(self) -> tuple[int, int]:
        """Return how many workers at least and at most."""
        return self.workers or (_processors(), _processors())


def score(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    options: ScoreOptions | None = None,
    *,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Score files of any number and size into a folder of Parquet files.

    What is finished is skipped, so a job that was stopped, by whatever, is run again to go on.

    Args:
        inputs: Files, folders or patterns: Parquet, CSV or JSON Lines, here or in a store.
        output: A folder, here or in a store.
        options: What is asked of each row.
        engine: Who does the work; by default processes of this machine.
        on_progress: Called when a fragment is done.

    Raises:
        DataError: If there is no input, or the output belongs to another job.
        JobStoppedError: If nothing can be written: the disk is full, the store is gone.
    """
    options, engine = options or ScoreOptions(), engine or Engine()
    job = Job.make(options, store.normal(str(output)))
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    ledger = open_ledger(job, [str(one) for one in given])
    _clear_scratch(job.output)
    store.remove(store.join(job.output, SUCCESS))
    tally = Tally(ledger.fragments, engine.range()[1])
    for report in _finished_reports(job, ledger.finished):
        tally.count(report, is_new=False)
    missing = [fragment for fragment in ledger.fragments if fragment.name not in ledger.finished]
    for report in _run(job, missing, engine):
        if report.stopped:
            raise JobStoppedError(f"{report.stopped}. Run again, the job goes on where it was.")
        tally.count(report, is_new=True)
        if on_progress is not None:
            on_progress(tally.progress())
    summary = tally.summary(job.output, ledger.ignored, _clear_scratch(job.output))
    _conclude(job, summary)
    return summary


def _conclude(job: Job, summary: Summary) -> None:
    """Write the summary, and last of all the sign that nothing is missing."""
    content = json.dumps(summary.as_dict(), indent=1, ensure_ascii=False) + "\n"
    try:
        store.write_bytes(store.join(job.output, SUMMARY), content.encode("utf-8", "replace"))
        if not summary.unreadable:
            store.write_bytes(store.join(job.output, SUCCESS), b"")
    except OSError as error:
        raise JobStoppedError(
            f"All is scored, but the summary cannot be written to {job.output!r}: {error}. "
            "Run again to have it."
        ) from error


def _run(job: Job, fragments: list[Fragment], engine: Engine) -> Iterator[Report]:
    if not fragments:
        return iter(())
    if engine.name == "local":
        return run_local(job, fragments, engine.range()[1])
    from capsar.bulk.on_ray import run_on_ray

    return run_on_ray(job, fragments, workers=engine.range(), address=engine.address)


def _finished_reports(job: Job, finished: set[str]) -> Iterator[Report]:
    addresses = [store.join(job.output, name) for name in sorted(finished)]
    with ThreadPoolExecutor(_REPORTS_AT_ONCE) as pool:
        yield from pool.map(read_report, addresses)


def _clear_scratch(output: str) -> int:
    """Remove what the dead left half written, and return how many files that was."""
    if not store.is_local(output):
        return 0
    folder = scratch_folder(output)
    left = store.names_in(folder)
    for name in left:
        store.remove(store.join(folder, name))
    return len(left)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
