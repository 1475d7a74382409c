"""Unlabelled text: one review or sentence a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import Example
from capsar.data.rows import Row, read_lines

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_plain(
    stream: BinaryIO, path: str, *, member: str = "", encoding: str = "utf-8"
) -> Iterator[Row]:
    """Yield every line of a file as an example without a label."""
    for line in read_lines(stream, path, encoding=encoding):
        if line.error:
            yield line.error
            continue
        record = f"line {line.number}"
        record = f"{member}, {record}" if member else record
        yield Example(line.text, id=record, group=record)
