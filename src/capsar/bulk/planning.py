"""Divide input files into shards. Only files larger than one shard are opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.bulk.csv_scan import HEAD_BYTES, read_header, record_starts
from capsar.bulk.readers import check_file
from capsar.bulk.shards import END, file_format, make_shard
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.bulk.filesystem import InputFile
    from capsar.bulk.job import ScoreOptions
    from capsar.bulk.shards import Shard

_NUM_THREADS = 16


def find_files(inputs: Sequence[str]) -> tuple[list[InputFile], list[str]]:
    """Return the supported files of the inputs, and the URIs of the others, sorted.

    Raises:
        DataError: If an input does not exist, or is a file of an unknown format.
    """
    files: dict[str, InputFile] = {}
    ignored: list[str] = []
    for uri in map(filesystem.normalize, inputs):
        for file in filesystem.list_inputs(uri):
            try:
                file_format(file.uri)
            except DataError:
                if file.uri == uri:
                    raise
                ignored.append(file.uri)
            else:
                files[file.uri] = file
    if not files:
        raise DataError(f"No file in {', '.join(map(repr, inputs))} has a supported format")
    return sorted(files.values(), key=lambda file: file.uri), ignored


def plan_shards(files: Iterable[InputFile], options: ScoreOptions) -> list[Shard]:
    """Return the shards of all files. Equal files and options give equal shards."""
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        shards = pool.map(lambda file: _split_file(file, options), files)
        return [shard for of_file in shards for shard in of_file]


def check_first_file(files: Sequence[InputFile], options: ScoreOptions) -> None:
    """Check columns and encoding of the first file, so that a wrong option fails at once.

    Raises:
        DataError: If a column is missing, or the text is not in the encoding of the options.
    """
    uri = files[0].uri
    try:
        filesystem.retry(uri, lambda: check_file(uri, options))
    except DataError as error:
        raise DataError(f"{uri}: {error}") from error
    except (pa.ArrowException, OSError):
        return  # a damaged file is reported by the job, which continues with the others


def _split_file(file: InputFile, options: ScoreOptions) -> list[Shard]:
    kind, compression = file_format(file.uri)
    whole = [make_shard(file, 0, END, file.size)]
    if compression or file.size <= options.shard_bytes:
        return whole
    if kind == "jsonl":
        starts = [*range(0, file.size, options.shard_bytes)]
    else:
        try:
            if kind == "parquet":
                rows = filesystem.retry(file.uri, lambda: _row_group_sizes(file))
                return _row_group_shards(file, rows, options) or whole
            starts = filesystem.retry(file.uri, lambda: _csv_starts(file, options))
        except (pa.ArrowException, OSError, DataError):
            return whole  # the error is reported when the shard is read
    ends = [*starts[1:], file.size]
    return [
        make_shard(file, start, end, end - start) for start, end in zip(starts, ends, strict=True)
    ]


def _csv_starts(file: InputFile, options: ScoreOptions) -> list[int]:
    """Return the start of each shard of a CSV file; the first one includes the header."""
    with filesystem.open_input(file.uri) as stream:
        head = stream.read(HEAD_BYTES)
        _, delimiter, start = read_header(head, options.text_column, options.encoding)
        return [0, *record_starts(stream, start, options.shard_bytes, delimiter)[1:]]


def _row_group_sizes(file: InputFile) -> list[int]:
    """Return the number of rows of each row group."""
    with filesystem.open_input(file.uri) as stream:
        metadata = pq.read_metadata(stream)
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def _row_group_shards(file: InputFile, rows: list[int], options: ScoreOptions) -> list[Shard]:
    """Combine adjacent row groups up to the size of a shard."""
    row_bytes = file.size / max(1, sum(rows))
    shards: list[Shard] = []
    first, size = 0, 0.0
    for index, number in enumerate(rows, start=1):
        size += number * row_bytes
        if size >= options.shard_bytes or index == len(rows):
            shards.append(make_shard(file, first, index, int(size)))
            first, size = index, 0.0
    return shards
