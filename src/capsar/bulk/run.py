"""Run a scoring job."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.bulk import filesystem
from capsar.bulk.executors import run_local, run_on_ray
from capsar.bulk.job import Job, ScoreOptions
from capsar.bulk.manifest import SUCCESS, SUMMARY, open_manifest
from capsar.bulk.output import RowCounts, read_result, scratch_folder
from capsar.errors import CapsarError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from capsar.bulk.output import JobProgress, JobSummary, ShardResult
    from capsar.bulk.shards import Shard

_NUM_THREADS = 16


class JobStoppedError(CapsarError, RuntimeError):
    """A job that could not continue. The same call resumes it."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where workers run, and how many."""

    name: str = "local"
    """`local`: processes on this machine; `ray`: actors of a Ray cluster."""
    workers: tuple[int, int] | None = None
    """Minimum and maximum number of workers; by default one per core."""
    address: str | None = None
    """Address of a Ray cluster; if `None`, start Ray on this machine."""

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise ConfigError(f"There is no engine {self.name!r}; expected 'local' or 'ray'")
        if self.address and self.name != "ray":
            raise ConfigError("An address requires the engine 'ray'")
        if self.workers is not None and not 1 <= self.workers[0] <= self.workers[1]:
            raise ConfigError(
                f"workers must be 1 or more, the minimum first, got {self.workers[0]} and "
                f"{self.workers[1]}"
            )

    def range(self) -> tuple[int, int]:
        """Return the minimum and maximum number of workers."""
        return self.workers or (_num_cores(), _num_cores())


def score(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    options: ScoreOptions | None = None,
    *,
    engine: EngineOptions | None = None,
    on_progress: Callable[[JobProgress], None] | None = None,
) -> JobSummary:
    """Score files of any number and size into a folder of Parquet files.

    Finished shards are skipped, so the same call resumes a job that was interrupted.

    Args:
        inputs: Files, folders or patterns, local or remote: Parquet, CSV or JSON Lines.
        output: A folder, local or remote.
        options: Columns, model and shard size.
        engine: Where workers run; by default processes on this machine.
        on_progress: Called after each shard.

    Raises:
        DataError: If there is no input, or the output folder belongs to another job.
        JobStoppedError: If the output cannot be written (full disk, unavailable storage).
    """
    options, engine = options or ScoreOptions(), engine or EngineOptions()
    job = Job.make(options, filesystem.normalize(str(output)))
    paths = [inputs] if isinstance(inputs, str | Path) else inputs
    manifest = open_manifest(job, [str(path) for path in paths])
    _clear_scratch(job.output)
    filesystem.remove(filesystem.join(job.output, SUCCESS))
    counts = RowCounts(manifest.shards, engine.range()[1])
    for result in _finished_results(job, manifest.finished):
        counts.add(result, is_new=False)
    missing = [shard for shard in manifest.shards if shard.name not in manifest.finished]
    for result in _run(job, missing, engine):
        if result.stopped:
            raise JobStoppedError(f"{result.stopped}. Run the same command again to resume.")
        counts.add(result, is_new=True)
        if on_progress is not None:
            on_progress(counts.progress())
    summary = counts.summary(job.output, manifest.ignored, _clear_scratch(job.output))
    _write_summary(job, summary)
    return summary


def _write_summary(job: Job, summary: JobSummary) -> None:
    """Write the summary, then the success marker if no shard is missing."""
    content = json.dumps(summary.as_dict(), indent=1, ensure_ascii=False) + "\n"
    try:
        filesystem.write_bytes(
            filesystem.join(job.output, SUMMARY), content.encode("utf-8", "replace")
        )
        if not summary.unreadable:
            filesystem.write_bytes(filesystem.join(job.output, SUCCESS), b"")
    except OSError as error:
        raise JobStoppedError(
            f"All shards are scored, but the summary cannot be written to {job.output!r}: {error}. "
            "Run the same command again to write it."
        ) from error


def _run(job: Job, shards: list[Shard], engine: EngineOptions) -> Iterator[ShardResult]:
    if not shards:
        return iter(())
    if engine.name == "local":
        return run_local(job, shards, engine.range()[1])
    return run_on_ray(job, shards, workers=engine.range(), address=engine.address)


def _finished_results(job: Job, finished: set[str]) -> Iterator[ShardResult]:
    uris = [filesystem.join(job.output, name) for name in sorted(finished)]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        yield from pool.map(read_result, uris)


def _clear_scratch(output: str) -> int:
    """Remove files that crashed workers left behind, and return their number."""
    if not filesystem.is_local(output):
        return 0
    folder = scratch_folder(output)
    names = filesystem.list_names(folder)
    for name in names:
        filesystem.remove(filesystem.join(folder, name))
    return len(names)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
