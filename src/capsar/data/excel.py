"""Read the first sheet of an Excel file (.xlsx) as rows of text."""

from __future__ import annotations

import warnings
import zipfile
from datetime import date, datetime, time
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from capsar.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

SAVE_AS = "open it in Excel and save it as .xlsx or CSV"
MAX_EXPANDED_BYTES = 512 * 2**20
"""Size of all parts of a file, decompressed. A sheet of 100,000 reviews has about 60 MB."""
_MAX_RATIO = 100
"""A larger part than this times its compressed size is a zip bomb; usual ratios are 3 to 15."""
_MAX_ROWS = 2**20
"""What a sheet can have. A larger row number is hostile: the rows before it would be filled in."""
_BATCH_ROWS = 1000
_OLE_SIGNATURE = bytes.fromhex("d0cf11e0a1b11ae1")

SheetRow = tuple[int, list[str | None]]
"""The number of a row from 1, and its values; `None` is an empty cell."""


def read_sheet(stream: BinaryIO, path: str) -> Iterator[SheetRow]:
    """Yield the rows of the first sheet that are not empty.

    Numbers and dates become text: `5`, `0.5`, `TRUE`, `2026-03-01`, `2026-03-01T14:30:00`. The
    value of a formula is the one that was saved with the file.

    Raises:
        FormatError: If the file is not a workbook, or is damaged, encrypted or too large.
        MissingExtraError: If the extra `analyst` is not installed.
    """
    rows = _read_rows(stream, path)
    batch: list[SheetRow] | None = None
    while batch is None or batch:
        with warnings.catch_warnings():  # about formatting, which is not read
            warnings.simplefilter("ignore")
            batch = list(islice(rows, _BATCH_ROWS))
        yield from batch


def _read_rows(stream: BinaryIO, path: str) -> Iterator[SheetRow]:
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.escape import unescape
    except ImportError as error:
        raise MissingExtraError("analyst", "Reading Excel files") from error
    try:
        _check_archive(stream, path)
        book = load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        if not book.worksheets:
            raise ValueError("no sheet in it")  # also if its XML has the namespaces of ISO Strict
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # those in the file are often wrong
        rows = sheet.iter_rows(max_row=_MAX_ROWS, values_only=True)
        for number, cells in enumerate(rows, start=1):
            values = [unescape(_as_text(cell)) or None for cell in cells]
            if any(values):
                yield number, values
    except (OSError, FormatError):
        raise
    except Exception as error:  # openpyxl raises whatever a malformed part causes
        reason = f"not a readable workbook ({error.__cause__ or error}); {SAVE_AS}"
        raise FormatError(path, "the file", reason) from error


def _check_archive(stream: BinaryIO, path: str) -> None:
    """Raise a FormatError for zip bombs and other formats, before a sheet is decompressed."""
    if stream.read(len(_OLE_SIGNATURE)) == _OLE_SIGNATURE:
        reason = f"encrypted, or in the old format .xls; {SAVE_AS}, without a password"
        raise FormatError(path, "the file", reason)
    with zipfile.ZipFile(stream) as archive:
        parts = archive.infolist()
        is_bomb = any(p.file_size > max(2**20, _MAX_RATIO * p.compress_size) for p in parts)
        if is_bomb or sum(part.file_size for part in parts) > MAX_EXPANDED_BYTES:
            reason = f"decompressed, it is larger than {MAX_EXPANDED_BYTES >> 20} MiB or than "
            reason += f"{_MAX_RATIO} times its compressed size; save it as CSV"
            raise FormatError(path, "the file", reason)
        if b"sheet.main+xml" not in archive.read("[Content_Types].xml"):
            raise FormatError(path, "the file", f"not a workbook in the format .xlsx; {SAVE_AS}")


def _as_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case float():
            return f"{value:.15g}"  # the digits that Excel shows: 0.3, not 0.30000000000000004
        case datetime() if value.time() == time.min:
            return value.date().isoformat()
        case date() | time():
            return value.isoformat()
    return str(value)
