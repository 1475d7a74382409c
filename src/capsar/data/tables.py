"""Readers of users' own files: CSV, TSV, Excel and Parquet with columns, and JSON Lines.

The fields, by their default names, are `text` (required), `aspect`, `polarity`, `start`, `end`,
`id` and `category`. Without `start` and `end`, an aspect is every occurrence of its exact
characters. A JSON line, or a row of Parquet, may instead hold a list `aspects` of objects with
these fields.
"""

from __future__ import annotations

import csv
import io
import json
import math
import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count, zip_longest
from pathlib import PurePath
from typing import Any, BinaryIO

from capsar.data.excel import SheetRow, read_sheet
from capsar.data.records import (
    MAX_RECORD_BYTES,
    Line,
    Notice,
    ReadItem,
    parse_label,
    read_lines,
    recover,
)
from capsar.errors import DataError, FormatError, MissingExtraError
from capsar.schema import AspectSpan, Example, find_mentions

TABLES = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv"),
    "xlsx": (".xlsx",),
    "jsonl": (".jsonl", ".ndjson", ".json"),
}
"""The endings of file names, by format."""
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
HEADER = {"csv": "line 1 (the header)", "xlsx": "row 1 (the header)", "parquet": "the schema"}
"""Position of the column names, by format."""
_OPTIONS = ("text", "aspect", "polarity")
"""Fields whose column is named by a command-line option: --text-column and so on."""

_NESTED = "aspects"
_BATCH_ROWS = 64
_BUFFER_BYTES = 1 << 20
_MAX_FIELD_CHARS = MAX_RECORD_BYTES
"""How far the parser looks for the end of a quoted field."""

FieldsOrError = tuple[str, dict[str, Any] | FormatError]
"""The position of a record in its file, and its fields by name or its error."""
_CsvRecord = tuple[str, list[str], FormatError | None]
"""The position of a record in its file, its values, and its error."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The column, or the field of JSON Lines, that holds each field of an example."""

    text: str = "text"
    aspect: str = "aspect"
    polarity: str = "polarity"
    start: str = "start"
    end: str = "end"
    id: str = "id"
    category: str = "category"

    def required(self, *, labeled: bool) -> dict[str, str]:
        """Return the columns that a file must have besides the text, by field.

        These are columns with a name other than the default and, if labels are needed, `polarity`.
        """
        default = asdict(Columns())
        return {
            field: column
            for field, column in asdict(self).items()
            if field != "text" and (column != default[field] or (labeled and field == "polarity"))
        }


def table_format(name: str) -> tuple[str, str | None]:
    """Return the format of a table, or an empty string, and the compression that a name implies."""
    stem, ending = posixpath.splitext(name.lower())
    compression = COMPRESSIONS.get(ending)
    if compression:
        ending = posixpath.splitext(stem)[1]
    kind = next((kind for kind, endings in TABLES.items() if ending in endings), "")
    return "" if compression and kind in ("parquet", "xlsx") else kind, compression


def open_stream(stream: BinaryIO, compression: str | None) -> io.BufferedReader:
    """Return the content of a file, decompressed.

    Raises:
        MissingExtraError: If it is compressed and the extra `bulk` is not installed.
    """
    if compression:
        try:
            import pyarrow
        except ImportError as error:
            raise MissingExtraError("bulk", "Reading compressed files") from error
        stream = pyarrow.CompressedInputStream(stream, compression)
    elif isinstance(stream, io.BufferedReader):
        return stream  # a second buffer would wait for more than the first line of a pipe
    return io.BufferedReader(stream, _BUFFER_BYTES)  # type: ignore[arg-type]


def open_parquet(stream: BinaryIO) -> Any:  # noqa: ANN401  (Arrow has no types)
    """Open a Parquet file; the old timestamps of Spark must not overflow as nanoseconds.

    Raises:
        MissingExtraError: If the extra `bulk` is not installed.
    """
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError("bulk", "Reading Parquet") from error
    options = {"buffer_size": _BUFFER_BYTES, "pre_buffer": False}
    return ParquetFile(stream, coerce_int96_timestamp_unit="us", **options)


def read_table(
    stream: io.BufferedReader,
    path: str,
    *,
    kind: str,
    columns: Columns = Columns(),
    encoding: str = "utf-8",
    labeled: bool = False,
) -> Iterator[ReadItem]:
    """Yield the items of a file of one of the formats `TABLES`.

    Raises:
        FormatError: If it lacks a column; with `labeled`, also if it lacks labels. Of JSON Lines,
            and of Parquet with lists of aspects, the polarity and each column that was named.
    """
    known = {*asdict(columns).values(), _NESTED}
    header, records = open_table(stream, path, kind=kind, encoding=encoding, columns=known)
    is_nested = header is None or (kind == "parquet" and _has_objects(stream, columns))
    missing = columns.required(labeled=labeled) if is_nested else {}
    if header is not None and is_nested and columns.text not in header:
        raise FormatError(path, HEADER[kind], missing_column(columns.text, header, "text"))
    if header is not None and not is_nested:
        yield from _check_header(header, columns, path, kind, labeled=labeled)
    read = _read_object if is_nested else _read_fields
    found = dict.fromkeys(header or ())
    labels: set[str] = set()
    for record, values in records:
        if isinstance(values, FormatError):
            yield values
            continue
        if missing:
            names = _field_names(values)
            found |= dict.fromkeys(names)
            missing = {field: name for field, name in missing.items() if name not in names}
        yield from recover(read(values, columns, path, record, labels))
    for field, name in missing.items():
        if found:
            raise FormatError(
                path, "the file", missing_column(name, list(found), field, kind="field")
            )
    _check_labels(labels, path)


def open_table(
    stream: io.BufferedReader,
    path: str,
    *,
    kind: str,
    encoding: str,
    columns: Collection[str] = (),
) -> tuple[list[str] | None, Iterator[FieldsOrError]]:
    """Return the column names of a file, `None` for JSON Lines, and an iterator over its records.

    Args:
        stream: The opened file.
        path: Its name, for messages.
        kind: Its format, one of `TABLES`.
        encoding: The encoding of CSV and JSON Lines.
        columns: The columns of Parquet to read.

    Raises:
        DataError: If the file is a JSON array.
        FormatError: If the header cannot be read.
    """
    match kind:
        case "csv":
            return open_csv(stream, path, encoding=encoding)
        case "jsonl":
            if re.match(rb"(\xef\xbb\xbf)?\s*\[\s*{", stream.peek()):
                raise DataError(
                    "The file is a JSON array. Write one object per line, for example with "
                    "`jq -c '.[]'`."
                )
            return None, read_objects(stream, path, encoding=encoding)
        case "parquet":
            return _open_parquet_table(stream, path, columns)
    rows = read_sheet(stream, path)
    _, cells = next(rows, (0, []))
    if not cells:
        raise FormatError(path, "the file", "no rows in the first sheet; others are not read")
    names = [(cell or "").strip() for cell in cells]
    return [name for name in names if name], _sheet_records(names, rows)


def _open_parquet_table(
    stream: BinaryIO, path: str, columns: Collection[str]
) -> tuple[list[str], Iterator[FieldsOrError]]:
    try:
        file = open_parquet(stream)
        header = file.schema_arrow.names
    except UnicodeDecodeError as error:
        raise FormatError(path, HEADER["parquet"], "a name of a column is not UTF-8") from error
    return header, _parquet_records(file, path, [name for name in header if name in columns])


def _has_objects(stream: BinaryIO, columns: Columns) -> bool:
    """Return whether a Parquet file has a column `aspects` with lists of structs."""
    import pyarrow

    schema = open_parquet(stream).schema_arrow
    if _NESTED in asdict(columns).values() or schema.names.count(_NESTED) != 1:
        return False
    item = getattr(schema.field(_NESTED).type, "value_type", None)
    return isinstance(item, pyarrow.StructType)


def _parquet_records(
    file: Any,  # noqa: ANN401
    path: str,
    columns: list[str],
) -> Iterator[FieldsOrError]:
    """Yield the fields of each row; one that cannot be read does not affect others."""
    numbers = count()
    for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
        for index, number in zip(range(len(batch)), numbers, strict=False):
            fields: dict[str, Any] | FormatError
            try:
                (values,) = batch.slice(index, 1).to_pylist()
                fields = {name: _as_json(value) for name, value in values.items()}
            except (ValueError, OverflowError) as error:
                fields = FormatError(path, f"row {number}", f"cannot be read: {error}")
            yield f"row {number}", fields


def _as_json(value: object) -> object:
    """Return a value of Parquet as JSON would have it.

    Data frames store integers with gaps as floats with NaN, and structs have a null for each field
    that is missing.

    Raises:
        ValueError: If the value is longer than a record can be.
    """
    match value:
        case float():
            return None if math.isnan(value) else int(value) if value.is_integer() else value
        case list():
            return [_as_json(item) for item in value]
        case dict():
            fields = ((name, _as_json(item)) for name, item in value.items())
            return {name: item for name, item in fields if item is not None}
        case str() | bytes() if len(value) > MAX_RECORD_BYTES:
            raise ValueError(f"a value is longer than {MAX_RECORD_BYTES} characters")
        case bytes():
            with suppress(UnicodeDecodeError):
                return value.decode()
    return value


def _sheet_records(names: list[str], rows: Iterator[SheetRow]) -> Iterator[FieldsOrError]:
    """Yield the fields of each row by column; cells of columns without a name are ignored."""
    for number, cells in rows:
        fields = {name: cell for name, cell in zip_longest(names, cells) if name}
        if any(fields.values()):
            yield f"row {number}", fields


def open_csv(
    stream: BinaryIO, path: str, *, encoding: str
) -> tuple[list[str], Iterator[FieldsOrError]]:
    """Return the column names of a CSV file and an iterator over its records.

    The delimiter is the most frequent of `,;|` and tab in the header; of `.tsv` files, a tab.

    Raises:
        FormatError: If the header cannot be read.
    """
    source = _CsvLines(read_lines(stream, path, encoding=encoding))
    first_line = next(source, "")
    source.retry()
    name = PurePath(path.lower())
    tab_separated = (name.with_suffix("") if name.suffix in COMPRESSIONS else name).suffix == ".tsv"
    delimiter = max("\t" if tab_separated else ",;\t|", key=first_line.count)
    records = _parse_csv(source, path, delimiter)
    _, cells, error = next(records, ("", [], None))
    if error:
        reason = error.reason if source.error else f"the header is {error.reason}"
        raise FormatError(path, "line 1", reason)
    header = [cell.strip() for cell in cells]
    source.can_retry = len(header) > 1
    return header, _csv_records(header, records, path)


def _csv_records(
    header: list[str], records: Iterator[_CsvRecord], path: str
) -> Iterator[FieldsOrError]:
    """Yield the fields of each record by column."""
    for record, values, error in records:
        fields = dict(zip(header, values, strict=False)) if len(values) == len(header) else {}
        if error:
            error.fields = fields
            yield record, error
        elif fields:
            yield record, fields
        else:
            reason = f"not CSV: expected {len(header)} fields as in the header, got {len(values)}"
            yield record, FormatError(path, record, reason)


def _parse_csv(source: _CsvLines, path: str, delimiter: str) -> Iterator[_CsvRecord]:
    """Yield the values of each record that is not empty.

    A quote that is never closed makes the parser read many lines as one record. If that fails,
    only the first line is a bad record, and the parser continues with the second one.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARS))
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    after_error = False
    while True:
        source.begin_record()
        values: list[str] | None = []
        reason = ""
        try:
            values = next(reader, None)
        except csv.Error as error:
            reason = f"not CSV: {error}"
            source.retry(after=1, is_open=reason.endswith("unexpected end of data"))
        if values is None and not source.error:
            return
        if after_error and source.num_quotes % 2:
            reason = reason or "not CSV: a stray quote, perhaps of the bad record before it"
        after_error = bool(reason or source.error)
        if after_error:
            values = [] if reason else values or []
            yield source.record, values, source.error or FormatError(path, source.record, reason)
        elif any(values or ()):
            yield source.record, values or [], None


class _CsvLines(Iterator[str]):
    """Lines for the csv module, and what is known about those of the current record."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._again: deque[Line] = deque()
        self.can_retry = True
        self._budget = _MAX_FIELD_CHARS
        self.begin_record()

    def begin_record(self) -> None:
        """Reset what is known about the record."""
        self._record: list[Line] = []
        self._size = 0

    def __next__(self) -> str:
        if self._again:
            line = self._again.popleft()
        else:
            line = next(self._lines)
            self._budget += 4 * len(line.text)
        self._record.append(line)
        self._size += len(line.text)
        if self._size > MAX_RECORD_BYTES:
            raise csv.Error(f"the record is longer than {MAX_RECORD_BYTES} characters")
        return line.text + line.ending

    def retry(self, after: int = 0, *, is_open: bool = False) -> None:
        """Return the lines of the record, from a number of lines on, once more.

        Lines of a file with one column could be taken for records, so they are only read again if
        the record is open until the end of the file.

        What is read again is limited by what was read, so that a file is read in linear time.
        """
        can_retry = self.can_retry or is_open
        if can_retry and self._size <= min(self._budget, 2 * csv.field_size_limit()):
            self._budget -= self._size
            self._again.extendleft(reversed(self._record[after:]))
            del self._record[after:]

    @property
    def error(self) -> FormatError | None:
        """The error of the first line of the record that could not be decoded."""
        return next((line.error for line in self._record if line.error), None)

    @property
    def num_quotes(self) -> int:
        """The number of quotes in the lines of the record."""
        return sum(line.text.count('"') for line in self._record)

    @property
    def record(self) -> str:
        """The position of the record in its file."""
        if not self._record:
            return "the file"
        first, last = self._record[0].number, self._record[-1].number
        return f"line {first}" if last == first else f"lines {first} to {last}"


def _check_header(
    header: list[str], columns: Columns, path: str, kind: str, *, labeled: bool
) -> Iterator[Notice]:
    """Yield notices about columns; raise a FormatError if the columns cannot be used."""
    try:
        _check_columns(header, columns, labeled=labeled)
    except DataError as error:
        raise FormatError(path, HEADER[kind], str(error)) from None
    for name in (columns.aspect, columns.polarity):
        if name not in header:
            yield Notice(HEADER[kind], f"no column {name!r}")
    ignored = [name for name in header if name not in asdict(columns).values()]
    if ignored:
        yield Notice(HEADER[kind], "columns not read", ", ".join(map(repr, ignored)))


def _check_columns(header: list[str], columns: Columns, *, labeled: bool) -> None:
    for field, name in ({"text": columns.text} | columns.required(labeled=labeled)).items():
        if name not in header:
            raise DataError(missing_column(name, header, field))
    if labeled and not {columns.aspect, columns.start} & set(header):
        raise DataError(missing_column(columns.aspect, header, "aspect"))
    if (columns.start in header) != (columns.end in header):
        raise DataError(
            f"the columns {columns.start!r} and {columns.end!r} go together; found {header!r}"
        )
    repeated = {name for name in asdict(columns).values() if header.count(name) > 1}
    if repeated:
        raise DataError(f"more than one column {sorted(repeated)!r}")


def missing_column(name: str, found: list[str], field: str, *, kind: str = "column") -> str:
    """Return a message that lists the columns found and names the option to use."""
    option = f"; choose the {field} {kind} with --{field}-column" if field in _OPTIONS else ""
    return f"no {kind} {name!r}; found {found!r}{option}"


def read_objects(stream: BinaryIO, path: str, *, encoding: str) -> Iterator[FieldsOrError]:
    """Yield the object in each line that is not empty."""
    for line in read_lines(stream, path, encoding=encoding):
        record = f"line {line.number}"
        if line.error:
            yield record, line.error
            continue
        if not line.text.strip():
            continue
        try:
            values = json.loads(line.text)
        except json.JSONDecodeError as error:
            reason = f"not JSON: {error.msg} at column {error.colno}"
        except (RecursionError, ValueError) as error:  # nested too deep, or too many digits
            reason = f"not JSON: {error}"
        else:
            if isinstance(values, dict):
                yield record, values
                continue
            reason = f"not an object: {type(values).__name__}"
        yield record, FormatError(path, record, reason)


def _field_names(values: dict[str, Any]) -> list[str]:
    """Return the names of a record's fields, those of its aspects included."""
    aspects = values.get(_NESTED)
    nested = aspects if isinstance(aspects, list) else []
    return [name for item in (values, *nested) if isinstance(item, dict) for name in item]


def _read_object(
    values: dict[str, Any], columns: Columns, path: str, record: str, labels: set[str]
) -> Iterator[ReadItem]:
    aspects = values.get(_NESTED)
    if aspects is None:
        yield from _read_fields(values, columns, path, record, labels)
        return
    if not (isinstance(aspects, list) and all(isinstance(aspect, dict) for aspect in aspects)):
        raise FormatError(path, record, "'aspects' must be a list of objects")
    if not aspects:
        text_only = {columns.text: values.get(columns.text)}
        yield from _read_fields(text_only, columns, path, record, labels)
    for number, aspect in enumerate(aspects, start=1):
        part = f"{record}, aspect {number}"
        fields = {**values, **aspect}
        yield from recover(_read_fields(fields, columns, path, part, labels, group=record))


def _read_fields(
    values: Mapping[str, object],
    columns: Columns,
    path: str,
    record: str,
    labels: set[str],
    *,
    group: str = "",
) -> Iterator[ReadItem]:
    """Yield the example of one record, and add its label as written to `labels`."""
    text = values.get(columns.text)
    if not isinstance(text, str) or not text.strip():
        found = type(text).__name__ if text and not isinstance(text, str) else "nothing"
        reason = f"the field {columns.text!r} must hold text, got {found}"
        raise FormatError(path, record, reason)
    polarity = None
    label = values.get(columns.polarity)
    if label is not None and label != "":
        labels.add(str(label).strip())
        polarity = parse_label(path, record, str(label))
    try:
        spans = _read_spans(text, values, columns)
        name = str(values.get(columns.id) or record)
        category = str(values.get(columns.category) or "")
        yield Example(text, spans, polarity, name, group or name, category)
    except DataError as error:
        raise FormatError(path, record, str(error), polarity=polarity) from error


def _read_spans(
    text: str, values: Mapping[str, object], columns: Columns
) -> tuple[AspectSpan, ...]:
    aspect = values.get(columns.aspect)
    offsets = {name: values.get(name) for name in (columns.start, columns.end)}
    if aspect is not None and not isinstance(aspect, str):
        raise DataError(f"the field {columns.aspect!r} must be a string, got {aspect!r:.40}")
    if all(value in (None, "") for value in offsets.values()):
        return find_mentions(text, aspect) if aspect else ()
    span = AspectSpan(*(_parse_offset(value, name) for name, value in offsets.items()))
    found = text[span.start : span.end]
    if aspect and found != aspect:
        raise DataError(
            f"{aspect!r} is not at {span.start}:{span.end}, where {found!r} is; offsets are "
            "half-open and count characters of the text as it is in the file"
        )
    return (span,)


def _parse_offset(value: object, name: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise DataError(f"the field {name!r} must be a whole number, got {value!r:.40}") from None


def _check_labels(labels: set[str], path: str) -> None:
    """Refuse labels whose meaning depends on the convention, once all labels have been read."""
    if "0" in labels and labels <= {"0", "1"}:
        reason = (
            "every polarity is 0 or 1, and 0 may mean negative or neutral; write the words "
            "negative, neutral and positive"
        )
        raise FormatError(path, "the file", reason)
