"""Read the rows of a shard in batches of bounded size.

A record that cannot be read becomes a row with an error, so it does not affect other rows.
"""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.bulk.csv_scan import (
    HEAD_BYTES,
    MAX_RECORD_BYTES,
    LineReader,
    describe_wrong_byte,
    iter_lines,
    missing_column,
    parse_records,
    read_header,
)
from capsar.bulk.row_validation import SURROGATE, InputRow
from capsar.bulk.shards import END, file_format
from capsar.data.records import describe_decode_error
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from capsar.bulk.job import ScoreOptions
    from capsar.bulk.shards import Shard


MAX_BATCH_ROWS = 4096
_MAX_BATCH_BYTES = 1 << 24

_Record = tuple[InputRow, list[str | None]]
"""A row and its values of the kept columns."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Consecutive rows, and their kept columns."""

    rows: list[InputRow]
    kept: Any
    """An Arrow table with one row per row."""


def check_columns(columns: Sequence[str], options: ScoreOptions) -> None:
    """Raise a DataError if a table lacks one of the columns to read."""
    for name in options.columns:
        if name not in columns:
            raise missing_column(name, columns, _option_of(name, options), options.encoding)


def _option_of(column: str, options: ScoreOptions) -> str:
    """Return the command-line option that selected a column."""
    if column == options.text_column:
        return "--text-column"
    return "--aspect-column" if column == options.aspect_column else "--keep"


def check_file(uri: str, options: ScoreOptions) -> None:
    """Check the columns and the encoding of a file by its schema or its first bytes.

    Raises:
        DataError: If a column is missing, or the text is not in the encoding of the options.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    kind, _ = file_format(uri)
    if kind == "parquet":
        with filesystem.open_input(uri) as stream:
            check_columns(pq.read_schema(stream).names, options)
        return
    with _open_text(uri, 0) as stream:
        head = stream.read(HEAD_BYTES)
    _check_encoding(head, options.encoding)
    if kind == "csv":
        check_columns(read_header(head, options.text_column, options.encoding)[0], options)
        return
    fields = _json_fields(head, options.encoding)
    missing = [name for name in options.columns if name not in fields]
    if fields and missing:
        raise DataError(
            f"None of the first lines has a field {missing[0]!r}; the fields are {fields[:50]!r}. "
            f"Choose with {_option_of(missing[0], options)}."
        )


def _check_encoding(head: bytes, encoding: str) -> None:
    """Raise a DataError if none of the non-ASCII bytes of a file's head are valid UTF-8.

    A file with both valid and invalid sequences, or with a single invalid byte, is UTF-8 with
    damaged rows, which are reported one by one.
    """
    if encoding != "utf-8" or head.isascii():
        return
    head = head[: head.rfind(b"\n") + 1] or head  # the last line may end inside a character
    characters = [c for c in head.decode(encoding, "surrogateescape") if not c.isascii()]
    if len(characters) > 1 and all(SURROGATE.match(character) for character in characters):
        try:
            head.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"The file is not UTF-8: {describe_decode_error(error)}") from error


def _json_fields(head: bytes, encoding: str) -> list[str]:
    """Return the field names in the complete JSON objects of a file's head, in order."""
    found: dict[str, None] = {}
    for line in head.splitlines(keepends=True):
        try:
            record = json.loads(line.decode(encoding).removeprefix("\ufeff"))
        except (ValueError, RecursionError):  # becomes a row with an error
            continue
        if isinstance(record, dict):
            found |= dict.fromkeys(record)
    return list(found)


def read_batches(shard: Shard, options: ScoreOptions) -> Iterator[RowBatch]:
    """Yield the rows of a shard in at least one batch, which may be empty.

    Raises:
        DataError: If a column is missing.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    kind, _ = file_format(shard.uri)
    if kind == "parquet":
        with filesystem.open_input(shard.uri) as stream:
            yield from _read_parquet(stream, shard, options)
    else:
        records = _read_jsonl(shard, options) if kind == "jsonl" else _read_csv(shard, options)
        yield from _batch_records(records, options)


@contextmanager
def _open_text(uri: str, start: int) -> Iterator[Any]:
    """Open a text file, decompressed, at an offset."""
    _, compression = file_format(uri)
    with filesystem.open_input(uri) as stream:
        if not compression:
            stream.seek(start)
            yield stream
            return
        with pa.CompressedInputStream(stream, compression) as source:
            source.read(start)
            yield source


def table_batch(table: Any, options: ScoreOptions, first_row: int = 0) -> RowBatch:  # noqa: ANN401
    """Return the rows of an Arrow table.

    Raises:
        DataError: If a column is missing, or the text column does not hold text.
    """
    check_columns(table.column_names, options)
    texts = _text_values(table.column(options.text_column), options.text_column)
    aspects: list[object] = [None] * len(texts)
    if options.aspect_column is not None:
        aspects = table.column(options.aspect_column).to_pylist()
    rows = [
        InputRow(text, row_aspects, f"row {first_row + index}")
        for index, (text, row_aspects) in enumerate(zip(texts, aspects, strict=True))
    ]
    return RowBatch(rows, table.select(list(options.keep)))


def _text_values(column: Any, name: str) -> list[object]:  # noqa: ANN401
    """Return strings, or bytes where the value is not UTF-8, which Arrow does not check."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_null(kind):
        return [None] * len(column)
    is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_view = pa.types.is_string_view(kind)
    if not (is_string or is_view or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise DataError(f"The column {name!r} has type {kind}, expected text")
    if is_string or is_view:
        try:
            texts: list[object] = column.to_pylist()
        except UnicodeDecodeError:
            column = column.cast(pa.large_binary()) if is_string else column.cast(pa.binary_view())
        else:
            return texts
    return [None if value is None else _decode(value) for value in column.to_pylist()]


def _decode(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _read_parquet(stream: Any, shard: Shard, options: ScoreOptions) -> Iterator[RowBatch]:  # noqa: ANN401
    file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
    metadata = file.metadata
    check_columns(file.schema_arrow.names, options)
    end = metadata.num_row_groups if shard.end == END else shard.end
    position = sum(metadata.row_group(i).num_rows for i in range(shard.start))
    yield table_batch(file.schema_arrow.empty_table().select(options.columns), options)
    for index in range(shard.start, end):
        group = metadata.row_group(index)
        max_rows = _MAX_BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)
        batches = file.iter_batches(
            batch_size=max(1, min(MAX_BATCH_ROWS, max_rows)),
            row_groups=[index],
            columns=options.columns,
            use_threads=False,
        )
        for batch in batches:
            yield table_batch(pa.Table.from_batches([batch]), options, position)
            position += len(batch)


def _batch_records(records: Iterable[_Record], options: ScoreOptions) -> Iterator[RowBatch]:
    """Collect records into batches, limited by their number and size."""
    rows: list[InputRow] = []
    kept: list[list[str | None]] = []
    size = 0
    schema = pa.schema([(name, pa.string()) for name in options.keep])

    def make_batch() -> RowBatch:
        columns = [[values[i] for values in kept] for i in range(len(schema))]
        table = pa.table([pa.array(column, pa.string()) for column in columns], schema=schema)
        return RowBatch(rows, table)

    for row, values in records:
        rows.append(row)
        kept.append(values)
        size += len(row.text) if isinstance(row.text, str | bytes) else 0
        size += sum(len(value or "") for value in values)
        if len(rows) == MAX_BATCH_ROWS or size > _MAX_BATCH_BYTES:
            yield make_batch()
            rows, kept, size = [], [], 0
    yield make_batch()


def _read_jsonl(shard: Shard, options: ScoreOptions) -> Iterator[_Record]:
    """Yield the records that begin inside the shard, including the rest of the last one."""
    position = max(0, shard.start - 1)
    number = 0
    is_inside = shard.start > 0  # inside a line that began before the shard
    with _open_text(shard.uri, position) as stream:
        for line in iter_lines(stream):
            start, position = position, position + len(line)
            was_inside, is_inside = is_inside, not line.endswith(b"\n")
            if was_inside:
                continue
            number += 1
            if shard.end != END and start >= shard.end:
                return
            if line.strip():
                yield _json_row(line, _location(shard, number, start), options)


def _location(shard: Shard, line: int, byte: int) -> str:
    """Return the position of a record. Line numbers are known only in a file's first shard."""
    return f"byte {byte}" if shard.start else f"line {line}"


def _invalid(location: str, error: str, kept: list[str | None]) -> _Record:
    return InputRow(None, None, location, error), kept


def _json_row(line: bytes, location: str, options: ScoreOptions) -> _Record:
    nulls: list[str | None] = [None] * len(options.keep)
    if len(line) > MAX_RECORD_BYTES:
        return _invalid(location, f"too long: line of more than {MAX_RECORD_BYTES} bytes", nulls)
    try:
        record = json.loads(line.decode(options.encoding).removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        message = f"{_not(options)}: {describe_decode_error(error, options.encoding)}"
        return _invalid(location, message, nulls)
    except json.JSONDecodeError as error:
        return _invalid(location, f"not JSON: {error.msg} at column {error.pos + 1}", nulls)
    except (ValueError, RecursionError) as error:
        return _invalid(location, f"not JSON: {error}", nulls)
    if not isinstance(record, dict):
        return _invalid(location, f"not an object: {type(record).__name__}", nulls)
    values = {name: _as_string(record.get(name)) for name in options.keep}
    unpaired = [name for name, value in values.items() if value and SURROGATE.search(value)]
    kept = [None if name in unpaired else values[name] for name in options.keep]
    if unpaired:
        return _invalid(location, f"not UTF-8: in {unpaired[0]!r}, unpaired surrogate", kept)
    if options.text_column not in record:
        return _invalid(location, f"no text: there is no field {options.text_column!r}", kept)
    aspects = record.get(options.aspect_column) if options.aspect_column else None
    return InputRow(record[options.text_column], aspects, location), kept


def _as_string(value: object) -> str | None:
    """Return a JSON value as a string, because a column of the output has one type."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_csv(shard: Shard, options: ScoreOptions) -> Iterator[_Record]:
    with _open_text(shard.uri, 0) as stream:
        head = stream.read(HEAD_BYTES)
    header, delimiter, start = read_header(head, options.text_column, options.encoding)
    check_columns(header, options)
    lines_before = head[:start].count(b"\n")
    start = shard.start or start
    with _open_text(shard.uri, start) as stream:
        end = None if shard.end == END else shard.end
        lines = LineReader(stream, start, end, options.encoding)
        for position, record in parse_records(lines, delimiter):
            location = _location(shard, lines_before + lines.record_line, position)
            yield _csv_row(record, location, header, options)


def _csv_row(
    record: list[str] | csv.Error, location: str, header: list[str], options: ScoreOptions
) -> _Record:
    nulls: list[str | None] = [None] * len(options.keep)
    if isinstance(record, csv.Error):
        return _invalid(location, f"not CSV: {record}", nulls)
    if len(record) != len(header):
        error = f"not CSV: {len(record)} fields, the header has {len(header)}"
        return _invalid(location, error, nulls)
    fields = dict(zip(header, record, strict=True))
    wrong = {name: describe_wrong_byte(fields[name], options.encoding) for name in options.columns}
    kept = [None if wrong[name] else fields[name] for name in options.keep]
    for name, message in wrong.items():
        if message:
            return _invalid(location, f"{_not(options)}: in {name!r}, {message}", kept)
    aspects = fields[options.aspect_column] if options.aspect_column else None
    return InputRow(fields[options.text_column], aspects, location), kept


def _not(options: ScoreOptions) -> str:
    """Return the kind of error for bytes that cannot be decoded."""
    return "not UTF-8" if options.encoding == "utf-8" else f"not {options.encoding}"
