"""Run a scoring job: plan, score, and write the summary."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capsar.bulk import filesystem, planning
from capsar.bulk.executors import LocalEngine, Pool, RayEngine, RetryPolicy
from capsar.bulk.job import Job, ScoreOptions
from capsar.bulk.manifest import (
    SUCCESS,
    SUMMARY,
    complete_files,
    discard_manifest,
    open_manifest,
    output_names,
)
from capsar.bulk.planning import PlannedFile, make_shards
from capsar.bulk.rows import file_format, read_parquet, read_text
from capsar.bulk.scoring import Scorer
from capsar.bulk.worker import Task, WorkerSetup, make_run_id, remove_scratch
from capsar.errors import ArtifactError, CapsarError, ConfigError, DataError
from capsar.inference.sessions import num_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.bulk.manifest import JobManifest
    from capsar.bulk.output import ShardResult
    from capsar.bulk.rows import InputRow
    from capsar.bulk.worker import TaskResult

_FILE_ENDINGS = (".csv", ".tsv", ".xlsx", ".json", ".jsonl")
_MAX_ERRORS = 100
_SAMPLE_SECONDS = 5.0
_SAMPLE_ROWS = 32
_COMPRESSION = 3.0
"""Assumed ratio of a compressed file that is too long to be read by an estimate."""


class JobStoppedError(CapsarError, RuntimeError):
    """A job that could not continue. The same call resumes it."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where workers run, and how many."""

    name: str = "local"
    """`local`: processes on this machine; `ray`: actors of a Ray cluster."""
    workers: int | None = None
    """Number of workers; by default one per core of this machine."""
    address: str | None = None
    """Address of a Ray cluster; if `None`, start Ray on this machine."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise ConfigError(f"There is no engine {self.name!r}; expected 'local' or 'ray'")
        if self.address and self.name != "ray":
            raise ConfigError("An address requires the engine 'ray'")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers must be 1 or more, got {self.workers}")


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a running job."""

    rows: int
    """Rows scored, including earlier runs and unfinished shards."""
    errors: int
    shards_done: int
    shards: int
    """Shards known so far; converting a text file adds its shards."""
    rows_per_second: float
    """Rate of this run."""
    seconds_left: float | None
    """Estimated from bytes of input; `None` before the first shard is done."""
    workers: int


@dataclass(slots=True)
class JobSummary:
    """The result of a job, as in `_summary.json`."""

    output: str
    ignored: list[str]
    """Files of unknown format, which were not read."""
    rows: int = 0
    rows_with_error: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Number of rows with an error, by kind."""
    first_errors: list[dict[str, str]] = field(default_factory=list)
    """The first rows with an error: file, location, error."""
    unreadable: list[dict[str, str]] = field(default_factory=list)
    """Files, or parts of files, that could not be read: file, missing output file, reason."""
    shards: int = 0
    shards_skipped: int = 0
    """Shards finished in an earlier run."""
    shards_retried: int = 0
    """Attempts that were lost because a worker crashed."""
    seconds: float = 0.0
    rows_per_second: float = 0.0
    """Rate of this run."""

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary for JSON."""
        return asdict(self) | {"errors": dict(self.errors.most_common())}

    def add(self, result: ShardResult) -> None:
        """Add the result of a finished shard."""
        self.rows += result.rows
        self.errors.update(result.errors)
        self.rows_with_error = self.errors.total()
        for location, error in result.first_errors[: _MAX_ERRORS - len(self.first_errors)]:
            self.first_errors.append({"file": result.uri, "location": location, "error": error})


def score(
    inputs: str | Path | Sequence[str | Path],
    output: str | Path,
    options: ScoreOptions | None = None,
    *,
    engine: EngineOptions | None = None,
    on_progress: Callable[[JobProgress], None] | None = None,
) -> JobSummary:
    """Score files of any number and size into a folder of Parquet files.

    Finished shards are skipped, so the same call resumes a job that was interrupted, and adds new
    files of a folder to its output.

    Args:
        inputs: Files, folders or patterns, local or remote: Parquet, CSV, Excel or JSON Lines.
        output: A folder, local or remote.
        options: Columns, model and shard size.
        engine: Where workers run; by default processes on this machine.
        on_progress: Called about once per second.

    Raises:
        ConfigError: If the output has the name of a file.
        DataError: If there is no input, or the output folder belongs to another job.
        JobStoppedError: If the output cannot be written (full disk, unavailable storage).
    """
    options, engine = options or ScoreOptions(), engine or EngineOptions()
    if str(output).endswith(_FILE_ENDINGS):
        raise ConfigError(
            f"The output is a folder of Parquet files, got {str(output)!r}; `capsar report FOLDER "
            "--out NAME.csv` writes a table"
        )
    job = Job.make(options, filesystem.normalize(str(output)))
    run = _Run(open_manifest(job, _uris(inputs)), engine)
    if run.is_incomplete:
        filesystem.remove(filesystem.join(job.output, SUCCESS))
    if run.tasks:
        try:
            run.execute(on_progress or (lambda _: None))
        except ArtifactError:  # no worker can start with these options, so they may be corrected
            discard_manifest(job)
            raise
    return run.finish()


def _uris(inputs: str | Path | Sequence[str | Path]) -> list[str]:
    return [str(path) for path in ([inputs] if isinstance(inputs, str | Path) else inputs)]


class _Run:
    """The state of a running job."""

    def __init__(self, manifest: JobManifest, engine: EngineOptions) -> None:
        self._job, self._engine = manifest.job, engine
        self._summary = JobSummary(self._job.output, manifest.ignored)
        self._start = time.monotonic()
        for result in manifest.finished.values():
            self._summary.add(result)
        self._finished = set(manifest.finished)
        self._summary.shards = self._summary.shards_skipped = self._done = len(self._finished)
        self._rows_before = self._summary.rows
        self._complete = complete_files(manifest.finished)
        self._new_bytes = self._bytes_left = 0
        self.tasks = [task for planned in manifest.planned for task in self._tasks_of(planned)]

    @property
    def is_incomplete(self) -> bool:
        """Whether a shard is missing, or a file cannot be read."""
        return bool(self.tasks or self._summary.unreadable)

    def _tasks_of(self, planned: PlannedFile) -> list[Task]:
        """Return what is left to do for a file."""
        file, job = planned.file, self._job
        if planned.error:
            self._add_unreadable(file.uri, "", planned.error)
            return []
        if planning.file_digest(job, file) in self._complete:
            return []
        if planning.needs_conversion(planned, job.options):
            self._bytes_left += file.size
            return [Task(file)]
        shards = [s for s in make_shards(job, planned) if s.name not in self._finished]
        self._summary.shards += len(shards)
        self._bytes_left += sum(shard.size for shard in shards)
        return [Task(file, shard) for shard in shards]

    def _add_unreadable(self, uri: str, name: str, reason: str) -> None:
        self._summary.unreadable.append({"file": uri, "missing": name, "reason": reason})

    def execute(self, on_progress: Callable[[JobProgress], None]) -> None:
        """Run all tasks."""
        run_id, policy = make_run_id(), self._engine.retry
        num_workers = self._engine.workers or num_cores()
        setup = WorkerSetup(self._job, run_id, policy.silent_seconds)
        engine: LocalEngine | RayEngine = LocalEngine(setup)
        if self._engine.name == "ray":
            engine = RayEngine(setup, num_workers, self._engine.address)
            policy = replace(policy, start_seconds=math.inf)  # a cluster may take long to grow
        pool = Pool(engine, num_workers, policy)
        pool.submit(self.tasks)
        last = 0.0
        try:
            for finished in pool.run():
                for task, result in finished:
                    pool.submit(self._finish_task(task, result))
                if finished or time.monotonic() - last >= 1:
                    last = time.monotonic()
                    on_progress(self._progress(pool.partial_rows, num_workers))
        finally:
            pool.close()
            self._summary.shards_retried = pool.num_retries
            remove_scratch(self._job.output, run_id)

    def _finish_task(self, task: Task, result: TaskResult) -> list[Task]:
        """Add a result to the summary, and return the tasks that follow from it."""
        if result.stopped:
            raise JobStoppedError(f"{result.stopped}. Run the same command again to resume.")
        size = task.shard.size if task.shard else task.file.size
        self._bytes_left -= size
        self._done += task.shard is not None
        if result.groups is not None:
            return self._tasks_of(PlannedFile(task.file, result.groups))
        if result.shard is not None:
            self._summary.add(result.shard)
            self._finished.add(task.name)
            self._new_bytes += size
        else:
            name = task.shard.name if task.shard else ""
            self._add_unreadable(task.file.uri, name, result.unreadable)
        return []

    def _progress(self, partial: int, workers: int) -> JobProgress:
        """Return the progress; rows of unfinished shards are `partial`."""
        summary, seconds_left = self._summary, None
        new_rows = summary.rows - self._rows_before
        rows_per_second = (new_rows + partial) / max(1e-9, time.monotonic() - self._start)
        if new_rows:
            rows_left = self._bytes_left * new_rows / max(1, self._new_bytes) - partial
            seconds_left = max(0.0, rows_left / rows_per_second)
        return JobProgress(
            rows=summary.rows + partial,
            errors=summary.rows_with_error,
            shards_done=self._done,
            shards=summary.shards,
            rows_per_second=rows_per_second,
            seconds_left=seconds_left,
            workers=workers,
        )

    def finish(self) -> JobSummary:
        """Write the summary if anything is new, and the success marker if no shard is missing.

        Raises:
            JobStoppedError: If they cannot be written, or the output contains other files.
        """
        output, summary = self._job.output, self._summary
        summary.seconds = round(time.monotonic() - self._start, 3)
        new_rows = summary.rows - self._rows_before
        summary.rows_per_second = round(new_rows / max(1e-9, summary.seconds), 1)
        success = filesystem.join(output, SUCCESS)
        try:
            if not self.is_incomplete and filesystem.read_bytes(success) is not None:
                return summary
            content = json.dumps(summary.as_dict(), indent=1, ensure_ascii=False) + "\n"
            path = filesystem.join(output, SUMMARY)
            filesystem.write_bytes(path, content.encode("utf-8", "replace"))
            if summary.unreadable:
                return summary
            different = self._finished.symmetric_difference(output_names(self._job))
            if different:
                filesystem.remove(success)  # of a job with other inputs
                raise JobStoppedError(
                    f"{output!r} has changed while the job was running, for example "
                    f"{min(different)!r}. Run the same command again."
                )
            converted = filesystem.join(output, filesystem.JOB_FOLDER, "converted")
            for name in filesystem.list_names(converted):
                filesystem.remove(filesystem.join(converted, name))
            filesystem.write_bytes(success, b"")
        except OSError as error:
            raise JobStoppedError(
                f"All shards are scored, but the summary cannot be written to {output!r}: {error}. "
                "Run the same command again to write it."
            ) from error
        return summary


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """What a job would do."""

    files: int
    rows: int
    """Exact for Parquet; estimated from the first rows of other files."""
    shards: int
    seconds: float
    """Estimated by scoring the first rows."""
    core_hours: float
    unreadable: list[str]
    """Why files cannot be read."""


def estimate(
    inputs: str | Path | Sequence[str | Path],
    options: ScoreOptions | None = None,
    *,
    engine: EngineOptions | None = None,
) -> JobEstimate:
    """Estimate the size and the duration of a job. Nothing is written.

    Raises:
        DataError: If there is no input, or a column is missing.
    """
    options, engine = options or ScoreOptions(), engine or EngineOptions()
    job = Job.make(options, "")
    files, _ = planning.find_files(_uris(inputs), "")
    planning.check_first_file(files, options)
    scorer, row_seconds = Scorer(options), 0.0
    rows = shards = 0
    unreadable: list[str] = []
    samples: dict[tuple[str, str | None], _Sample] = {}
    for file in planning.plan_files(job, files):
        kind = file_format(file.file.uri)
        sample = samples.get(kind, _Sample())
        try:
            if file.error:
                raise DataError(file.error)
            if not sample.rows:
                sample = samples[kind] = _sample(file, options)
        except (DataError, OSError, pa.ArrowException) as error:
            unreadable.append(
                str(error) if file.file.uri in str(error) else f"{file.file.uri}: {error}"
            )
            continue
        row_seconds = row_seconds or _measure_seconds(sample.rows, scorer)
        if not file.is_text:
            rows += sum(file.groups or ())
            shards += len(make_shards(job, file))
            continue
        file_rows = round(file.file.size / sample.file_bytes) if sample.rows else 0
        rows += file_rows
        size = planning.shard_bytes(file.file, options)
        shards += max(1, math.ceil(file_rows * sample.row_bytes / size))
    core_seconds = rows * row_seconds
    workers = min(engine.workers or num_cores(), max(1, shards))
    num_files, seconds = len(files) - len(unreadable), core_seconds / workers
    return JobEstimate(num_files, rows, shards, seconds, core_seconds / 3600, unreadable)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The first rows of a file, and the size of all that were read."""

    rows: list[InputRow] = field(default_factory=list)
    file_bytes: float = 0.0
    """Bytes of a row in the file, which may be compressed."""
    row_bytes: float = 0.0
    """Bytes of a row, estimated from its text: other columns and separators are about a quarter."""


def _sample(file: PlannedFile, options: ScoreOptions) -> _Sample:
    """Read a file for some seconds. Only the size of text files is estimated."""
    uri = file.file.uri
    if not file.is_text:
        batch = next(read_parquet(uri, 0, sum(file.groups or ()), options, None), None)
        return _Sample(batch.rows if batch else [])
    rows: list[InputRow] = []
    num_rows = num_bytes = 0
    start = time.monotonic()
    for batch in read_text(uri, options, None):
        rows = rows or batch.rows
        num_rows += len(batch.rows)
        num_bytes += sum(len(row.text.encode()) for row in batch.rows)
        if num_rows and time.monotonic() - start > _SAMPLE_SECONDS:
            row_bytes = max(1.0, 1.25 * num_bytes / num_rows)
            return _Sample(
                rows, row_bytes / (_COMPRESSION if file_format(uri)[1] else 1), row_bytes
            )
    num_rows = max(1, num_rows)
    return _Sample(rows, file.file.size / num_rows, 1.25 * num_bytes / num_rows)


def _measure_seconds(rows: list[InputRow], scorer: Scorer) -> float:
    """Return the seconds per row; 0 if there are none."""
    start, num_scored = time.monotonic(), 0
    while num_scored < len(rows) and time.monotonic() - start < _SAMPLE_SECONDS:
        num_scored += len(scorer.score(rows[num_scored : num_scored + _SAMPLE_ROWS]))
    return (time.monotonic() - start) / num_scored if num_scored else 0.0
