"""What a reader yields: examples, notices about them, and bad records as error values.

A bad record is *yielded* as a `FormatError`, not raised, so that one bad row never hides the rest
of the file; who reads decides whether to raise, skip or list it.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import AspectSpan, Example
from capsar.errors import ConfigError, DataError, FormatError
from capsar.labels import parse_polarity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.labels import Polarity

MAX_RECORD_BYTES = 16 * 2**20
"""A longer labelled record is damage or an attack, refused before it fills memory."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a user should know of a record that was read all the same."""

    record: str
    kind: str
    detail: str = ""


Row = Example | Notice | FormatError


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text file, and its number from 1."""

    number: int
    text: str
    """Without its line break; where `error` is set, as much of it as could be read."""
    ending: str
    error: FormatError | None = None


def read_lines(stream: BinaryIO, path: str, *, encoding: str = "utf-8") -> Iterator[Line]:
    """Yield the lines of a file in bounded memory; a line that cannot be read carries its error.

    Lines end at a line feed, with or without a carriage return before it, and at nothing else: a
    no-break space, form feed or Unicode line separator is part of somebody's text.

    Raises:
        ConfigError: If the encoding cannot be used.
    """
    encoding = known_encoding(encoding)
    number = 0
    while chunk := stream.readline(MAX_RECORD_BYTES + 1):
        number += 1
        if len(chunk) > MAX_RECORD_BYTES and not chunk.endswith(b"\n"):
            reason = f"the line is longer than {MAX_RECORD_BYTES} bytes"
            yield Line(number, "", "\n", FormatError(path, f"line {number}", reason))
            while chunk and not chunk.endswith(b"\n"):
                chunk = stream.readline(MAX_RECORD_BYTES)
            continue
        if number == 1 and encoding == "utf-8":
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        error = None
        try:
            text = chunk.decode(encoding)
        except UnicodeDecodeError as cause:
            text = chunk.decode(encoding, "replace")
            error = FormatError(path, f"line {number}", describe_decode_error(cause, encoding))
        if number == 1 and text.count("\0") > len(text) // 4:
            error = FormatError(path, "line 1", UTF_16)
        body = text.removesuffix("\n").removesuffix("\r")
        yield Line(number, body, text[len(body) :], error)


UTF_16 = "the file seems to be UTF-16; save it as UTF-8"


def known_encoding(encoding: str) -> str:
    """Return an encoding's own name.

    Raises:
        ConfigError: If it is unknown, or its line feed is not one byte.
    """
    try:
        name = codecs.lookup(encoding).name
        line_feed = "\n".encode(name)
    except (LookupError, UnicodeError):
        raise ConfigError(f"Unknown encoding {encoding!r}; try utf-8, latin-1 or cp1252") from None
    if name == "utf-8-sig":
        return "utf-8"  # a byte order mark is passed over anyhow
    if line_feed != b"\n":
        raise ConfigError(f"Files in {encoding!r} cannot be read by line; save them as UTF-8")
    return name


def describe_decode_error(error: UnicodeDecodeError, encoding: str = "utf-8") -> str:
    """Say which byte is wrong, and what to do."""
    byte = error.object[error.start]
    if error.object.startswith((b"\xff\xfe", b"\xfe\xff")):
        return UTF_16
    # What is valid latin-1 and text, cp1252 reads alike; not so the other way round.
    example = " (as --encoding cp1252)" if encoding == "utf-8" else ""
    return (
        f"byte 0x{byte:02x} at position {error.start} is not valid {encoding}; "
        f"save the file as UTF-8, or give its encoding{example}"
    )


def parse_label(path: str, record: str, value: str) -> Polarity | FormatError:
    """Return the polarity a file spells as `value`, or the record's error."""
    try:
        return parse_polarity(value)
    except DataError as error:
        return FormatError(path, record, str(error))


def resolve_span(text: str, term: str, start: int, end: int) -> tuple[AspectSpan, str, str]:
    """Return where a term stands, given where the file says it stands.

    Returns:
        The span, and the kind and detail of a notice, both empty if the file is exactly right.

    Raises:
        DataError: If the term is not there and cannot be found elsewhere without doubt.
    """
    inside = 0 <= start < end <= len(text)
    found = text[start:end] if inside else ""
    if inside and found == term:
        return AspectSpan(start, end), "", ""
    claim = f"{term!r} is not at {start}:{end}"
    if inside and found.casefold() == term.casefold():
        return AspectSpan(start, end), "term differs in case from the text", f"{claim}: {found!r}"
    if term and text.count(term) == 1:
        place = text.index(term)
        span = AspectSpan(place, place + len(term))
        return span, "wrong offset, mended", f"{claim} but at {span.start}:{span.end}"
    why = "and occurs more than once" if term and term in text else "nor anywhere else in the text"
    there = f"where {found!r} stands" if inside else f"outside the text of {len(text)} characters"
    raise DataError(f"{claim}, {there}, {why}")
