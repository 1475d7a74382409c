"""A fragment -> its rows, a bounded number at a time. A bad record is a row that says so."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import store
from capsar.bulk.csv_scan import (
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Lines,
    byte_lines,
    no_column,
    parse,
    read_header,
    wrong_byte,
)
from capsar.bulk.fragments import END, file_format
from capsar.bulk.objections import SURROGATE
from capsar.data.rows import describe_decode_error
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from capsar.bulk.fragments import Fragment
    from capsar.bulk.job import ScoreOptions

ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Row:
    """What is asked about one record."""

    text: object
    """A string, if all is well; bytes that are no UTF-8; or whatever stood in its place."""
    aspects: object = None
    place: str = ""
    """Of the record in its file, in words."""
    error: str = ""
    """Why the record could not be read."""


_Record = tuple[Row, list[str | None]]
"""A row, and its values to keep."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows in a run, with the columns to keep."""

    rows: list[Row]
    kept: Any
    """An Arrow table with a row for each."""


def check_columns(columns: Sequence[str], options: ScoreOptions) -> None:
    """Raise a DataError if a file does not have every column that is asked for."""
    missing = [name for name in options.columns if name not in columns]
    if missing:
        raise DataError(no_column(missing[0], columns, options.encoding))


def check_columns_of(address: str, options: ScoreOptions) -> None:
    """Look for the columns in a file: in its schema, its header, or the fields of its first lines.

    Raises:
        DataError: If one is not there.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    kind, _ = file_format(address)
    if kind == "parquet":
        with store.open_input(address) as stream:
            check_columns(pq.read_schema(stream).names, options)
        return
    with _opened(address, 0) as stream:
        head = stream.read(HEADER_BYTES)
    if kind == "csv":
        check_columns(read_header(head, options.text_column, options.encoding)[0], options)
        return
    fields = _fields(head, options.encoding)
    missing = [name for name in options.columns if name not in fields]
    if fields and missing:
        raise DataError(
            f"No line of the first ones has a field {missing[0]!r}; they have {fields[:50]!r}"
        )


def _fields(head: bytes, encoding: str) -> list[str]:
    """The fields of all whole lines of a file's first bytes that hold an object, in order."""
    found: dict[str, None] = {}
    for line in head.splitlines(keepends=True):
        try:
            record = json.loads(line.decode(encoding).removeprefix("\ufeff"))
        except (ValueError, RecursionError):  # scoring will say what is wrong with it
            continue
        if isinstance(record, dict):
            found |= dict.fromkeys(record)
    return list(found)


def read_slices(fragment: Fragment, options: ScoreOptions) -> Iterator[Slice]:
    """Yield the rows of a fragment, at least one slice (it may be empty).

    Raises:
        DataError: If the file does not have the columns.
        OSError, pyarrow.ArrowException: If it cannot be read.
    """
    kind, _ = file_format(fragment.address)
    if kind == "parquet":
        with store.open_input(fragment.address) as stream:
            yield from _parquet(stream, fragment, options)
    else:
        records = _jsonl(fragment, options) if kind == "jsonl" else _csv(fragment, options)
        yield from _slices(records, options)


@contextmanager
def _opened(address: str, start: int) -> Iterator[Any]:
    """Open a text file, decompressed, at a place in it."""
    _, compression = file_format(address)
    with store.open_input(address) as stream:
        if not compression:
            stream.seek(start)
            yield stream
            return
        with pa.CompressedInputStream(stream, compression) as source:
            source.read(start)
            yield source


def table_slice(table: Any, options: ScoreOptions, first_row: int = 0) -> Slice:  # noqa: ANN401
    """Return the rows of an Arrow table.

    Raises:
        DataError: If it does not have the columns, or the text column holds no texts.
    """
    check_columns(table.column_names, options)
    texts = _texts(table.column(options.text_column), options.text_column)
    aspects: list[object] = [None] * len(texts)
    if options.aspect_column is not None:
        aspects = table.column(options.aspect_column).to_pylist()
    rows = [
        Row(text, asked, f"row {first_row + index}")
        for index, (text, asked) in enumerate(zip(texts, aspects, strict=True))
    ]
    return Slice(rows, table.select(list(options.keep)))


def _texts(column: Any, name: str) -> list[object]:  # noqa: ANN401
    """Return strings; bytes where they are no UTF-8, which Arrow does not check."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return [None] * len(column)
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_view = pa.types.is_string_view(kind)
    if not (is_string or is_view or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise DataError(f"The column {name!r} holds {kind}, not text")
    if is_string or is_view:
        try:
            texts: list[object] = column.to_pylist()
        except UnicodeDecodeError:
            column = column.cast(pa.large_binary()) if is_string else column.cast(pa.binary_view())
        else:
            return texts
    return [None if value is None else _decoded(value) for value in column.to_pylist()]


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _parquet(stream: Any, fragment: Fragment, options: ScoreOptions) -> Iterator[Slice]:  # noqa: ANN401
    file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
    metadata = file.metadata
    check_columns(file.schema_arrow.names, options)
    end = metadata.num_row_groups if fragment.end == END else fragment.end
    position = sum(metadata.row_group(i).num_rows for i in range(fragment.start))
    yield table_slice(file.schema_arrow.empty_table().select(options.columns), options)
    for index in range(fragment.start, end):
        group = metadata.row_group(index)
        fitting = _BYTES_AT_ONCE * group.num_rows // max(1, group.total_byte_size)
        batches = file.iter_batches(
            batch_size=max(1, min(ROWS_AT_ONCE, fitting)),
            row_groups=[index],
            columns=options.columns,
            use_threads=False,
        )
        for batch in batches:
            yield table_slice(pa.Table.from_batches([batch]), options, position)
            position += len(batch)


def _slices(records: Iterable[_Record], options: ScoreOptions) -> Iterator[Slice]:
    """Gather records until they are many or large."""
    rows: list[Row] = []
    kept: list[list[str | None]] = []
    size = 0
    schema = pa.schema([(name, pa.string()) for name in options.keep])

    def slice_of() -> Slice:
        columns = [[values[i] for values in kept] for i in range(len(schema))]
        table = pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)
        return Slice(rows, table)

    for row, values in records:
        rows.append(row)
        kept.append(values)
        size += len(row.text) if isinstance(row.text, str | bytes) else 0
        size += sum(len(value or "") for value in values)
        if len(rows) == ROWS_AT_ONCE or size > _BYTES_AT_ONCE:
            yield slice_of()
            rows, kept, size = [], [], 0
    yield slice_of()


def _jsonl(fragment: Fragment, options: ScoreOptions) -> Iterator[_Record]:
    """Yield the records that begin in the fragment's range, the last one to its end."""
    position = max(0, fragment.start - 1)
    number = 0
    is_inside = fragment.start > 0  # of a line that began before
    with _opened(fragment.address, position) as stream:
        for line in byte_lines(stream):
            start, position = position, position + len(line)
            was_inside, is_inside = is_inside, not line.endswith(b"\n")
            if was_inside:
                continue
            number += 1
            if fragment.end != END and start >= fragment.end:
                return
            if line.strip():
                yield _json_row(line, _place(fragment, number, start), options)


def _place(fragment: Fragment, line: int, byte: int) -> str:
    """Name a record's place. Lines are known only from the beginning of a file."""
    return f"byte {byte}" if fragment.start else f"line {line}"


def _json_row(line: bytes, place: str, options: ScoreOptions) -> _Record:
    nothing: list[str | None] = [None] * len(options.keep)
    if len(line) > MAX_RECORD_BYTES:
        return Row(None, None, place, f"too long: a line of over {MAX_RECORD_BYTES} bytes"), nothing
    try:
        record = json.loads(line.decode(options.encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        told = f"{_not(options)}: {describe_decode_error(error, options.encoding)}"
        return Row(None, None, place, told), nothing
    except json.JSONDecodeError as error:
        told = f"not JSON: {error.msg} at column {error.pos + 1}"
        return Row(None, None, place, told), nothing
    except (ValueError, RecursionError) as error:
        return Row(None, None, place, f"not JSON: {error}"), nothing
    if not isinstance(record, dict):
        return Row(None, None, place, f"not an object: {type(record).__name__}"), nothing
    found = {name: _kept(record.get(name)) for name in options.keep}
    halves = [name for name, value in found.items() if value and SURROGATE.search(value)]
    kept = [None if name in halves else found[name] for name in options.keep]
    if halves:
        told = f"not UTF-8: in {halves[0]!r}, half of a surrogate pair"
        return Row(None, None, place, told), kept
    if options.text_column not in record:
        return Row(None, None, place, f"no text: there is no {options.text_column!r}"), kept
    asked = record.get(options.aspect_column) if options.aspect_column else None
    return Row(record[options.text_column], asked, place), kept


def _kept(value: object) -> str | None:
    """Return a value to keep as text, whatever it is: the output's columns have one type."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv(fragment: Fragment, options: ScoreOptions) -> Iterator[_Record]:
    with _opened(fragment.address, 0) as stream:
        beginning = stream.read(HEADER_BYTES)
    header, delimiter, start = read_header(beginning, options.text_column, options.encoding)
    check_columns(header, options)
    lines_before = beginning[:start].count(b"\n")
    start = fragment.start or start
    with _opened(fragment.address, start) as stream:
        end = None if fragment.end == END else fragment.end
        lines = Lines(stream, start, end, options.encoding)
        for position, record in parse(lines, delimiter):
            place = _place(fragment, lines_before + lines.record_line, position)
            yield _csv_row(record, place, header, options)


def _csv_row(
    record: list[str] | csv.Error, place: str, header: list[str], options: ScoreOptions
) -> _Record:
    error = ""
    if isinstance(record, csv.Error):
        error = f"not CSV: {record}"
    elif len(record) != len(header):
        error = f"not CSV: {len(record)} fields, the header has {len(header)}"
    if error or isinstance(record, csv.Error):
        return Row(None, None, place, error), [None] * len(options.keep)
    fields = dict(zip(header, record, strict=True))
    wrong = {name: wrong_byte(fields[name], options.encoding) for name in options.columns}
    kept = [None if wrong[name] else fields[name] for name in options.keep]
    for name, told in wrong.items():
        if told:
            return Row(None, None, place, f"{_not(options)}: in {name!r}, {told}"), kept
    asked = fields[options.aspect_column] if options.aspect_column else None
    return Row(fields[options.text_column], asked, place), kept


def _not(options: ScoreOptions) -> str:
    """The kind of the error of bytes that are not in the encoding."""
    return "not UTF-8" if options.encoding == "utf-8" else f"not {options.encoding}"
