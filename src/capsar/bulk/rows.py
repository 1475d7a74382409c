"""Read files as batches of rows, and check each row before inference.

A record that cannot be read becomes a row with an error, so it does not affect other rows.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.data.records import describe_decode_error
from capsar.data.tables import FieldsOrError, open_table, read_objects
from capsar.errors import DataError, FormatError
from capsar.schema import find_mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from capsar.bulk.job import ScoreOptions

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_MAX_BATCH_ROWS = 4096
_MAX_BATCH_BYTES = 1 << 24
_HEAD_BYTES = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")
_ERROR = "_error"
_CONVERTED = pa.schema(
    {"_text": pa.string(), "_aspects": pa.list_(pa.string()), "_location": pa.string(),
     _ERROR: pa.string()}
)  # fmt: skip
"""Columns of a converted file besides the kept ones: the fields of `InputRow`."""
_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_BINARY = (pa.large_binary(), pa.binary_view())


@dataclass(frozen=True, slots=True)
class InputRow:
    """One record of the input."""

    text: object
    """A string if the record is valid; otherwise bytes that are not UTF-8, or any other value."""
    aspects: object = None
    location: str = ""
    """Position of the record in its file, for error messages, such as `line 3`."""
    error: str = ""
    """Why the record could not be read; empty if it could."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Consecutive rows, and their kept columns."""

    rows: list[InputRow]
    kept: Any
    """An Arrow table with one row per row."""


RowResult = tuple[list[dict[str, Any]] | None, str | None]
"""The aspects of a row, or its error. The part of an error before the first colon is its kind."""


def file_format(uri: str) -> tuple[str, str | None]:
    """Return the format and the compression that a file's name implies.

    Raises:
        DataError: If the extension is not supported.
    """
    name = filesystem.base_name(uri).lower()
    compression = next((c for ending, c in _COMPRESSIONS.items() if name.endswith(ending)), None)
    if compression:
        name = name.rpartition(".")[0]
    for ending, kind in _FORMATS.items():
        if name.endswith(ending) and not (compression and kind in ("parquet", "xlsx")):
            return kind, compression
    raise DataError(
        f"Unknown format of {uri!r}. Supported extensions are {', '.join(_FORMATS)}; those of CSV "
        f"and JSON Lines can be followed by {', '.join(_COMPRESSIONS)}. Save .xls files as .xlsx."
    )


def check_file(uri: str, options: ScoreOptions) -> None:
    """Check the columns and the encoding of a file by its schema or its first bytes.

    Raises:
        DataError: If a column is missing, or the text is not in the encoding of the options.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    kind, _ = file_format(uri)
    if kind == "parquet":
        with filesystem.open_input(uri) as stream:
            _check_columns(pq.read_schema(stream).names, options)
        return
    with _open(uri) as stream:
        if kind == "xlsx":
            _check_columns(open_table(stream, uri, kind=kind, encoding="")[0], options)
            return
        head = stream.read(_HEAD_BYTES)
    head = head[: head.rfind(b"\n") + 1] or head  # the last line may be incomplete
    _check_encoding(head, options.encoding)
    if kind == "csv":
        header, _ = open_table(io.BytesIO(head), uri, kind=kind, encoding=options.encoding)
        _check_columns(header, options)
        return
    fields: dict[str, None] = {}
    for _, record in read_objects(io.BytesIO(head), uri, encoding=options.encoding):
        fields |= {} if isinstance(record, FormatError) else dict.fromkeys(record)
    if fields:
        _check_columns([*fields], options, "field")


def _open(uri: str) -> BinaryIO:
    kind, compression = file_format(uri)
    if kind == "xlsx":
        return io.BufferedReader(filesystem.open_input(uri), _HEAD_BYTES)  # a zip archive: seeks
    return filesystem.open_text(uri, compression)


def _check_columns(columns: Sequence[str], options: ScoreOptions, kind: str = "column") -> None:
    """Raise a DataError that names the columns found and the option to use."""
    choices = {options.text_column: "--text-column", options.aspect_column: "--aspect-column"}
    for name in options.columns:
        if name not in columns:
            raise DataError(
                f"There is no {kind} {name!r}; the {kind}s are {[*columns][:50]!r}. "
                f"Choose with {choices.get(name, '--keep')}."
            )


def _check_encoding(head: bytes, encoding: str) -> None:
    """Raise a DataError if none of the non-ASCII bytes of a file's head are valid UTF-8.

    A file with both valid and invalid sequences, or with a single invalid byte, is UTF-8 with
    damaged rows, which are reported one by one.
    """
    if encoding != "utf-8" or head.isascii():
        return
    characters = [c for c in head.decode(encoding, "surrogateescape") if not c.isascii()]
    if len(characters) > 1 and all(_SURROGATE.match(character) for character in characters):
        try:
            head.decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"The file is not UTF-8: {describe_decode_error(error)}") from error


def read_text(uri: str, options: ScoreOptions, schema: Any) -> Iterator[RowBatch]:  # noqa: ANN401
    """Yield the rows of a CSV, Excel or JSON Lines file in at least one batch, which may be empty.

    Raises:
        DataError: If a column is missing.
        OSError: If the file cannot be read.
    """
    kind, _ = file_format(uri)
    csv.field_size_limit(max(csv.field_size_limit(), options.max_chars))
    with _open(uri) as stream:
        records: Iterable[FieldsOrError]
        if kind in ("csv", "xlsx"):
            header, records = open_table(stream, uri, kind=kind, encoding=options.encoding)
            _check_columns(header, options)
        else:
            records = read_objects(stream, uri, encoding=options.encoding)
        rows: list[InputRow] = []
        kept: list[dict[str, str | None]] = []
        size = 0
        for location, fields in records:
            row, values = _text_row(location, fields, options)
            rows.append(row)
            kept.append(values)
            size += sum(len(value or "") for value in (*values.values(), str(row.text)))
            if len(rows) == _MAX_BATCH_ROWS or size > _MAX_BATCH_BYTES:
                yield RowBatch(rows, _kept_table(kept, options, schema))
                rows, kept, size = [], [], 0
        yield RowBatch(rows, _kept_table(kept, options, schema))


def _text_row(
    location: str, fields: dict[str, Any] | FormatError, options: ScoreOptions
) -> tuple[InputRow, dict[str, str | None]]:
    if isinstance(fields, FormatError):
        known = {name: fields.fields.get(name, "\ufffd") for name in options.keep}
        kept = {name: None if "\ufffd" in value else value for name, value in known.items()}
        return InputRow(None, None, location, _row_error(fields, options)), kept
    kept = {name: _as_string(fields.get(name)) for name in options.keep}
    for name, value in kept.items():
        if value and not value.isascii() and _SURROGATE.search(value):
            error = f"not UTF-8: in {name!r}, unpaired surrogate"
            return InputRow(None, None, location, error), kept | {name: None}
    if options.text_column not in fields:
        error = f"no text: there is no field {options.text_column!r}"
        return InputRow(None, None, location, error), kept
    aspects = fields.get(options.aspect_column) if options.aspect_column else None
    return InputRow(fields[options.text_column], aspects, location), kept


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
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kept_table(kept: list[dict[str, str | None]], options: ScoreOptions, schema: Any) -> Any:  # noqa: ANN401
    columns = {
        name: pa.array([row.get(name) for row in kept], pa.string()) for name in options.keep
    }
    return _cast(pa.table(columns), schema)


def _cast(table: Any, schema: Any) -> Any:  # noqa: ANN401
    """Return kept columns with the types of the output."""
    if schema is None or table.schema == schema:
        return table
    try:
        return table.cast(schema)
    except pa.ArrowException as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(f"The kept columns cannot be converted to {types}: {error}") from error


def write_converted(
    batches: Iterable[RowBatch],
    path: str,
    shard_bytes: int,
    options: ScoreOptions,
    schema: Any,  # noqa: ANN401
) -> list[int]:
    """Write the rows of a text file as Parquet, and return the number of rows in each row group.

    Each row group becomes a shard, so its size is that of a shard.
    """
    types = pa.schema([*_CONVERTED, *schema])
    groups: list[int] = []
    with pq.ParquetWriter(path, types, compression="zstd") as writer:
        for batch in batches:
            rows = []
            for row in batch.rows:
                error = row.error or validate_row(row, options)
                aspects = None if row.aspects is None else aspect_list(row.aspects)
                valid = (None, None) if error else (row.text, aspects)
                rows.append((*valid, row.location, error))
            columns = zip(*rows, strict=True) if rows else [()] * len(_CONVERTED)
            arrays = [pa.array(c, field.type) for c, field in zip(columns, _CONVERTED, strict=True)]
            table = pa.table([*arrays, *batch.kept.columns], schema=types)
            size = max(1, shard_bytes * len(table) // max(1, table.nbytes))
            for start in range(0, len(table), size):
                writer.write_table(table.slice(start, size), row_group_size=size)
                groups.append(min(size, len(table) - start))
    return groups


def read_parquet(
    uri: str,
    start: int,
    end: int,
    options: ScoreOptions,
    schema: Any,  # noqa: ANN401
) -> Iterator[RowBatch]:
    """Yield the rows of a range of a Parquet file, which may be a converted text file.

    Raises:
        DataError: If a column is missing or has another type than the output.
        OSError, pyarrow.ArrowException: If the file cannot be read.
    """
    with filesystem.open_input(uri) as stream:
        file = pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
        is_converted = _ERROR in file.schema_arrow.names
        columns = [*_CONVERTED.names, *options.keep] if is_converted else options.columns
        if not is_converted:
            _check_columns(file.schema_arrow.names, options)
        position = 0
        for index in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            if position + rows <= start or position >= end:
                position += rows
                continue
            batches = file.iter_batches(
                _MAX_BATCH_ROWS, row_groups=[index], columns=columns, use_threads=False
            )
            for batch in batches:
                first, last = max(start, position), min(end, position + len(batch))
                if first < last:
                    table = pa.Table.from_batches([batch.slice(first - position, last - first)])
                    found = table_batch(table, options, first)
                    yield RowBatch(found.rows, _cast(found.kept, schema))
                position += len(batch)


def table_batch(table: Any, options: ScoreOptions, first_row: int = 0) -> RowBatch:  # noqa: ANN401
    """Return the rows of an Arrow table.

    Raises:
        DataError: If a column is missing, or the text column does not hold text.
    """
    is_converted = _ERROR in table.column_names
    if not is_converted:
        _check_columns(table.column_names, options)
    kept = table.select(list(options.keep))
    if is_converted:
        columns = [table.column(name).to_pylist() for name in _CONVERTED.names]
        return RowBatch([InputRow(*values) for values in zip(*columns, strict=True)], kept)
    texts = _text_values(table.column(options.text_column), options.text_column)
    aspects: list[object] = [None] * len(texts)
    if options.aspect_column is not None:
        aspects = table.column(options.aspect_column).to_pylist()
    rows = [
        InputRow(text, row_aspects, f"row {first_row + index}")
        for index, (text, row_aspects) in enumerate(zip(texts, aspects, strict=True))
    ]
    return RowBatch(rows, kept)


def _text_values(column: Any, name: str) -> list[object]:  # noqa: ANN401
    """Return strings, or bytes where the value is not UTF-8, which Arrow does not check."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return [None] * len(column)
    if not any(is_kind(kind) for is_kind in _TEXT_TYPES):
        raise DataError(f"The column {name!r} has type {kind}, expected text")
    values = column.cast(kind).cast(_BINARY[pa.types.is_string_view(kind)]).to_pylist()
    return [None if value is None else _decode(value) for value in values]


def _decode(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def score_valid_rows(
    rows: Sequence[InputRow],
    options: ScoreOptions,
    score: Callable[[Sequence[InputRow]], list[RowResult]],
) -> list[RowResult]:
    """Call `score` with the valid rows, and return the results of all rows in order."""
    errors = [row.error or validate_row(row, options) for row in rows]
    results = iter(score([row for row, error in zip(rows, errors, strict=True) if not error]))
    return [(None, error) if error else next(results) for error in errors]


def validate_row(row: InputRow, options: ScoreOptions) -> str:
    """Return why a row cannot be scored; an empty string if it can."""
    text = row.text
    if text is None:
        return "null text"
    if isinstance(text, bytes):
        return f"not UTF-8: {_describe_invalid_utf8(text)}"
    if not isinstance(text, str):
        return f"not text: {type(text).__name__}"
    if len(text) > options.max_chars:
        return f"too long: {len(text)} characters, the maximum is {options.max_chars}"
    if not text.isascii() and _SURROGATE.search(text):
        return "not UTF-8: unpaired surrogate"
    return "" if options.aspect_column is None else _validate_aspects(text, row.aspects)


def aspect_list(aspects: object) -> list[Any]:
    """Return the aspects of a row as a list; the column holds one aspect or a list per row."""
    is_many = isinstance(aspects, Sequence) and not isinstance(aspects, str | bytes)
    return [*aspects] if is_many else [aspects]  # type: ignore[misc]


def _validate_aspects(text: str, aspects: object) -> str:
    for aspect in aspect_list(aspects):
        if not isinstance(aspect, str):
            return f"invalid aspect: expected a string, got {type(aspect).__name__}"
        try:
            find_mentions(text, aspect)
        except DataError as error:
            return f"aspect not found: {error}"
    return ""


def _describe_invalid_utf8(text: bytes) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} at {error.start}"
    return "bytes"
