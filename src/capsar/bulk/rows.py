"""Read files as batches of rows, and check each row.

A record that cannot be read or scored becomes a row with an error, so it does not affect others.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.data.records import describe_decode_error
from capsar.data.tables import (
    COMPRESSIONS,
    TABLES,
    open_parquet,
    open_stream,
    open_table,
    read_objects,
    table_format,
)
from capsar.errors import DataError, FormatError
from capsar.schema import find_mentions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from capsar.bulk.job import ScoreOptions
    from capsar.data.tables import FieldsOrError

_MAX_BATCH_ROWS = 4096
_MAX_BATCH_BYTES = 1 << 24
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACED = re.compile("\ufffd")
_TYPES = {"text": pa.string(), "aspects": pa.list_(pa.string())}
_TYPES |= {"location": pa.string(), "error": pa.string()}
_ROW = pa.field("_capsar_row", pa.struct(_TYPES))
"""Column of a converted file besides the kept ones: the fields of `InputRow`."""


class InputRow(NamedTuple):
    """One record of the input."""

    text: str
    """The text; empty if the row has an error."""
    aspects: list[str] | None = None
    """The given aspects; `None` to extract them."""
    location: str = ""
    """Position of the record in its file, for error messages, such as `line 3`."""
    error: str = ""
    """Why the record cannot be scored; empty if it can."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Consecutive rows, and their kept columns."""

    rows: list[InputRow]
    kept: pa.Table
    """An Arrow table with one row per row."""


def file_format(uri: str) -> tuple[str, str | None]:
    """Return the format and the compression that a file's name implies.

    Raises:
        DataError: If the extension is not supported.
    """
    kind, compression = table_format(filesystem.base_name(uri))
    if kind:
        return kind, compression
    raise DataError(
        f"Unknown format of {uri!r}. Supported extensions are "
        f"{', '.join(chain(*TABLES.values()))}; those of CSV and JSON Lines can be followed by "
        f"{', '.join(COMPRESSIONS)}. Save .xls files as .xlsx."
    )


def check_file(uri: str, options: ScoreOptions) -> None:
    """Check the columns and the encoding of a file by its schema or its first bytes.

    Raises:
        DataError: If a column is missing, or the text is not in the encoding of the options.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    kind, _ = file_format(uri)
    if kind == "parquet":
        with filesystem.open_input(uri) as file:
            _check_columns(pq.read_schema(file).names, options)
        return
    with _open(uri) as stream:
        head = b"" if kind == "xlsx" else stream.peek()
        head = head[: head.rfind(b"\n") + 1] or head  # the last line may be incomplete
        _check_encoding(head, options.encoding)
        _open_records(stream, uri, options)
    if kind != "jsonl":
        return
    records = read_objects(io.BytesIO(head), uri, encoding=options.encoding)
    found = [name for _, record in records if isinstance(record, dict) for name in record]
    if found:
        _check_columns([*dict.fromkeys(found)], options, "field")


def _open(uri: str) -> io.BufferedReader:
    return open_stream(filesystem.open_input(uri), file_format(uri)[1])


def _open_records(
    stream: io.BufferedReader, uri: str, options: ScoreOptions
) -> Iterator[FieldsOrError]:
    """Return the records of a CSV, Excel or JSON Lines file; check the columns if it has any."""
    kind, _ = file_format(uri)
    header, records = open_table(stream, uri, kind=kind, encoding=options.encoding)
    if header is not None:
        _check_columns(header, options)
    return records


def _check_columns(columns: list[str], options: ScoreOptions, kind: str = "column") -> None:
    """Raise a DataError that names the columns found and the option to use."""
    choices = {options.text_column: "--text-column", options.aspect_column: "--aspect-column"}
    for name in options.columns:
        if name not in columns:
            raise DataError(
                f"There is no {kind} {name!r}; the {kind}s are {columns[:50]!r}. "
                f"Choose with {choices.get(name, '--keep')}."
            )
        if columns.count(name) > 1:
            raise DataError(f"There are several {kind}s {name!r}. Rename all but one of them.")


def _check_encoding(head: bytes, encoding: str) -> None:
    """Raise a DataError if none of the non-ASCII bytes of a file's head are valid UTF-8.

    A file with both valid and invalid sequences, or with a single invalid byte, is UTF-8 with
    damaged rows, which are reported one by one.
    """
    if encoding != "utf-8":
        return
    try:
        head.decode(encoding)
    except UnicodeDecodeError as error:
        valid = head.decode(encoding, "ignore")
        if valid.isascii() and len(head) - len(valid) > 1:
            raise DataError(f"The file is not UTF-8: {describe_decode_error(error)}") from error


def read_text(uri: str, options: ScoreOptions, schema: pa.Schema | None) -> Iterator[RowBatch]:
    """Yield the rows of a CSV, Excel or JSON Lines file in at least one batch, which may be empty.

    Raises:
        DataError: If a column is missing.
        OSError: If the file cannot be read.
    """
    csv.field_size_limit(max(csv.field_size_limit(), options.max_chars))
    strings = pa.schema([(name, pa.string()) for name in options.keep])
    rows: list[InputRow] = []
    kept: list[dict[str, str | None]] = []
    size = 0
    with _open(uri) as stream:
        for location, fields in _open_records(stream, uri, options):
            row, values = _text_row(location, fields, options)
            rows.append(row)
            kept.append(values)
            size += sum(len(value or "") for value in (*values.values(), row.text))
            if len(rows) == _MAX_BATCH_ROWS or size > _MAX_BATCH_BYTES:
                yield RowBatch(rows, _cast(pa.Table.from_pylist(kept, strings), schema))
                rows, kept, size = [], [], 0
    yield RowBatch(rows, _cast(pa.Table.from_pylist(kept, strings), schema))


def _text_row(
    location: str, fields: dict[str, Any] | FormatError, options: ScoreOptions
) -> tuple[InputRow, dict[str, str | None]]:
    """Return the row of a record, and its kept values. A value that is not UTF-8 is null."""
    error, damaged = "", _SURROGATE
    if isinstance(fields, FormatError):
        error, damaged, fields = _row_error(fields, options), _REPLACED, fields.fields
    kept = {name: _as_string(fields.get(name)) for name in options.keep}
    for name, value in kept.items():
        if value and not value.isascii() and damaged.search(value):
            kept[name] = None
            error = error or f"not UTF-8: in {name!r}, unpaired surrogate"
    if not error and options.text_column not in fields:
        error = f"no text: there is no field {options.text_column!r}"
    if error:
        return InputRow("", None, location, error), kept
    aspects = fields.get(options.aspect_column) if options.aspect_column else None
    return check_row(fields[options.text_column], aspects, location, options), kept


def _row_error(error: FormatError, options: ScoreOptions) -> str:
    """Return the error of a record that could not be read; its kind is before the colon."""
    known = ("not CSV", "not JSON", "not an object")
    if error.reason.startswith(known):
        return error.reason
    kind = "not UTF-8" if options.encoding == "utf-8" else f"not {options.encoding}"
    return f"{'too long' if 'longer than' in error.reason else kind}: {error.reason}"


def _as_string(value: object) -> str | None:
    """Return a JSON value as a string, because a column of the output has one type."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _cast(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """Return kept columns with the types of the output, if no value changes."""

    def convert(field: pa.Field) -> Any:  # noqa: ANN401  (Arrow has no types)
        column = table.column(field.name)
        if column.type == field.type:
            return column
        if pa.types.is_nested(column.type) and field.type == pa.string():
            return pa.array(map(_as_string, column.to_pylist()), field.type)
        found = column.cast(field.type)
        if not _is_lossless(column, found):
            raise pa.ArrowInvalid(f"{field.name} has type {column.type}")
        return found

    if schema is None or table.schema == schema:
        return table
    try:
        return pa.table([convert(field) for field in schema], schema=schema)
    except pa.ArrowException as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(
            f"The kept columns cannot be converted to {types}, as in the output: {error}"
        ) from error


def _is_lossless(column: pa.ChunkedArray, found: pa.ChunkedArray) -> bool:
    """Return whether a column that was cast has the same values as before."""
    before, after = column.type, found.type
    if after == pa.string() or pa.types.is_null(before):
        return True
    if pa.types.is_string(before) and (pa.types.is_floating(after) or pa.types.is_temporal(after)):
        return True  # 4.50 is 4.5
    types = (before, after)
    if any(map(pa.types.is_integer, types)) and any(map(pa.types.is_temporal, types)):
        return False  # the unit of the number is unknown
    if all(map(pa.types.is_timestamp, types)) and (before.tz is None) != (after.tz is None):
        return False  # the time zone is unknown
    try:
        column, found = (_without_nan(each) for each in (column, found.cast(before)))
    except pa.ArrowNotImplementedError:  # list<null>, of a file with empty lists only
        return bool(found.to_pylist() == column.to_pylist())
    return bool(found == column)


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with null for NaN, which is not equal to itself."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), None, column)


def write_converted(
    batches: Iterable[RowBatch], path: str, shard_bytes: int, schema: pa.Schema
) -> list[int]:
    """Write the rows of a text file as Parquet, and return the number of rows in each row group.

    Each row group becomes a shard, so its size is that of a shard.
    """
    table = pa.schema([_ROW, *schema]).empty_table()
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for batch in batches:
            columns = zip(*batch.rows, strict=True) if batch.rows else [()] * len(_TYPES)
            arrays = map(pa.array, columns, _TYPES.values())
            rows = pa.StructArray.from_arrays(list(arrays), fields=list(_ROW.type))
            added = pa.table([rows, *batch.kept.columns], schema=table.schema)
            table = pa.concat_tables([table, added])
            group_rows = max(1, shard_bytes * len(table) // max(1, table.nbytes))
            whole = len(table) - len(table) % group_rows
            if whole:
                writer.write_table(table.slice(0, whole), group_rows)
                table = table.slice(whole)
        if len(table):
            writer.write_table(table)
    return group_sizes(pq.read_metadata(path))


def group_sizes(metadata: pq.FileMetaData) -> list[int]:
    """Return the number of rows in each row group."""
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def group_ranges(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Return the index of the first row of each row group, and after its last row."""
    return list(pairwise(accumulate(sizes, initial=0)))


def read_parquet(
    uri: str, start: int, end: int, options: ScoreOptions, schema: pa.Schema | None
) -> Iterator[RowBatch]:
    """Yield the rows of a range of a Parquet file, which may be a converted text file.

    Raises:
        DataError: If a column is missing or has another type than the output.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    with filesystem.open_input(uri) as stream:
        file = open_parquet(stream)
        is_converted = _ROW.name in file.schema_arrow.names
        columns = [_ROW.name, *options.keep] if is_converted else options.columns
        if not is_converted:
            _check_columns(file.schema_arrow.names, options)
        ranges = group_ranges(group_sizes(file.metadata))
        groups = [i for i, (first, last) in enumerate(ranges) if first < end and last > start]
        position = ranges[groups[0]][0] if groups else 0
        for batch in file.iter_batches(_MAX_BATCH_ROWS, groups, columns, use_threads=False):
            first, last = max(start - position, 0), min(end - position, len(batch))
            if first < last:
                table = pa.Table.from_batches([batch.slice(first, last - first)])
                found = table_batch(table, options, position + first)
                yield RowBatch(found.rows, _cast(found.kept, schema))
            position += len(batch)
            if position >= end:
                return


def table_batch(table: pa.Table, options: ScoreOptions, first_row: int = 0) -> RowBatch:
    """Return the rows of an Arrow table.

    Raises:
        DataError: If a column is missing, or the text column does not hold text.
    """
    if _ROW.name in table.column_names:
        columns = [column.to_pylist() for column in table.column(_ROW.name).flatten()]
        rows = list(map(InputRow._make, zip(*columns, strict=True)))
    else:
        _check_columns(table.column_names, options)
        texts = _text_values(table.column(options.text_column), options.text_column)
        aspects: list[object] = [None] * len(texts)
        if options.aspect_column is not None:
            aspects = list(map(_to_python, table.column(options.aspect_column)))
        pairs = enumerate(zip(texts, aspects, strict=True), first_row)
        rows = [check_row(*pair, f"row {number}", options) for number, pair in pairs]
    kept = table.select(list(options.keep))
    for index, name in enumerate(options.keep):
        try:
            kept.column(name).validate(full=True)
        except pa.ArrowInvalid:
            values = _text_values(kept.column(name), name)
            for number, (row, value) in enumerate(zip(rows, values, strict=True)):
                if error := _find_error(value or "", sys.maxsize):
                    error = row.error or f"{error} of {name!r}"
                    rows[number] = InputRow("", None, row.location, error)
                    values[number] = None
            kept = kept.set_column(index, name, pa.array(values, kept.schema.field(name).type))
    return RowBatch(rows, kept)


def _text_values(column: pa.ChunkedArray, name: str) -> list[str | None]:
    """Return strings. Bytes that are not UTF-8, which Arrow does not check, become surrogates."""
    try:
        values = column.cast(pa.large_binary()).to_pylist()
    except pa.ArrowNotImplementedError:
        raise DataError(f"The column {name!r} has type {column.type}, expected text") from None
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


def _to_python(value: pa.Scalar) -> Any:  # noqa: ANN401
    """Return a value; one that is not UTF-8 becomes a character that no text contains."""
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return "\ufffd"


def check_row(text: object, aspects: object, location: str, options: ScoreOptions) -> InputRow:
    """Return a row; one with an error if the text or its aspects cannot be scored.

    Args:
        text: Any value; only a string can be scored.
        aspects: One aspect or a list, if the options name the column of aspects.
        location: Position of the row in its file.
        options: The columns, and the maximum length of a text.
    """
    error = _find_error(text, options.max_chars)
    given: list[Any] | None = None
    if options.aspect_column is not None and not error:
        given = aspects if isinstance(aspects, list) else [aspects]
        error = next(filter(None, (_find_aspect_error(str(text), each) for each in given)), "")
    return InputRow("", None, location, error) if error else InputRow(str(text), given, location)


def _find_error(text: object, max_chars: int) -> str:
    if text is None:
        return "null text"
    if not isinstance(text, str):
        return f"not text: {type(text).__name__}"
    if len(text) > max_chars:
        return f"too long: {len(text)} characters, the maximum is {max_chars}"
    if not text.isascii() and (invalid := _SURROGATE.search(text)):
        return f"not UTF-8: invalid at character {invalid.start()}"
    return ""


def _find_aspect_error(text: str, aspect: object) -> str:
    if not isinstance(aspect, str):
        return f"invalid aspect: expected a string, got {type(aspect).__name__}"
    try:
        find_mentions(text, aspect)
    except DataError as error:
        return f"aspect not found: {error}"
    return ""
