"""Find record boundaries in CSV files, exactly and in linear time, so that files can be split.

A newline ends a record unless it is inside quotes, which depends on every byte before it. If
quotes only enclose whole fields, counting them is enough, and NumPy counts millions of bytes at
once. Otherwise (`a 5" screen`) the CSV parser reads the whole file.
"""

from __future__ import annotations

import csv
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.bulk.row_validation import SURROGATE
from capsar.data.records import UTF_16, describe_decode_error
from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_BLOCK_BYTES = 1 << 23
_QUOTE, _NEWLINE, _RETURN = b'"\n\r'
BOM = b"\xef\xbb\xbf"
MAX_RECORD_BYTES = 1 << 26
HEAD_BYTES = 1 << 20
"""Number of bytes in which the header must be."""


class LineReader:
    """Decoded lines of a stream from a byte offset on, with the position of the reader."""

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
        self.num_lines = 0
        self.record_line = 1
        """Line on which the last record began, counted from 1 at the first position."""

    def __iter__(self) -> Iterator[str]:
        for line in iter_lines(self._stream):
            if self._end is not None and self.position >= self._end:
                return
            self.position += len(line)
            self.num_lines += line.endswith(b"\n")
            # Each byte that cannot be decoded becomes an unpaired surrogate.
            yield line.decode(self._encoding, "surrogateescape")


def describe_wrong_byte(text: str, encoding: str) -> str:
    """Return a message about the first byte that could not be decoded; empty if there is none."""
    if text.isascii() or not SURROGATE.search(text):
        return ""
    try:
        text.encode(encoding, "surrogateescape").decode(encoding)
    except UnicodeDecodeError as error:
        return describe_decode_error(error, encoding)
    return ""


def iter_lines(stream: Any) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the lines of a stream with their newlines; yield an overlong line in parts."""
    parts: list[bytes] = []
    size = 0
    while block := stream.read(1 << 20):
        *lines, rest = block.split(b"\n")
        for line in lines:
            yield b"".join((*parts, line, b"\n"))
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_RECORD_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)


def parse_records(lines: LineReader, delimiter: str) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield the byte offset and the fields of each record; skip empty lines."""
    previous_limit = csv.field_size_limit(MAX_RECORD_BYTES)
    try:
        reader = csv.reader(lines, delimiter=delimiter)
        while True:
            start = lines.position
            lines.record_line = lines.num_lines + 1
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
        csv.field_size_limit(previous_limit)


def read_header(
    head: bytes, text_column: str, encoding: str = "utf-8"
) -> tuple[list[str], str, int]:
    """Return the columns of a CSV file, its delimiter, and the offset of its first record.

    Raises:
        DataError: If no known delimiter yields the text column, or if a byte order mark
            contradicts the encoding.
    """
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(UTF_16)
    start = len(BOM) if head.startswith(BOM) else 0
    if start and encoding != "utf-8":
        raise DataError(
            f"The file starts with the UTF-8 byte order mark; remove --encoding {encoding}"
        )
    widest: list[str] = []
    for delimiter in ",;\t|":
        lines = LineReader(BytesIO(head[start:]), start, encoding=encoding)
        header = next((record for _, record in parse_records(lines, delimiter)), [])
        if isinstance(header, list) and text_column in header:
            return header, delimiter, lines.position
        if isinstance(header, list) and len(header) > len(widest):
            widest = header
    raise missing_column(text_column, widest, "--text-column", encoding)


def missing_column(name: str, columns: Sequence[str], option: str, encoding: str) -> DataError:
    """Return the error of a missing column: the columns of the file and the option to set."""
    message = f"There is no column {name!r}; the columns are {list(columns)[:50]!r}"
    wrong = describe_wrong_byte(" ".join(columns), encoding)
    hint = f"In the header, {wrong}" if wrong else f"Choose with {option}."
    return DataError(f"{message}. {hint}")


def record_starts(stream: Any, start: int, every: int, delimiter: str) -> list[int]:  # noqa: ANN401
    """Return offsets of records: `start`, then the first one at least `every` bytes further on."""
    stream.seek(start)
    starts = _starts_by_quotes(stream, start, every, ord(delimiter))
    if starts is None:
        stream.seek(start)
        starts = [start]
        for offset, _ in parse_records(LineReader(stream, start), delimiter):
            if offset >= starts[-1] + every:
                starts.append(offset)
    return starts


def _starts_by_quotes(stream: Any, start: int, every: int, delimiter: int) -> list[int] | None:  # noqa: ANN401
    """Return `record_starts` by counting quotes; `None` if quotes are not only around fields."""
    starts = [start]
    base, num_quotes, overlap = start, 0, b"\n"  # each block is preceded by the byte before it
    while True:
        block = stream.read(_BLOCK_BYTES)
        data = np.frombuffer(overlap + block + (b"" if block else b"\n"), dtype=np.uint8)
        # The last byte is processed with the next block. The end of a file counts as a newline.
        inner = data[1:-1]
        quotes = np.flatnonzero(inner == _QUOTE)
        if not _quotes_enclose_fields(data, quotes, num_quotes, delimiter):
            return None
        newlines = np.flatnonzero(inner == _NEWLINE)
        inside = (np.searchsorted(quotes, newlines) + num_quotes) % 2
        _append_starts(starts, newlines[inside == 0] + (base + 1), every)
        num_quotes += len(quotes)
        base += len(inner)
        if not block:
            return starts if starts[-1] < base or starts == [start] else starts[:-1]
        overlap = bytes(data[-2:])


def _quotes_enclose_fields(
    data: NDArray[np.uint8], quotes: NDArray[np.intp], num_before: int, delimiter: int
) -> bool:
    """Return whether quotes open at the start and close at the end of fields, and CR precedes LF.

    Args:
        data: A block with one byte of context on each side.
        quotes: Positions of the quotes in the block without its context.
        num_before: Number of quotes before the block.
        delimiter: Code of the delimiter.
    """
    opening = (np.arange(len(quotes)) + num_before) % 2 == 0
    previous, following = data[quotes[opening]], data[quotes[~opening] + 2]
    returns = np.flatnonzero(data[1:-1] == _RETURN)
    returns = returns[(np.searchsorted(quotes, returns) + num_before) % 2 == 0]
    return bool(
        np.isin(previous, (delimiter, _NEWLINE, _QUOTE)).all()
        and np.isin(following, (delimiter, _NEWLINE, _RETURN, _QUOTE)).all()
        and (data[returns + 2] == _NEWLINE).all()
    )


def _append_starts(starts: list[int], offsets: NDArray[np.intp], every: int) -> None:
    """Append each offset that is at least `every` bytes after the last one in `starts`."""
    index = int(np.searchsorted(offsets, starts[-1] + every))
    while index < len(offsets):
        starts.append(int(offsets[index]))
        index = int(np.searchsorted(offsets, starts[-1] + every))
