"""Input files -> fragments. Only files larger than one fragment are opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import store
from capsar.bulk.csv_scan import HEADER_BYTES, read_header, record_starts
from capsar.bulk.fragments import END, Fragment, file_format, make_fragment
from capsar.bulk.readers import check_columns_of
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from capsar.bulk.job import ScoreOptions
    from capsar.bulk.store import InputFile

_FILES_AT_ONCE = 16


def find_files(inputs: Sequence[str]) -> tuple[list[InputFile], list[str]]:
    """Return the files that can be read below some addresses, and the others, in order.

    Raises:
        DataError: If an address names nothing, or a file whose format is not known.
    """
    files: dict[str, InputFile] = {}
    ignored: list[str] = []
    for address in inputs:
        for file in store.find_inputs(store.normal(address)):
            try:
                file_format(file.address)
            except DataError:
                if file.address == store.normal(address):
                    raise
                ignored.append(file.address)
            else:
                files[file.address] = file
    if not files:
        raise DataError(f"No file in {', '.join(map(repr, inputs))} has a format that is read")
    return sorted(files.values(), key=lambda file: file.address), ignored


def plan(files: Iterable[InputFile], options: ScoreOptions) -> list[Fragment]:
    """Cut files into fragments: the same files and options always give the same ones."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        cut = pool.map(lambda file: _cut(file, options), files)
        return [fragment for fragments in cut for fragment in fragments]


def check_first(files: Sequence[InputFile], options: ScoreOptions) -> None:
    """Look for the columns in the first file: a name that is wrong should not take a whole job.

    Raises:
        DataError: If the file can be read and has no such columns.
    """
    try:
        store.retried(files[0].address, lambda: check_columns_of(files[0].address, options))
    except DataError as error:
        raise DataError(f"{files[0].address}: {error}") from error
    except (pa.ArrowException, OSError):
        return  # damaged: the job will name it, and go on with the others


def _cut(file: InputFile, options: ScoreOptions) -> list[Fragment]:
    kind, compression = file_format(file.address)
    whole = [make_fragment(file, 0, END, file.size)]
    if compression or file.size <= options.fragment_bytes:
        return whole
    if kind == "jsonl":
        starts = [*range(0, file.size, options.fragment_bytes)]
    else:
        cut = _row_groups if kind == "parquet" else _records
        try:
            starts = store.retried(file.address, lambda: cut(file, options))
        except (pa.ArrowException, OSError, DataError):
            return whole  # whoever reads it will say what is wrong with it
    if kind == "parquet":
        return _row_group_fragments(file, starts, options)
    ends = [*starts[1:], file.size]
    return [
        make_fragment(file, start, end, end - start)
        for start, end in zip(starts, ends, strict=True)
    ]


def _records(file: InputFile, options: ScoreOptions) -> list[int]:
    """Return where runs of CSV records begin; the first is that of the file, with its header."""
    with store.open_input(file.address) as stream:
        head = stream.read(HEADER_BYTES)
        _, delimiter, start = read_header(head, options.text_column, options.encoding)
        return [0, *record_starts(stream, start, options.fragment_bytes, delimiter)[1:]]


def _row_groups(file: InputFile, _: ScoreOptions) -> list[int]:
    """Return the number of rows of each row group."""
    with store.open_input(file.address) as stream:
        metadata = pq.read_metadata(stream)
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def _row_group_fragments(file: InputFile, rows: list[int], options: ScoreOptions) -> list[Fragment]:
    """Put neighbouring row groups together until they have the size of a fragment."""
    row_bytes = file.size / max(1, sum(rows))
    fragments: list[Fragment] = []
    first, size = 0, 0.0
    for index, number in enumerate(rows, start=1):
        size += number * row_bytes
        if size >= options.fragment_bytes or index == len(rows):
            fragments.append(make_fragment(file, first, index, int(size)))
            first, size = index, 0.0
    return fragments or [make_fragment(file, 0, END, file.size)]
