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
from typing import BinaryIO

from capsar.data.example import AspectSpan, Example, find_spans
from capsar.data.rows import Line, Row, parse_label, read_lines
from capsar.errors import DataError, FormatError


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
    source = _CsvLines(read_lines(stream, path, encoding=encoding), path)
    header_line = next(source, "")
    if source.error:
        yield source.error
        return
    delimiter = delimiter or max(",;\t|", key=header_line.count)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    try:
        header = next(csv.reader([header_line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        yield FormatError(path, "line 1", f"the header is not CSV: {error}")
        return
    problem = _check_header(header, columns)
    if problem:
        yield FormatError(path, "line 1 (the header)", problem)
        return
    while True:
        first = source.number + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            record = _record(first, source.number)
            yield source.error or FormatError(path, record, f"not CSV: {error}")
            source.error = None
            continue
        record = _record(first, source.number)
        if source.error:
            yield source.error
            source.error = None
        elif values and len(values) != len(header):
            reason = f"expected {len(header)} fields as in the header, got {len(values)}"
            yield FormatError(path, record, reason)
        elif values:
            yield from _read_fields(dict(zip(header, values, strict=True)), columns, path, record)
        if values is None:
            return


def read_jsonl(
    stream: BinaryIO, path: str, *, columns: Columns = Columns(), encoding: str = "utf-8"
) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file."""
    for line in read_lines(stream, path, encoding=encoding):
        if isinstance(line, FormatError):
            yield line
            continue
        if not line.text.strip():
            continue
        record = f"line {line.number}"
        try:
            values = json.loads(line.text)
        except json.JSONDecodeError as error:
            yield FormatError(path, record, f"not JSON: {error.msg} at column {error.colno}")
        except (RecursionError, ValueError) as error:  # nested too deep, or too many digits
            yield FormatError(path, record, f"not readable as JSON: {error}")
        else:
            yield from _read_json(values, columns, path, record)


def _read_json(values: object, columns: Columns, path: str, record: str) -> Iterator[Row]:
    if not isinstance(values, dict):
        reason = f"expected an object with the field {columns.text!r}, got {type(values).__name__}"
        yield FormatError(path, record, reason)
        return
    aspects = values.get("aspects")
    if aspects is None:
        yield from _read_fields(values, columns, path, record)
        return
    if not (isinstance(aspects, list) and all(isinstance(aspect, dict) for aspect in aspects)):
        yield FormatError(path, record, "'aspects' must be a list of objects")
        return
    if not aspects:
        yield from _read_fields({columns.text: values.get(columns.text)}, columns, path, record)
    for number, aspect in enumerate(aspects, start=1):
        place = f"{record}, aspect {number}"
        yield from _read_fields({**values, **aspect}, columns, path, place, group=record)


class _CsvLines(Iterator[str]):
    """Lines for the csv module; a line that could not be read is kept as `error` for its record."""

    def __init__(self, lines: Iterator[Line | FormatError], path: str) -> None:
        self._lines = lines
        self._path = path
        self.number = 0
        self.error: FormatError | None = None

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        if isinstance(line, FormatError):
            self.error = line
            return "\n"
        return line.text + "\n"


def _record(first: int, last: int) -> str:
    return f"line {first}" if last <= first else f"lines {first} to {last}"


def _check_header(header: list[str], columns: Columns) -> str:
    """Say what is wrong with a header, or return an empty string."""
    named = {field.name: getattr(columns, field.name) for field in fields(Columns)}
    if columns.text not in header:
        return (
            f"no column {columns.text!r}; found {header!r}. "
            "Rename the column or say which one holds the text (--text-column)"
        )
    for name in (name for field, name in named.items() if name != getattr(Columns(), field)):
        if name not in header:
            return f"no column {name!r}; found {header!r}"
    if (columns.start in header) != (columns.end in header):
        return f"the columns {columns.start!r} and {columns.end!r} go together; found {header!r}"
    repeated = {name for name in named.values() if header.count(name) > 1}
    return f"more than one column {sorted(repeated)!r}" if repeated else ""


def _read_fields(
    values: Mapping[str, object], columns: Columns, path: str, record: str, *, group: str = ""
) -> Iterator[Row]:
    text = values.get(columns.text)
    if not isinstance(text, str):
        found = "none" if text is None else type(text).__name__
        yield FormatError(path, record, f"the field {columns.text!r} must be a string, got {found}")
        return
    polarity = None
    label = values.get(columns.polarity)
    if label is not None and label != "":
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
