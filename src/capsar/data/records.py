"""What all readers share: the items they yield, text lines, encodings and labels.

A bad record is *yielded* as a `FormatError`, not raised, so that one bad record does not hide the
rest of the file. The caller decides whether to raise, skip or list it. A `FormatError` is raised
only when the file as a whole cannot be read.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from capsar.errors import ConfigError, DataError, FormatError
from capsar.schema import Example, parse_polarity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.schema import Polarity

MAX_RECORD_BYTES = 16 * 2**20
"""A longer record is damaged or hostile, and refused before it fills memory."""
UTF_16 = "the file seems to be UTF-16; save it as UTF-8"


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark about a record that was read successfully."""

    record: str
    kind: str
    detail: str = ""


ReadItem = Example | Notice | FormatError


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text file, and its number from 1."""

    number: int
    text: str
    """Without its line break; if `error` is set, the part that could be decoded."""
    ending: str
    error: FormatError | None = None


def recover(items: Iterator[ReadItem]) -> Iterator[ReadItem]:
    """Yield the items of one record; if reading it raises a `FormatError`, yield the error."""
    try:
        yield from items
    except FormatError as error:
        yield error


def read_lines(stream: BinaryIO, path: str, *, encoding: str = "utf-8") -> Iterator[Line]:
    r"""Yield the lines of a file in bounded memory; a line that cannot be read carries its error.

    Lines end at `\n` or `\r\n` only: a form feed or a Unicode line separator is part of the text.

    Raises:
        ConfigError: If the encoding cannot be used.
    """
    encoding = normalize_encoding(encoding)
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
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
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


def normalize_encoding(encoding: str) -> str:
    """Return the canonical name of an encoding.

    Raises:
        ConfigError: If it is unknown, or its line feed is longer than one byte.
    """
    try:
        name = codecs.lookup(encoding).name
        line_feed = "\n".encode(name)
    except (LookupError, UnicodeError):
        raise ConfigError(f"Unknown encoding {encoding!r}; try utf-8, latin-1 or cp1252") from None
    if name == "utf-8-sig":
        return "utf-8"  # `read_lines` removes a byte order mark in any case
    if line_feed != b"\n":
        raise ConfigError(f"Files in {encoding!r} cannot be read by line; save them as UTF-8")
    return name


def describe_decode_error(error: UnicodeDecodeError, encoding: str = "utf-8") -> str:
    """Return which byte cannot be decoded, and what to do about it."""
    if error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UTF_16
    # cp1252 and latin-1 agree on text that is valid in both; only cp1252 has curly quotes.
    example = ", for example --encoding cp1252" if encoding == "utf-8" else ""
    return (
        f"byte 0x{error.object[error.start]:02x} at position {error.start} is not valid "
        f"{encoding}; save the file as UTF-8 or pass its encoding{example}"
    )


def parse_label(path: str, record: str, value: str) -> Polarity:
    """Return the polarity that a file writes as `value`.

    Raises:
        FormatError: If it is not a polarity.
    """
    try:
        return parse_polarity(value)
    except DataError as error:
        raise FormatError(path, record, str(error)) from error
