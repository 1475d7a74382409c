"""Convert files and score shards. Every engine uses this code."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import tempfile
import time
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from capsar.bulk import filesystem
from capsar.bulk.job import Job, model_fingerprint
from capsar.bulk.output import ShardResult, read_result, write_output
from capsar.bulk.planning import Shard, converted_path, shard_bytes
from capsar.bulk.processes import serve_requests
from capsar.bulk.rows import file_format, read_parquet, read_text, write_converted
from capsar.bulk.scoring import Scorer, SubprocessScorer, append_results
from capsar.errors import ArtifactError, DataError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsar.bulk.filesystem import InputFile
    from capsar.bulk.rows import RowBatch

_MAX_ERRORS = 20
_MAX_ERROR_CHARS = 500
_MAX_READS = 3
"""How often to read a remote file before it counts as damaged."""


@dataclass(frozen=True, slots=True)
class Task:
    """A text file to convert, or a shard to score."""

    file: InputFile
    shard: Shard | None = None
    crashes: int = 0
    """How many workers have crashed on it."""
    isolate: bool = False
    """Whether to score rows in a subprocess, after repeated crashes."""

    @property
    def name(self) -> str:
        """The name of the output file, or the URI of the file to convert."""
        return self.shard.name if self.shard else self.file.uri


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a worker did. Exactly one field is set."""

    groups: tuple[int, ...] | None = None
    """The row groups of a converted file."""
    shard: ShardResult | None = None
    unreadable: str = ""
    """Why the input could not be read; others can still be."""
    stopped: str = ""
    """Why the output could not be written; the job has to stop."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker receives when it starts."""

    job: Job
    run_id: str
    silent_seconds: float


class _UnreadableError(DataError):
    """An input file that cannot be read, for any reason."""


class Worker:
    """Holds the model of a job and runs its tasks."""

    def __init__(self, setup: WorkerSetup, report: Callable[[int], None]) -> None:
        """Load the model.

        Args:
            setup: The job.
            report: Called with the number of rows that were scored; 0 while waiting.

        Raises:
            ArtifactError: If it is not the model with which the job was started.
        """
        job = setup.job
        if model_fingerprint(job.options.model) != job.model_sha256:
            raise ArtifactError(
                f"The model {job.options.model!r} on this machine differs from the one with which "
                "the job was started. Install the same model on every machine."
            )
        pa.set_cpu_count(1)
        self._setup, self._job, self._report = setup, job, report
        self._scorer = Scorer(job.options, report=report)

    def run(self, task: Task) -> TaskResult:
        """Run a task, and return the reason if it fails. Retry while remote storage is down."""
        delays, num_reads = filesystem.retry_delays(), 0
        while True:
            try:
                return self._score(task, task.shard) if task.shard else self._convert(task.file)
            except _UnreadableError as error:
                # Remote storage that is unavailable looks like a damaged file at first.
                num_reads += _count_read(task.shard.source if task.shard else task.file.uri)
                if not isinstance(error.__cause__, OSError) or num_reads >= _MAX_READS:
                    return TaskResult(unreadable=str(error))
                reason, delay = str(error), next(delays, None)
            except OSError as error:
                reason = f"Cannot write {task.name} to {self._job.output!r}: {error}"
                is_final = filesystem.is_local(self._job.output) or error.errno == errno.ENOSPC
                delay = None if is_final else next(delays, None)
            if delay is None:
                return TaskResult(stopped=reason)
            self._report(0)
            time.sleep(delay)

    def _convert(self, file: InputFile) -> TaskResult:
        options, schema = self._job.options, self._job.schema
        batches = self._verified(file, read_text(file.uri, options, schema))
        with self._published(converted_path(self._job, file)) as path:
            groups = write_converted(batches, str(path), shard_bytes(file, options), schema)
        return TaskResult(groups=tuple(groups))

    def _score(self, task: Task, shard: Shard) -> TaskResult:
        target = filesystem.join(self._job.output, shard.name)
        with suppress(FileNotFoundError, pa.ArrowException, KeyError, TypeError, ValueError):
            return TaskResult(shard=read_result(target))  # an equal job has finished it
        batches = list(self._verified(shard.file, self._read(shard)))
        rows = [row for batch in batches for row in batch.rows]
        scorer: Scorer | SubprocessScorer = self._scorer
        if task.isolate:
            seconds = self._setup.silent_seconds / 2
            scorer = SubprocessScorer(self._job.options, self._report, seconds)
        results = scorer.score(rows)
        errors = [
            [row.location, error[:_MAX_ERROR_CHARS]]
            for row, (_, error) in zip(rows, results, strict=True)
            if error
        ]
        kinds = Counter(sorted(error.partition(":")[0] for _, error in errors))
        file, num_shards, first = shard.file, shard.num_shards, errors[:_MAX_ERRORS]
        result = ShardResult(file.uri, shard.size, num_shards, len(rows), dict(kinds), first)
        kept = pa.concat_tables([self._job.schema.empty_table(), *(b.kept for b in batches)])
        with self._published(target) as path:
            write_output(path, append_results(kept, results), result)
        return TaskResult(shard=result)

    def _read(self, shard: Shard) -> Iterator[RowBatch]:
        options, schema = self._job.options, self._job.schema
        if shard.start == shard.end and file_format(shard.source)[0] != "parquet":
            return read_text(shard.source, options, schema)
        return read_parquet(shard.source, shard.start, shard.end, options, schema)

    def _verified(self, file: InputFile, batches: Iterator[RowBatch]) -> Iterator[RowBatch]:
        """Yield batches, and verify before and after that the file is the one that was planned."""
        try:
            _check_unchanged(file)
            for batch in batches:
                self._report(0)  # converting a large file takes longer than a worker may be silent
                yield batch
            _check_unchanged(file)
        except (OSError, pa.ArrowException, DataError, MissingExtraError, UnicodeError) as error:
            message = str(error)
            reason = message if file.uri in message else f"{file.uri}: {message}"
            raise _UnreadableError(reason) from error

    @contextmanager
    def _published(self, target: str) -> Iterator[Path]:
        """Yield the path of a temporary file, and publish the file under its final name."""
        folder = scratch_folder(self._job.output, self._setup.run_id)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{uuid.uuid4().hex}.parquet"  # no folder, which others could be listing
        try:
            yield path
            filesystem.publish(path, target)
        finally:
            path.unlink(missing_ok=True)


def scratch_folder(output: str, run_id: str) -> Path:
    """Return the folder of unfinished files of a run: on the output's disk, or here if remote."""
    if filesystem.is_local(output):
        return Path(filesystem.join(output, filesystem.JOB_FOLDER, "scratch", run_id))
    return Path(tempfile.gettempdir()) / f"capsar-{run_id}"


def make_run_id() -> str:
    """Return a name for this run of the job, with the process that owns its unfinished files."""
    return f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def remove_scratch(output: str, run_id: str) -> None:
    """Remove the unfinished files of a run, and of runs on this machine that were killed."""
    own = scratch_folder(output, run_id)
    shutil.rmtree(own, ignore_errors=True)
    for folder in own.parent.glob(scratch_folder(output, f"{platform.node()}-*").name):
        process = folder.name.split("-")[-2]
        if process.isdecimal() and not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.getpgid(process)  # unlike sending a signal, this needs no permission
    except ProcessLookupError:
        return False
    return True


def _check_unchanged(file: InputFile) -> None:
    """Raise a DataError if the file has changed since it was planned."""
    if filesystem.stat(file.uri) != file:
        raise DataError("the file has changed since the job was planned")


def _count_read(uri: str) -> int:
    """Return how many reads a failure counts as: all for a local file, none if storage is down."""
    if filesystem.is_local(uri):
        return _MAX_READS
    try:
        filesystem.stat(uri)
    except FileNotFoundError:
        return _MAX_READS
    except OSError:
        return 0
    return 1


def main() -> None:
    """Run a worker process: each request is a task."""
    serve_requests(lambda setup, report: Worker(setup, report).run)
