"""The one door to data files: find the format of a file, and read it as examples."""

from __future__ import annotations

import logging
import re
import zipfile
import zlib
from enum import StrEnum
from lzma import LZMAError
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, Literal

from capsar.data.example import Example
from capsar.data.formats.arts import read_arts
from capsar.data.formats.bing_liu import read_bing_liu
from capsar.data.formats.plain import read_plain
from capsar.data.formats.tables import (
    Columns,
    read_csv,
    read_csv_texts,
    read_jsonl,
    read_jsonl_texts,
)
from capsar.data.formats.three_line import read_three_line
from capsar.data.formats.xml import read_xml
from capsar.data.rows import read_lines
from capsar.errors import ConfigError, DataError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from capsar.data.rows import Row

_LOG = logging.getLogger(__name__)
_SNIFFED_BYTES = 64 * 2**10
_BING_LIU_LINE = re.compile(rb"\[[+-]\d\][^\n#]*+##")


class Format(StrEnum):
    """How a file is written."""

    XML = "xml"
    ARTS = "arts"
    THREE_LINE = "three-line"
    BING_LIU = "bing-liu"
    CSV = "csv"
    JSONL = "jsonl"
    PLAIN = "plain"


_BY_SUFFIX = {
    ".xml": Format.XML,
    ".json": Format.ARTS,
    ".raw": Format.THREE_LINE,
    ".seg": Format.THREE_LINE,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".unlabel": Format.PLAIN,
}
_NO_LINES = (".parquet", ".pq", ".gz", ".bz2", ".zst", ".lz4", ".xz", ".zip", ".xls", ".xlsx")
"""Endings of files whose lines are no texts."""


def find_format(path: Path) -> Format:
    """Return how a file is written, from its name and, for `.txt` and `.zip`, its first lines.

    Raises:
        FormatError: If the name says nothing, or the file cannot be opened.
    """
    suffix = path.suffix.lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if suffix not in (".txt", ".zip"):
        known = ", ".join([*_BY_SUFFIX, ".txt", ".zip"])
        raise FormatError(str(path), "the file", f"unknown ending {suffix!r}; known are {known}")
    try:
        start = _first_bytes(path, in_zip=suffix == ".zip")
    except (OSError, *_ZIP_ERRORS) as error:
        raise FormatError(str(path), "the file", f"cannot be opened: {error}") from error
    if b"$T$" in start:
        return Format.THREE_LINE
    return Format.BING_LIU if _BING_LIU_LINE.search(start) else Format.PLAIN


def read_rows(
    path: Path,
    *,
    format: Format | None = None,  # noqa: A002  (the word users know)
    columns: Columns = Columns(),
    encoding: str = "utf-8",
) -> Iterator[Row]:
    """Yield everything a file holds: examples, notices about them, bad records as error values.

    Memory does not grow with the file (but for ARTS, one JSON object), and nothing but a
    `FormatError` ever comes of its content.

    Raises:
        ConfigError: If the format or the encoding is not known.
    """
    if format not in (None, *Format):
        raise ConfigError(f"Unknown format {format!r}; known are {', '.join(Format)}")
    if "\0" in str(path):
        yield FormatError(repr(str(path)), "the file", "a file's name cannot hold a null character")
        return
    try:
        found = Format(format or find_format(path))
        if path.suffix.lower() == ".zip":
            yield from _read_zip(path, found, columns)
            return
        with path.open("rb") as stream:
            yield from _read_stream(stream, path, found, columns, encoding)
    except FormatError as error:
        yield error
    except OSError as error:
        yield FormatError(str(path), "the file", f"cannot be read: {error}")


def read_examples(
    path: Path,
    *,
    format: Format | None = None,  # noqa: A002
    columns: Columns = Columns(),
    encoding: str = "utf-8",
    errors: Literal["raise", "skip"] = "raise",
) -> Iterator[Example]:
    """Yield the examples of a file.

    Args:
        path: The file.
        format: How it is written; found from its name and first lines if not given.
        columns: What a CSV or JSONL file calls each field.
        encoding: Of a CSV, JSONL or plain file.
        errors: `"raise"` stops at the first bad record; `"skip"` passes over bad records and logs
            their number once.

    Raises:
        FormatError: At the first bad record, naming file, record and reason.
    """
    if errors not in ("raise", "skip"):
        raise ConfigError(f"errors must be 'raise' or 'skip', got {errors!r}")
    skipped = 0
    for row in read_rows(path, format=format, columns=columns, encoding=encoding):
        if isinstance(row, Example):
            yield row
        elif isinstance(row, FormatError):
            if errors == "raise":
                raise row
            skipped += 1
    if skipped:
        _LOG.warning(
            "%s: %d bad records passed over; `capsar data check` names them", path, skipped
        )


def read_texts(
    stream: BinaryIO, path: str, *, column: str = "text", encoding: str = "utf-8"
) -> Iterator[str]:
    """Yield the texts of a file, labelled or not: a column of CSV or JSON Lines, or its lines.

    Args:
        stream: The file, opened.
        path: Its name, which tells how it is written.
        column: The one of a CSV or JSON Lines file that holds texts.
        encoding: Of the file.

    Raises:
        DataError: If it is a file of some other kind.
        FormatError: At the first record that cannot be read.
    """
    suffix = PurePath(path).suffix.lower()
    texts: Iterator[str | FormatError]
    match _BY_SUFFIX.get(suffix, Format.PLAIN):
        case Format.CSV:
            delimiter = "\t" if suffix == ".tsv" else None
            texts = read_csv_texts(
                stream, path, column=column, encoding=encoding, delimiter=delimiter
            )
        case Format.JSONL:
            texts = read_jsonl_texts(stream, path, column=column, encoding=encoding)
        case Format.PLAIN if suffix not in _NO_LINES:
            texts = (
                line.error or line.text for line in read_lines(stream, path, encoding=encoding)
            )
        case _:
            raise DataError(
                f"{path!r} is not read text by text: give CSV, TSV or JSON Lines, or a text a "
                "line. `capsar score` reads Parquet and compressed files, too."
            )
    for text in texts:
        if isinstance(text, FormatError):
            raise text
        yield text


def _read_stream(
    stream: BinaryIO,
    path: Path,
    found: Format,
    columns: Columns,
    encoding: str,
    member: str = "",
) -> Iterator[Row]:
    name = str(path)
    match found:
        case Format.XML:
            return read_xml(stream, name)
        case Format.ARTS:
            return read_arts(stream, name)
        case Format.THREE_LINE:
            return read_three_line(stream, name, encoding=encoding)
        case Format.BING_LIU:
            return read_bing_liu(stream, name, member=member)
        case Format.JSONL:
            return read_jsonl(stream, name, columns=columns, encoding=encoding)
        case Format.PLAIN:
            return read_plain(stream, name, member=member, encoding=encoding)
        case Format.CSV:
            delimiter = "\t" if path.suffix.lower() == ".tsv" else None
            return read_csv(stream, name, columns=columns, encoding=encoding, delimiter=delimiter)


# What the zipfile module is known to raise on a damaged, encrypted or exotic archive.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
)


def _members(archive: zipfile.ZipFile) -> list[str]:
    return sorted(
        name
        for name in archive.namelist()
        if name.endswith(".txt") and not name.rsplit("/", 1)[-1].lower().startswith("readme")
    )


def _read_zip(path: Path, found: Format, columns: Columns) -> Iterator[Row]:
    """Read the text files of an archive, straight out of it."""
    member = "the archive"
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            if not members:
                yield FormatError(str(path), member, "no .txt file in it; unpack other formats")
            for member in members:
                encoding = "latin-1" if found is Format.PLAIN else "utf-8"
                with archive.open(member) as stream:
                    yield from _read_stream(
                        stream,  # type: ignore[arg-type]
                        path,
                        found,
                        columns,
                        encoding,
                        member,
                    )
    except _ZIP_ERRORS as error:
        yield FormatError(str(path), member, f"the archive is damaged or not supported: {error}")


def _first_bytes(path: Path, *, in_zip: bool) -> bytes:
    if not in_zip:
        with path.open("rb") as stream:
            return stream.read(_SNIFFED_BYTES)
    with zipfile.ZipFile(path) as archive:
        for member in _members(archive):
            with archive.open(member) as stream:
                return stream.read(_SNIFFED_BYTES)
    return b""
