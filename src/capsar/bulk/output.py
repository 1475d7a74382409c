"""The output of a job: one Parquet file per shard, its progress, and its summary."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar.bulk.row_validation import RowResult
    from capsar.bulk.shards import Shard

JOB_FOLDER = "_job"
_SCRATCH = "scratch"
_METADATA_KEY = b"capsar"
"""Key of the `ShardResult` in the metadata of an output file."""
_ROW_GROUP_ROWS = 1 << 15
_ROW_GROUP_BYTES = 1 << 24
_MAX_ERRORS_PER_SHARD = 20
_MAX_ERRORS_IN_SUMMARY = 100


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The outcome of one shard."""

    name: str
    uri: str
    size: int
    rows: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    """Number of rows with an error, by kind."""
    first_errors: list[tuple[str, str]] = field(default_factory=list)
    """Location and error of the first rows with an error."""
    unreadable: str = ""
    """Why the input could not be read; other shards can still be scored."""
    stopped: str = ""
    """Why the output could not be written; the job has to stop."""

    @staticmethod
    def failed(shard: Shard, *, unreadable: str = "", stopped: str = "") -> ShardResult:
        """Return the result of a shard without output."""
        return ShardResult(
            shard.name, shard.uri, shard.size, unreadable=unreadable, stopped=stopped
        )

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str | bytes) -> ShardResult:
        """Return the result written by `to_json`."""
        fields = json.loads(text)
        fields["first_errors"] = [tuple(pair) for pair in fields["first_errors"]]
        return ShardResult(**fields)


class ShardWriter:
    """Writes scored rows to a Parquet file in row groups, and counts rows and errors."""

    def __init__(self, path: Path, shard: Shard) -> None:
        self._path = path
        self._shard = shard
        self._writer: Any = None
        self._buffer: list[Any] = []
        self._rows = 0
        self._errors: Counter[str] = Counter()
        self._first_errors: list[tuple[str, str]] = []

    def write(self, scored: Any, locations: list[str], results: list[RowResult]) -> None:  # noqa: ANN401
        """Append rows, each with its location and result."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, scored.schema, compression="zstd")
        self._rows += len(locations)
        for location, (_, error) in zip(locations, results, strict=True):
            if error:
                self._errors[error.partition(":")[0]] += 1
                if len(self._first_errors) < _MAX_ERRORS_PER_SHARD:
                    self._first_errors.append((location, error[:500]))
        self._buffer.append(scored)
        is_full = sum(map(len, self._buffer)) >= _ROW_GROUP_ROWS
        if is_full or sum(table.nbytes for table in self._buffer) >= _ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> ShardResult:
        """Write the remaining rows and the result, and close the file."""
        self._flush()
        result = ShardResult(
            self._shard.name,
            self._shard.uri,
            self._shard.size,
            self._rows,
            dict(sorted(self._errors.items())),
            self._first_errors,
        )
        self._writer.add_key_value_metadata({_METADATA_KEY: result.to_json()})
        self._writer.close()
        return result

    def discard(self) -> None:
        """Close the file without error, because the caller removes it."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):
                self._writer.close()

    def _flush(self) -> None:
        if self._buffer:
            table = pa.concat_tables(self._buffer)
            self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
            self._buffer = []


def read_result(uri: str) -> ShardResult:
    """Return the result stored in the metadata of a finished output file."""

    def read() -> bytes:
        with filesystem.open_input(uri) as stream:
            return bytes(pq.read_metadata(stream).metadata[_METADATA_KEY])

    return ShardResult.from_json(filesystem.retry(uri, read))


@contextmanager
def scratch_file(output: str, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file: on the output's disk, or on this one if it is remote."""
    folder = Path(scratch_folder(output))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{uuid.uuid4().hex}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def scratch_folder(output: str) -> str:
    """Return the folder of output files that are not finished."""
    if filesystem.is_local(output):
        return filesystem.join(output, JOB_FOLDER, _SCRATCH)
    return str(Path(tempfile.gettempdir()) / "capsar-scratch")


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a running job."""

    rows: int
    """Rows scored, including earlier runs."""
    errors: int
    shards_done: int
    shards: int
    rows_per_second: float
    """Rate of this run."""
    seconds_left: float | None
    """Estimated from bytes of input; `None` before the first shard is done."""
    workers: int


@dataclass(frozen=True, slots=True)
class JobSummary:
    """The result of a job, as in `_summary.json`."""

    output: str
    rows: int
    rows_with_error: int
    errors: dict[str, int]
    """Number of rows with an error, by kind."""
    first_errors: list[dict[str, str]]
    """The first rows with an error: file, location, error."""
    unreadable: list[dict[str, str]]
    """Files, or parts of files, that could not be read: file, missing output file, reason."""
    ignored: list[str]
    """Files of unknown format, which were not read."""
    shards: int
    shards_skipped: int
    """Shards finished in an earlier run."""
    shards_retried: int
    """Attempts that were lost because a worker crashed."""
    seconds: float
    rows_per_second: float

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary for JSON."""
        return asdict(self)


@dataclass(slots=True)
class RowCounts:
    """Counts of rows, errors and shards, updated with each shard result."""

    shards: Sequence[Shard]
    workers: int
    start: float = field(default_factory=time.monotonic)
    rows: int = 0
    new_rows: int = 0
    done: int = 0
    skipped: int = 0
    new_bytes: int = 0
    bytes_left: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first_errors: list[dict[str, str]] = field(default_factory=list)
    unreadable: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes_left = sum(shard.size for shard in self.shards)

    def add(self, result: ShardResult, *, is_new: bool) -> None:
        """Add the result of a shard from this run (`is_new`) or an earlier one."""
        self.done += 1
        self.bytes_left -= result.size
        if result.unreadable:
            shard = {"file": result.uri, "missing": result.name}
            self.unreadable.append(shard | {"reason": result.unreadable})
            return
        self.rows += result.rows
        self.skipped += not is_new
        if is_new:
            self.new_rows += result.rows
            self.new_bytes += result.size
        self.errors.update(result.errors)
        for location, error in result.first_errors[
            : _MAX_ERRORS_IN_SUMMARY - len(self.first_errors)
        ]:
            self.first_errors.append({"file": result.uri, "location": location, "error": error})

    def progress(self) -> JobProgress:
        """Return the current progress."""
        seconds = max(1e-9, time.monotonic() - self.start)
        left = seconds * self.bytes_left / self.new_bytes if self.new_bytes else None
        return JobProgress(
            rows=self.rows,
            errors=self.errors.total(),
            shards_done=self.done,
            shards=len(self.shards),
            rows_per_second=self.new_rows / seconds,
            seconds_left=left,
            workers=self.workers,
        )

    def summary(self, output: str, ignored: list[str], num_retried: int) -> JobSummary:
        """Return the summary of the finished job."""
        seconds = time.monotonic() - self.start
        return JobSummary(
            output=output,
            rows=self.rows,
            rows_with_error=self.errors.total(),
            errors=dict(self.errors.most_common()),
            first_errors=self.first_errors,
            unreadable=self.unreadable,
            ignored=ignored,
            shards=len(self.shards),
            shards_skipped=self.skipped,
            shards_retried=num_retried,
            seconds=round(seconds, 3),
            rows_per_second=round(self.new_rows / max(1e-9, seconds), 1),
        )
