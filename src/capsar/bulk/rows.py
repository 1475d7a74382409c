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
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from capsar.bulk import filesystem
from capsar.data.records import describe_decode_error
from capsar.data.tables import FieldsOrError, open_table, read_objects
from capsar.errors import DataError, FormatError
from capsar.schema import find_mentions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
_ERROR = "_capsar_error"
_CONVERTED = pa.schema(
    {"_capsar_text": pa.string(), "_capsar_aspects": pa.list_(pa.string()),
     "_capsar_location": pa.string(), _ERROR: pa.string()}
)  # fmt: skip
"""Columns of a converted file besides the kept ones: the fields of `InputRow`."""


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
    kept: Any
    """An Arrow table with one row per row."""


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
    if re.match(rb"\s*\[\s*{", head):
        raise DataError(
            "The file is a JSON array. Write one object per line, for example with `jq -c '.[]'`."
        )
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
    columns = [*columns]
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
            size += sum(len(value or "") for value in (*values.values(), row.text))
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
        return InputRow("", None, location, _row_error(fields, options)), kept
    kept = {name: _as_string(fields.get(name)) for name in options.keep}
    for name, value in kept.items():
        if value and not value.isascii() and _SURROGATE.search(value):
            error = f"not UTF-8: in {name!r}, unpaired surrogate"
            return InputRow("", None, location, error), kept | {name: None}
    if options.text_column not in fields:
        error = f"no text: there is no field {options.text_column!r}"
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


def _kept_table(kept: list[dict[str, str | None]], options: ScoreOptions, schema: Any) -> Any:  # noqa: ANN401
    columns = {
        name: pa.array([row.get(name) for row in kept], pa.string()) for name in options.keep
    }
    return _cast(pa.table(columns), schema)


def _cast(table: Any, schema: Any) -> Any:  # noqa: ANN401
    """Return kept columns with the types of the output."""
    if schema is None or table.schema == schema:
        return table
    columns = [
        pa.array(map(_as_string, table.column(field.name).to_pylist()), field.type)
        if pa.types.is_nested(table.schema.field(field.name).type) and field.type == pa.string()
        else table.column(field.name)
        for field in schema
    ]
    try:
        return pa.table(columns, names=schema.names).cast(schema)
    except pa.ArrowException as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(f"The kept columns cannot be converted to {types}: {error}") from error


def write_converted(
    batches: Iterable[RowBatch],
    path: str,
    shard_bytes: int,
    schema: Any,  # noqa: ANN401
) -> list[int]:
    """Write the rows of a text file as Parquet, and return the number of rows in each row group.

    Each row group becomes a shard, so its size is that of a shard.
    """
    types = pa.schema([*_CONVERTED, *schema])
    groups: list[int] = []
    table = types.empty_table()
    with pq.ParquetWriter(path, types, compression="zstd") as writer:

        def write(rows: int) -> None:
            writer.write_table(table.slice(0, rows), row_group_size=rows)
            groups.append(rows)

        for batch in batches:
            columns = zip(*batch.rows, strict=True) if batch.rows else [()] * len(_CONVERTED)
            arrays = [pa.array(c, field.type) for c, field in zip(columns, _CONVERTED, strict=True)]
            added = pa.table([*arrays, *batch.kept.columns], schema=types)
            table = pa.concat_tables([table, added])
            rows_per_group = max(1, shard_bytes * len(table) // max(1, table.nbytes))
            while len(table) > rows_per_group:
                write(rows_per_group)
                table = table.slice(rows_per_group)
        if len(table):
            write(len(table))
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
            if position >= end:
                return
            if position + rows <= start:
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
                if position >= end:
                    return


def table_batch(table: Any, options: ScoreOptions, first_row: int = 0) -> RowBatch:  # noqa: ANN401
    """Return the rows of an Arrow table.

    Raises:
        DataError: If a column is missing, or the text column does not hold text.
    """
    if _ERROR in table.column_names:
        columns = [table.column(name).to_pylist() for name in _CONVERTED.names]
        rows = list(map(InputRow._make, zip(*columns, strict=True)))
    else:
        _check_columns(table.column_names, options)
        texts = _text_values(table.column(options.text_column), options.text_column)
        aspects: list[object] = [None] * len(texts)
        if options.aspect_column is not None:
            aspects = table.column(options.aspect_column).to_pylist()
        rows = [
            check_row(text, row_aspects, f"row {index}", options)
            for index, (text, row_aspects) in enumerate(zip(texts, aspects, strict=True), first_row)
        ]
    kept = table.select(list(options.keep))
    for index, name in enumerate(options.keep):
        try:
            kept.column(name).validate(full=True)
        except pa.ArrowInvalid:
            values = _text_values(kept.column(name), name)
            errors = [_find_error(value or "", sys.maxsize) for value in values]
            rows = [
                InputRow("", None, row.location, row.error or f"{error} of {name!r}")
                if error
                else row
                for row, error in zip(rows, errors, strict=True)
            ]
            values = [None if error else value for value, error in zip(values, errors, strict=True)]
            kept = kept.set_column(index, name, pa.array(values, kept.schema.field(name).type))
    return RowBatch(rows, kept)


def _text_values(column: Any, name: str) -> list[str | None]:  # noqa: ANN401
    """Return strings. Bytes that are not UTF-8, which Arrow does not check, become surrogates."""
    try:
        values = column.cast(pa.large_binary()).to_pylist()
    except pa.ArrowNotImplementedError:
        raise DataError(f"The column {name!r} has type {column.type}, expected text") from None
    return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]


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
