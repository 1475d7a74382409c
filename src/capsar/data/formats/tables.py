"""What users have: CSV (or TSV) with a header, and JSON Lines.

The fields, by their default names, are `text` (required), `aspect`, `polarity`, `start`, `end`,
`id` and
`category`. Without `start` and `end` an aspect is every place where its exact characters occur. A
JSON line may instead hold a list `aspects` of objects with these fields, for several aspects of one
text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, BinaryIO

from capsar.data.example import AspectSpan, Example, find_spans
from capsar.data.rows import MAX_RECORD_BYTES, Line, Notice, Row, parse_label, read_lines
from capsar.errors import DataError, FormatError

_HEADER = "line 1 (the header)"


@dataclass(frozen=True, slots=True)
class Columns:
    """What a user's file calls each field."""

    text: str = "text"
    aspect: str = "aspect"
    polarity: str = "polarity"
    start: str = "start"
    end: str = "end"
    id: str = "id"
    category: str = "category"


def read_csv(
    stream: BinaryIO,
    path: str,
    *,
    columns: Columns = Columns(),
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a CSV file with a header line; `delimiter=None` finds it in the header."""
    table = _open_csv(stream, path, encoding, delimiter)
    if isinstance(table, FormatError):
        yield table
        return
    header, records = table
    problem = _check_header(header, columns)
    if problem:
        yield FormatError(path, _HEADER, problem)
        return
    yield from _describe_header(header, columns)
    labels: set[str] = set()
    for record, values in records:
        if isinstance(values, FormatError):
            yield values
        else:
            yield from _read_fields(values, columns, path, record, labels)
    yield from _doubt(labels, path)


def read_csv_texts(
    stream: BinaryIO, path: str, *, column: str, encoding: str, delimiter: str | None
) -> Iterator[str | FormatError]:
    """Yield one column of a CSV file, whatever else it holds."""
    table = _open_csv(stream, path, encoding, delimiter)
    if isinstance(table, FormatError):
        yield table
        return
    header, records = table
    if column not in header:
        yield FormatError(path, _HEADER, _no_text(column, header))
        return
    for _, values in records:
        yield values if isinstance(values, FormatError) else values[column]


def _open_csv(
    stream: BinaryIO, path: str, encoding: str, delimiter: str | None
) -> tuple[list[str], Iterator[tuple[str, dict[str, str] | FormatError]]] | FormatError:
    """Return the names of columns, and each record's place and its fields."""
    source = _CsvLines(read_lines(stream, path, encoding=encoding))
    header_line = next(source, "")
    if source.error:
        return source.error
    delimiter = delimiter or max(",;\t|", key=header_line.count)
    try:
        cells = next(csv.reader([header_line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        return FormatError(path, "line 1", f"the header is not CSV: {error}")
    header = [cell.strip() for cell in cells]
    return header, _fields(header, source, path, delimiter)


def _fields(
    header: list[str], source: _CsvLines, path: str, delimiter: str
) -> Iterator[tuple[str, dict[str, str] | FormatError]]:
    """Yield each record's place and its fields by name, or what is wrong with it; no empty ones."""
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    for record, values in _records(reader, source, path):
        if isinstance(values, FormatError):
            yield record, values
        elif values and len(values) != len(header):
            reason = f"expected {len(header)} fields as in the header, got {len(values)}"
            yield record, FormatError(path, record, reason)
        elif any(values):
            yield record, dict(zip(header, values, strict=True))


def _records(
    reader: Iterator[list[str]], source: _CsvLines, path: str
) -> Iterator[tuple[str, list[str] | FormatError]]:
    """Yield each record's place and its fields, or what is wrong with it."""
    after_error = False
    while True:
        first = source.number + 1
        source.begin_record()
        try:
            values = next(reader, None)
            problem = source.error
            if values is None and not problem:
                return
            if after_error and source.num_quotes % 2:
                reason = "a stray quote: this may be the rest of the bad record before it"
                problem = FormatError(path, _place(first, source.number), reason)
        except csv.Error as error:
            place = _place(first, source.number)
            problem = source.error or FormatError(path, place, f"not CSV: {error}")
            values = None
        after_error = problem is not None
        yield _place(first, source.number), problem or values or []


def read_jsonl(
    stream: BinaryIO, path: str, *, columns: Columns = Columns(), encoding: str = "utf-8"
) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file."""
    # A field that was asked for by name and never comes is a slip, not a choice.
    awaited = {name for name in _renamed(columns) if name != columns.text}
    labels: set[str] = set()
    for record, values in _objects(stream, path, columns.text, encoding):
        if isinstance(values, FormatError):
            yield values
        else:
            awaited -= _names(values)
            yield from _read_json(values, columns, path, record, labels)
    if awaited:
        yield FormatError(path, "the file", f"no record has the field {sorted(awaited)!r}")
    yield from _doubt(labels, path)


def read_jsonl_texts(
    stream: BinaryIO, path: str, *, column: str, encoding: str
) -> Iterator[str | FormatError]:
    """Yield one field of each line of a JSON Lines file, whatever else it holds."""
    for record, values in _objects(stream, path, column, encoding):
        if isinstance(values, FormatError):
            yield values
        elif column not in values:
            yield FormatError(path, record, _no_text(column, list(values), kind="field"))
        elif isinstance(values[column] or "", str):
            yield values[column] or ""
        else:
            kind = type(values[column]).__name__
            yield FormatError(path, record, f"the field {column!r} must hold text, got {kind}")


def _objects(
    stream: BinaryIO, path: str, text: str, encoding: str
) -> Iterator[tuple[str, dict[str, Any] | FormatError]]:
    """Yield the place of each line that is not empty and the object in it, or what is wrong."""
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
            reason = f"not readable as JSON: {error}"
        else:
            if isinstance(values, dict):
                yield record, values
                continue
            kind = type(values).__name__
            reason = f"expected an object with the field {text!r}, got {kind}"
        yield record, FormatError(path, record, reason)


def _names(values: dict[str, Any]) -> set[str]:
    """The names of all fields of a JSON record, those of its aspects included."""
    aspects = values.get("aspects")
    nested = aspects if isinstance(aspects, list) else []
    return set(values).union(*(set(a) for a in nested if isinstance(a, dict)))


def _read_json(
    values: dict[str, Any], columns: Columns, path: str, record: str, labels: set[str]
) -> Iterator[Row]:
    aspects = values.get("aspects")
    if aspects is None:
        yield from _read_fields(values, columns, path, record, labels)
        return
    if not (isinstance(aspects, list) and all(isinstance(aspect, dict) for aspect in aspects)):
        yield FormatError(path, record, "'aspects' must be a list of objects")
        return
    if not aspects:
        only = {columns.text: values.get(columns.text)}
        yield from _read_fields(only, columns, path, record, labels)
    for number, aspect in enumerate(aspects, start=1):
        place = f"{record}, aspect {number}"
        yield from _read_fields({**values, **aspect}, columns, path, place, labels, group=record)


class _CsvLines(Iterator[str]):
    """Lines for the csv module, as they are; `error` is that of a line of the current record."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.number = 0
        self.begin_record()

    def begin_record(self) -> None:
        """Forget the lines before."""
        self.error: FormatError | None = None
        self.num_quotes = 0
        self._size = 0

    def __next__(self) -> str:
        line = next(self._lines)
        self.number = line.number
        self.error = self.error or line.error
        self.num_quotes += line.text.count('"')
        self._size += len(line.text)
        if self._size > MAX_RECORD_BYTES:
            raise csv.Error(f"the record is longer than {MAX_RECORD_BYTES} characters")
        return line.text + line.ending


def _place(first: int, last: int) -> str:
    return f"line {first}" if last <= first else f"lines {first} to {last}"


def _describe_header(header: list[str], columns: Columns) -> Iterator[Notice]:
    """Say which columns are not there, and which are not read."""
    named = [getattr(columns, field.name) for field in fields(Columns)]
    for name in (columns.aspect, columns.polarity):
        if name not in header:
            yield Notice(_HEADER, f"no column {name!r}")
    ignored = [name for name in header if name not in named]
    if ignored:
        yield Notice(_HEADER, "columns not read", ", ".join(map(repr, ignored)))


def _renamed(columns: Columns) -> list[str]:
    """The names that are not the default ones: those a user asked for."""
    pairs = [(getattr(columns, f.name), getattr(Columns(), f.name)) for f in fields(Columns)]
    return [name for name, default in pairs if name != default]


def _check_header(header: list[str], columns: Columns) -> str:
    """Say what is wrong with a header, or return an empty string."""
    if columns.text not in header:
        return _no_text(columns.text, header)
    for name in _renamed(columns):
        if name not in header:
            return f"no column {name!r}; found {header!r}"
    if (columns.start in header) != (columns.end in header):
        return f"the columns {columns.start!r} and {columns.end!r} go together; found {header!r}"
    named = [getattr(columns, field.name) for field in fields(Columns)]
    repeated = {name for name in named if header.count(name) > 1}
    return f"more than one column {sorted(repeated)!r}" if repeated else ""


def _no_text(name: str, found: list[str], *, kind: str = "column") -> str:
    return (
        f"no {kind} {name!r}; found {found!r}. "
        f"Rename the {kind} or say which one holds the text (--text-column)"
    )


def _doubt(labels: set[str], path: str) -> Iterator[FormatError]:
    """Refuse labels that two habits read in two ways, once all of them are seen."""
    if "0" in labels and labels <= {"0", "1"}:
        reason = (
            "every polarity is 0 or 1, and 0 may mean negative or neutral; write the words "
            "negative, neutral and positive"
        )
        yield FormatError(path, "the file", reason)


def _read_fields(
    values: Mapping[str, object],
    columns: Columns,
    path: str,
    record: str,
    labels: set[str],
    *,
    group: str = "",
) -> Iterator[Row]:
    text = values.get(columns.text)
    if not isinstance(text, str) or not text.strip():
        found = type(text).__name__ if text and not isinstance(text, str) else "nothing"
        yield FormatError(path, record, f"the field {columns.text!r} must hold text, got {found}")
        return
    polarity = None
    label = values.get(columns.polarity)
    if label is not None and label != "":
        labels.add(str(label).strip())
        parsed = parse_label(path, record, str(label))
        if isinstance(parsed, FormatError):
            yield parsed
            return
        polarity = parsed
    try:
        spans = _find(text, values, columns)
        name = str(values.get(columns.id) or record)
        category = str(values.get(columns.category) or "")
        yield Example(text, spans, polarity, name, group or name, category)
    except DataError as error:
        yield FormatError(path, record, str(error), polarity=polarity)


def _find(text: str, values: Mapping[str, object], columns: Columns) -> tuple[AspectSpan, ...]:
    aspect = values.get(columns.aspect)
    start, end = values.get(columns.start), values.get(columns.end)
    if aspect is not None and not isinstance(aspect, str):
        raise DataError(f"the field {columns.aspect!r} must be a string, got {aspect!r:.40}")
    if start in (None, "") and end in (None, ""):
        return find_spans(text, aspect) if aspect else ()
    span = AspectSpan(_whole(start, columns.start), _whole(end, columns.end))
    if aspect and text[span.start : span.end] != aspect:
        raise DataError(
            f"{aspect!r} is not at {span.start}:{span.end}, where {text[span.start : span.end]!r} "
            "stands; offsets are half-open and count characters of the untouched text"
        )
    return (span,)


def _whole(value: object, name: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise DataError(f"the field {name!r} must be a whole number, got {value!r:.40}") from None
