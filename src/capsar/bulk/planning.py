"""Divide input files into shards.

A shard is a range of rows of a Parquet file. An Excel or compressed file, and a CSV or JSON Lines
file larger than one shard, is first converted to Parquet by a worker; a smaller one is a shard.
"""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from capsar.bulk import filesystem
from capsar.bulk.rows import check_file, file_format, group_ranges, group_sizes
from capsar.data.tables import open_parquet
from capsar.errors import DataError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.bulk.filesystem import InputFile
    from capsar.bulk.job import Job, ScoreOptions

_NUM_THREADS = 16
_SHARDS_PER_FILE = 32
_MIN_SHARD_BYTES = 62_500
_MIN_SHARD_ROWS = 100
"""Small files have this many shards of at least this size, so that all cores can work."""
_OUTPUT = re.compile(r"-[0-9a-f]{16}-\d{12}\.parquet$")
"""The end of the name of an output file."""
_UNSAFE = re.compile(r"[^\w-]+", re.ASCII)
_MAX_PARTS = 16
"""Into how many shards a row group is divided at most: each reads it from the start."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of rows of one input file, and the name of its output file."""

    file: InputFile
    source: str
    """The Parquet or text file to read: the input file, or a converted copy."""
    start: int
    end: int
    """Index after the last row; `start` for a text file, which is read as a whole."""
    size: int
    """Bytes of input, used to estimate the remaining time."""
    num_shards: int
    """Number of shards of the file."""
    name: str


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An input file, and what is known about its rows."""

    file: InputFile
    groups: tuple[int, ...] | None = None
    """The number of rows in each row group, of the file or its converted copy."""
    schema: pa.Schema | None = None
    """Arrow schema of a Parquet file."""
    error: str = ""
    """Why the file cannot be read."""

    @property
    def is_text(self) -> bool:
        """Whether this is a CSV, Excel or JSON Lines file."""
        return file_format(self.file.uri)[0] != "parquet"


def find_files(inputs: Sequence[str], output: str) -> tuple[list[InputFile], list[str]]:
    """Return the supported files of the inputs, and the URIs of the others, sorted.

    Files in an output folder below an input folder are not inputs. If both folders are the same,
    only its Parquet files are not. The outputs of other jobs are inputs only if an input has
    nothing else. A link to a file that is an input too is ignored.

    Raises:
        DataError: If an input does not exist, or is a file of an unknown format.
    """
    files: dict[InputFile, str] = {}
    direct: dict[str, InputFile] = {}
    ignored: set[str] = set()
    own = filesystem.real_path(output) if output else ""
    for uri in map(filesystem.normalize, inputs):
        root = filesystem.real_path(uri)
        supported: dict[InputFile, str] = {}
        for file in filesystem.list_inputs(uri):
            path = filesystem.real_path(file.uri)
            is_parquet = filesystem.base_name(path).endswith(".parquet")
            if filesystem.parent(path) == own and (is_parquet or own.startswith(f"{root}/")):
                continue
            try:
                file_format(file.uri)
                supported[file] = path
            except DataError:
                if file.uri == uri:
                    raise
                ignored.add(file.uri)
        for file in _without_outputs(supported):
            files[file] = supported[file]
            if files[file] in (file.uri, root + file.uri.removeprefix(uri)):
                direct.setdefault(files[file], file)
    if not files:
        raise DataError(f"No file in {', '.join(map(repr, inputs))} has a supported format")
    kept = [file for file, path in files.items() if direct.get(path, file) == file]
    return sorted(kept, key=lambda file: file.uri), sorted(ignored)


def _without_outputs(files: Iterable[InputFile]) -> list[InputFile]:
    """Return files without the outputs of jobs; all of them if there are no others."""
    named = [file for file in files if _OUTPUT.search(filesystem.base_name(file.uri))]
    folders = {filesystem.parent(file.uri) for file in named}
    jobs = {folder for folder in folders if filesystem.has_job(folder)}
    outputs = {file for file in named if filesystem.parent(file.uri) in jobs}
    return [file for file in files if file not in outputs] or list(files)


def check_first_file(files: Sequence[InputFile], options: ScoreOptions) -> None:
    """Check columns and encoding of the first file, so that a wrong option fails at once.

    A file that is empty or damaged is reported by the job, which continues with the others.

    Raises:
        DataError: If a column is missing, or the text is not in the encoding of the options.
    """
    uri = next((file for file in files if file.size), files[0]).uri
    try:
        filesystem.retry(uri, lambda: check_file(uri, options))
    except DataError as error:
        if isinstance(error, FormatError) and len(files) > 1:
            return
        message = str(error)
        raise DataError(message if uri in message else f"{uri}: {message}") from error
    except (pa.ArrowException, OSError):
        return


def plan_files(job: Job, files: Iterable[InputFile]) -> list[PlannedFile]:
    """Read the metadata of Parquet files, and of text files that were converted before."""
    planned = {file.uri: PlannedFile(file) for file in files}
    divisible = [p for p in planned.values() if not p.is_text or needs_conversion(p, job.options)]

    def plan(file: PlannedFile) -> PlannedFile:
        source = converted_path(job, file.file) if file.is_text else file.file.uri
        try:
            groups, schema = filesystem.retry(source, lambda: _read_metadata(source))
        except (pa.ArrowException, OSError) as error:
            return file if file.is_text else replace(file, error=f"{source}: {error}")
        return replace(file, groups=groups, schema=schema)

    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        planned.update((file.file.uri, file) for file in pool.map(plan, divisible))
    return list(planned.values())


def _read_metadata(uri: str) -> tuple[tuple[int, ...], pa.Schema]:
    with filesystem.open_input(uri) as stream:
        file = open_parquet(stream)
        return tuple(group_sizes(file.metadata)), file.schema_arrow


def kept_schema(planned: Iterable[PlannedFile], options: ScoreOptions) -> pa.Schema:
    """Return the types of the kept columns: those of the files, or strings if these differ."""
    strings = pa.schema([(name, pa.string()) for name in options.keep])
    schemas = [strings if file.is_text else file.schema for file in planned]

    def common_type(name: str) -> pa.DataType:
        found = {s.field(name).type for s in schemas if s and s.get_field_index(name) >= 0}
        found.discard(pa.null())
        return found.pop() if len(found) == 1 else pa.string()

    return pa.schema([(name, common_type(name)) for name in options.keep])


def shard_bytes(file: InputFile, options: ScoreOptions) -> int:
    """Return the size of the shards of a file."""
    return min(options.shard_bytes, max(_MIN_SHARD_BYTES, file.size // _SHARDS_PER_FILE))


def needs_conversion(planned: PlannedFile, options: ScoreOptions) -> bool:
    """Return whether a text file has to be converted before it can be divided."""
    if not planned.is_text or planned.groups is not None:
        return False
    kind, compression = file_format(planned.file.uri)
    is_large = planned.file.size > shard_bytes(planned.file, options)
    return is_large or compression is not None or kind == "xlsx"


def make_shards(job: Job, planned: PlannedFile) -> list[Shard]:
    """Return the shards of a file. Equal files and options give equal shards."""
    file, source, groups = planned.file, planned.file.uri, planned.groups or ()
    rows = sum(groups)
    if planned.is_text:
        ranges = group_ranges(groups)
        source = source if planned.groups is None else converted_path(job, file)
    else:
        by_bytes = rows * shard_bytes(file, job.options) // max(1, file.size)
        by_rows = max(_MIN_SHARD_ROWS, rows // _SHARDS_PER_FILE)
        ranges = _row_ranges(groups, max(1, min(by_bytes, by_rows)))
    ranges = ranges or [(0, 0)]
    sizes = [file.size * (end - start) // rows if rows else file.size for start, end in ranges]
    return [
        Shard(file, source, start, end, size, len(ranges), shard_name(job, file, start))
        for (start, end), size in zip(ranges, sizes, strict=True)
    ]


def _row_ranges(groups: Sequence[int], rows_per_shard: int) -> list[tuple[int, int]]:
    """Divide large row groups and combine small ones."""
    pieces: list[int] = []
    for rows in filter(None, groups):  # two shards must not start at the same row
        parts = min(_MAX_PARTS, max(1, rows // rows_per_shard))
        pieces += [rows * (i + 1) // parts - rows * i // parts for i in range(parts)]
    merged: list[int] = []
    for rows in pieces:
        if merged and merged[-1] + rows <= rows_per_shard:
            merged[-1] += rows
        else:
            merged.append(rows)
    return group_ranges(merged)


def file_digest(job: Job, file: InputFile) -> str:
    """Return a digest of the job, the file and its version."""
    key = "\n".join((job.id, file.uri, str(file.size), file.version))
    return hashlib.blake2b(key.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def shard_name(job: Job, file: InputFile, start: int) -> str:
    """Return the name of the output file of a shard."""
    stem = filesystem.base_name(file.uri).partition(".")[0]
    stem = _UNSAFE.sub("-", stem)[:40].lstrip("_")  # readers ignore names such as _a
    return f"{stem}-{file_digest(job, file)}-{start:012d}.parquet"


def digest_of(name: str) -> str:
    """Return the file digest in the name of an output file."""
    return name.rpartition("-")[0].rpartition("-")[2]


def converted_path(job: Job, file: InputFile) -> str:
    """Return where the Parquet copy of a text file is."""
    return filesystem.join(
        job.output, filesystem.JOB_FOLDER, "converted", f"{file_digest(job, file)}.parquet"
    )
