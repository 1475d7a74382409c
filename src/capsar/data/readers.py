"""Find the format of a data file, and read it as examples."""

from __future__ import annotations

import logging
import re
import sys
import zipfile
import zlib
from enum import StrEnum
from itertools import chain
from lzma import LZMAError
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, Literal

from capsar.data.excel import SAVE_AS
from capsar.data.formats import read_arts, read_bing_liu, read_plain, read_three_line, read_xml
from capsar.data.records import read_lines
from capsar.data.tables import (
    COMPRESSIONS,
    HEADER,
    TABLES,
    Columns,
    missing_column,
    open_stream,
    open_table,
    read_table,
    table_format,
)
from capsar.errors import ConfigError, DataError, FormatError
from capsar.schema import Example

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from capsar.data.records import ReadItem

_LOG = logging.getLogger(__name__)
_SNIFFED_BYTES = 64 * 2**10
_BING_LIU_LINE = re.compile(rb"\[[+-]\d\][^\n#]*+##")


class Format(StrEnum):
    """The format of a data file."""

    XML = "xml"
    ARTS = "arts"
    THREE_LINE = "three-line"
    BING_LIU = "bing-liu"
    CSV = "csv"
    XLSX = "xlsx"
    JSONL = "jsonl"
    PARQUET = "parquet"
    PLAIN = "plain"


_BY_SUFFIX = {
    ".xml": Format.XML,
    ".json": Format.ARTS,
    ".raw": Format.THREE_LINE,
    ".seg": Format.THREE_LINE,
    ".unlabel": Format.PLAIN,
}
_NOT_LINES = (".xml", ".raw", ".seg", ".parquet", ".pq", ".xlsx", ".xls", ".zip", ".xz", ".tar")
# What the zipfile module is known to raise on a damaged, encrypted or exotic archive.
_ZIP_ERRORS: tuple[type[Exception], ...] = (
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


def find_format(path: Path) -> Format:
    """Return the format of a file, from its suffix and, for `.txt` and `.zip`, its first lines.

    Raises:
        FormatError: If the suffix is unknown, or the file cannot be opened.
    """
    kind, compression = table_format(path.name)
    suffix = PurePath(path.stem if compression else path.name).suffix.lower()
    if found := _BY_SUFFIX.get(suffix) or kind:
        return Format(found)
    if suffix != ".txt" and path.suffix.lower() != ".zip":
        endings = dict.fromkeys([*_BY_SUFFIX, *chain(*TABLES.values()), ".txt", ".zip"])
        known = f"{', '.join(endings)}; text files can be followed by {', '.join(COMPRESSIONS)}"
        hint = f"; {SAVE_AS}" if suffix == ".xls" else ""
        reason = f"unknown suffix {suffix!r}; known are {known}{hint}"
        raise FormatError(str(path), "the file", reason)
    try:
        start = _read_start(path)
    except _ZIP_ERRORS + _read_errors() as error:
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
    labeled: bool = False,
) -> Iterator[ReadItem]:
    """Yield what a file holds: examples, notices about them, and bad records as error values.

    Memory does not grow with the file (except for ARTS, which is one JSON object), and no content
    raises an exception. See `read_examples` for the arguments.

    Raises:
        ConfigError: If the format or the encoding is unknown.
    """
    if format not in (None, *Format):
        raise ConfigError(f"Unknown format {format!r}; known are {', '.join(Format)}")
    if "\0" in str(path):
        yield FormatError(repr(str(path)), "the file", "a file name cannot hold a null character")
        return
    try:
        found = Format(format or find_format(path))
        if path.suffix.lower() == ".zip":
            yield from _read_zip(path, found)
            return
        with path.open("rb") as file, open_stream(file, table_format(path.name)[1]) as stream:
            if found in TABLES:
                yield from read_table(
                    stream,
                    str(path),
                    kind=found,
                    columns=columns,
                    encoding=encoding,
                    labeled=labeled,
                )
            else:
                yield from _read_stream(stream, str(path), found, encoding)
    except FormatError as error:
        yield error
    except DataError as error:
        yield FormatError(str(path), "the file", str(error))
    except _read_errors() as error:
        yield FormatError(str(path), "the file", f"cannot be read: {error}")


def _read_errors() -> tuple[type[Exception], ...]:
    """Return what reading a damaged file raises; Arrow reads Parquet and compressed files."""
    arrow = sys.modules.get("pyarrow")
    return (OSError, arrow.ArrowException) if arrow else (OSError,)


def read_examples(
    path: Path,
    *,
    format: Format | None = None,  # noqa: A002
    columns: Columns = Columns(),
    encoding: str = "utf-8",
    labeled: bool = False,
    errors: Literal["raise", "skip"] = "raise",
) -> Iterator[Example]:
    """Yield the examples of a file.

    Args:
        path: The file.
        format: Its format; inferred from its suffix and first lines if not given.
        columns: The column or field names of a table.
        encoding: The encoding of a CSV, JSON Lines, three-line or plain file.
        labeled: Whether a table without labels is an error.
        errors: `"raise"` stops at the first bad record; `"skip"` skips bad records and logs
            their number once.

    Raises:
        FormatError: At the first bad record, with file, record and reason.
    """
    if errors not in ("raise", "skip"):
        raise ConfigError(f"errors must be 'raise' or 'skip', got {errors!r}")
    skipped = 0
    for row in read_rows(path, format=format, columns=columns, encoding=encoding, labeled=labeled):
        if isinstance(row, Example):
            yield row
        elif isinstance(row, FormatError):
            if errors == "raise":
                raise row
            skipped += 1
    if skipped:
        _LOG.warning("%s: skipped %d bad records; `capsar data check` lists them", path, skipped)


def read_texts(
    stream: BinaryIO, path: str, *, column: str = "text", encoding: str = "utf-8"
) -> Iterator[str]:
    """Yield the texts of a file, labeled or not: a column of a table, a field, or its lines.

    Args:
        stream: The opened file.
        path: Its name, which gives format and compression; one text per line if unknown.
        column: The column, or the field of JSON Lines, that holds the texts.
        encoding: The encoding of the file.

    Raises:
        DataError: If the format has no texts by row or line.
        FormatError: At the first record that cannot be read.
    """
    kind, compression = table_format(path)
    name = PurePath(path.lower())
    if not kind and (name.with_suffix("") if compression else name).suffix in _NOT_LINES:
        raise DataError(
            f"Cannot read texts from {path!r}: expected CSV, TSV, Excel (.xlsx), Parquet or JSON "
            "Lines, or one text per line."
        )
    try:
        stream = open_stream(stream, compression)
        if kind:
            header, records = open_table(
                stream, path, kind=kind, encoding=encoding, columns=(column,)
            )
            if header is not None and column not in header:
                raise FormatError(path, HEADER[kind], missing_column(column, header, "text"))
            texts = (_text_field(values, column, path, record) for record, values in records)
        else:
            texts = (
                line.error or line.text for line in read_lines(stream, path, encoding=encoding)
            )
        for text in texts:
            if isinstance(text, FormatError):
                raise text
            yield text
    except _read_errors() as error:
        raise FormatError(path, "the file", f"cannot be read: {error}") from error


def _text_field(
    values: dict[str, object] | FormatError, column: str, path: str, record: str
) -> str | FormatError:
    if isinstance(values, FormatError):
        return values
    if column not in values:
        reason = missing_column(column, list(values), "text", kind="field")
        return FormatError(path, record, reason)
    text = values[column] or ""
    if isinstance(text, str):
        return text
    reason = f"the field {column!r} must hold text, got {type(text).__name__}"
    return FormatError(path, record, reason)


def _read_stream(
    stream: BinaryIO, path: str, found: Format, encoding: str, member: str = ""
) -> Iterator[ReadItem]:
    match found:
        case Format.XML:
            return read_xml(stream, path)
        case Format.ARTS:
            return read_arts(stream, path)
        case Format.THREE_LINE:
            return read_three_line(stream, path, encoding=encoding)
        case Format.BING_LIU:
            return read_bing_liu(stream, path, member=member)
        case _:
            return read_plain(stream, path, member=member, encoding=encoding)


def _read_zip(path: Path, found: Format) -> Iterator[ReadItem]:
    """Read the text files of an archive without unpacking it."""
    member = "the archive"
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive)
            if not members:
                raise FormatError(str(path), member, "no .txt file in it; unpack other formats")
            for member in members:
                encoding = "latin-1" if found is Format.PLAIN else "utf-8"
                with archive.open(member) as stream:
                    yield from _read_stream(stream, str(path), found, encoding, member)  # type: ignore[arg-type]
    except FormatError:
        raise
    except _ZIP_ERRORS as error:
        reason = f"the archive is damaged or not supported: {error}"
        raise FormatError(str(path), member, reason) from error


def _members(archive: zipfile.ZipFile) -> list[str]:
    return sorted(
        name
        for name in archive.namelist()
        if name.endswith(".txt") and not name.rsplit("/", 1)[-1].lower().startswith("readme")
    )


def _read_start(path: Path) -> bytes:
    """Return the first bytes of a file, or of the first text file of an archive."""
    if path.suffix.lower() != ".zip":
        with path.open("rb") as file, open_stream(file, table_format(path.name)[1]) as stream:
            return stream.read(_SNIFFED_BYTES)
    with zipfile.ZipFile(path) as archive:
        for member in _members(archive):
            with archive.open(member) as stream:
                return stream.read(_SNIFFED_BYTES)
    return b""
