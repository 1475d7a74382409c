"""Where the records of a CSV file begin, so that it can be cut: exact, and linear in its size.

A newline ends a record unless it is inside quotes, and whether it is depends on every byte before
it. Where quotes stand only around whole fields, their count tells it, and is taken for millions of
bytes at once. Where they do not (`a 5" screen`), the parser that reads the rows walks the file.
"""

from __future__ import annotations

import csv
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.bulk.objections import SURROGATE
from capsar.data.rows import UTF_16, describe_decode_error
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_BLOCK = 1 << 23
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
BOM = b"\xef\xbb\xbf"
MAX_RECORD_BYTES = 1 << 26
HEADER_BYTES = 1 << 20
"""A header is looked for in so many bytes."""


class Lines:
    """The lines of a stream from a place on, as the parser takes them, and how far it has got."""

    def __init__(
        self,
        stream: Any,  # noqa: ANN401
        position: int,
        end: int | None = None,
        encoding: str = "utf-8",
    ) -> None:
        self._stream = stream
        self._end = end
        self._encoding = encoding
        self.position = position
        self.ended = 0
        self.record_line = 1
        """The line on which the last record began, from 1 at the first place."""

    def __iter__(self) -> Iterator[str]:
        for line in byte_lines(self._stream):
            if self._end is not None and self.position >= self._end:
                return
            self.position += len(line)
            self.ended += line.endswith(b"\n")
            # Bytes that cannot be decoded stay what they are, each as a lone surrogate.
            yield line.decode(self._encoding, "surrogateescape")


def wrong_byte(text: str, encoding: str) -> str:
    """Say which byte of a text could not be decoded, and what to do; nothing if all could."""
    if text.isascii() or not SURROGATE.search(text):
        return ""
    try:
        text.encode(encoding, "surrogateescape").decode(encoding)
    except UnicodeDecodeError as error:
        return describe_decode_error(error, encoding)
    return ""


def byte_lines(stream: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the lines of a stream with their ends; one too long for memory in parts."""
    parts: list[bytes] = []
    held = 0
    while block := stream.read(1 << 20):
        *whole, rest = block.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line, b"\n"))
            parts, held = [], 0
        parts.append(rest)
        held += len(rest)
        if held > MAX_RECORD_BYTES:
            yield b"".join(parts)
            parts, held = [], 0
    if held:
        yield b"".join(parts)


def parse(lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each record with the place of its first byte; empty lines are none."""
    before = csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        reader = csv.reader(lines, delimiter=delimiter)
        while True:
            start = lines.position
            lines.record_line = lines.ended + 1
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield start, error
                continue
            if record:
                yield start, record
    finally:
        csv.field_size_limit(before)


def read_header(
    beginning: bytes, text_column: str, encoding: str = "utf-8"
) -> tuple[list[str], str, int]:
    """Return the columns of a CSV file, its delimiter, and where its first record begins.

    Raises:
        DataError: If no delimiter in use gives a column of that name, or the file says itself that
            it has another encoding.
    """
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(UTF_16)
    start = len(BOM) if beginning.startswith(BOM) else 0
    if start and encoding != "utf-8":
        raise DataError(f"It begins with the mark of UTF-8; score it without --encoding {encoding}")
    widest: list[str] = []
    for delimiter in ",;\t|":
        lines = Lines(BytesIO(beginning[start:]), start, encoding=encoding)
        header = next((record for _, record in parse(lines, delimiter)), [])
        if isinstance(header, list) and text_column in header:
            return header, delimiter, lines.position
        if isinstance(header, list) and len(header) > len(widest):
            widest = header
    raise DataError(no_column(text_column, widest, encoding))


def no_column(name: str, columns: Sequence[str], encoding: str) -> str:
    """Say that a column is not there, which are, and if their names could not be read."""
    told = f"There is no column {name!r}; there are {list(columns)[:50]!r}"
    wrong = wrong_byte(" ".join(columns), encoding)
    return f"{told}. In these names {wrong}" if wrong else told


def record_starts(stream: Any, start: int, every: int, delimiter: str) -> list[int]:  # noqa: ANN401
    """Return places where records begin: `start`, and then the first one each `every` bytes."""
    stream.seek(start)
    starts = _starts_by_quotes(stream, start, every, ord(delimiter))
    if starts is None:
        stream.seek(start)
        starts = [start]
        for place, _ in parse(Lines(stream, start), delimiter):
            if place >= starts[-1] + every:
                starts.append(place)
    return starts


def _starts_by_quotes(stream: Any, start: int, every: int, delimiter: int) -> list[int] | None:  # noqa: ANN401
    """Do as `record_starts` by counting quotes; nothing if they are not only around fields."""
    starts = [start]
    base, quotes_before, held = start, 0, b"\n"  # the byte before each block is its first
    while True:
        block = stream.read(_BLOCK)
        data = np.frombuffer(held + block + (b"" if block else b"\n"), dtype=np.uint8)
        # The last byte waits for the one after it. A file's end counts as a newline.
        inner = data[1:-1]
        quotes = np.flatnonzero(inner == _QUOTE)
        if not _quotes_are_around_fields(data, quotes, quotes_before, delimiter):
            return None
        newlines = np.flatnonzero(inner == _NEWLINE)
        inside = (np.searchsorted(quotes, newlines) + quotes_before) % 2
        _choose(starts, newlines[inside == 0] + (base + 1), every)
        quotes_before += len(quotes)
        base += len(inner)
        if not block:
            return starts if starts[-1] < base or starts == [start] else starts[:-1]
        held = bytes(data[-2:])


def _quotes_are_around_fields(
    data: NDArray[np.uint8], quotes: NDArray[np.intp], before: int, delimiter: int
) -> bool:
    """Tell whether quotes open where fields begin and close where they end, and CR is before LF."""
    opening = (np.arange(len(quotes)) + before) % 2 == 0
    previous, following = data[quotes[opening]], data[quotes[~opening] + 2]
    returns = np.flatnonzero(data[1:-1] == _RETURN)
    returns = returns[(np.searchsorted(quotes, returns) + before) % 2 == 0]
    return bool(
        np.isin(previous, (delimiter, _NEWLINE, _QUOTE)).all()
        and np.isin(following, (delimiter, _NEWLINE, _RETURN, _QUOTE)).all()
        and (data[returns + 2] == _NEWLINE).all()
    )


def _choose(starts: list[int], places: NDArray[np.intp], every: int) -> None:
    """Append the first place, and so on, that is far enough from the last one chosen."""
    index = int(np.searchsorted(places, starts[-1] + every))
    while index < len(places):
        starts.append(int(places[index]))
        index = int(np.searchsorted(places, starts[-1] + every))
