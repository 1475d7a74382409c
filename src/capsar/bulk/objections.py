"""Rows that cannot be asked about, and why: found before any model sees them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from capsar.data.example import find_spans
from capsar.errors import DataError

if TYPE_CHECKING:
    from capsar.bulk.job import ScoreOptions
    from capsar.bulk.readers import Row

Answer = tuple[list[dict[str, Any]] | None, str | None]
"""A row's aspects, or why it has none. What stands before the first colon is the error's kind."""
SURROGATE = re.compile("[\ud800-\udfff]")


def answer_askable(
    rows: Sequence[Row], options: ScoreOptions, ask: Callable[[Sequence[Row]], list[Answer]]
) -> list[Answer]:
    """Ask about the rows that nothing is wrong with, and answer all of them, in order."""
    errors = [row.error or objection(row, options) for row in rows]
    answers = iter(ask([row for row, error in zip(rows, errors, strict=True) if not error]))
    return [(None, error) if error else next(answers) for error in errors]


def objection(row: Row, options: ScoreOptions) -> str:
    """Say why a row cannot be asked about; nothing if it can."""
    text = row.text
    if text is None:
        return "null text"
    if isinstance(text, bytes):
        return f"not UTF-8: {_where_not_utf8(text)}"
    if not isinstance(text, str):
        return f"not text: {type(text).__name__}"
    if len(text) > options.max_chars:
        return f"too long: {len(text)} characters, at most {options.max_chars}"
    if not text.isascii() and SURROGATE.search(text):
        return "not UTF-8: half of a surrogate pair"
    return "" if options.aspect_column is None else _objection_to_aspects(text, row.aspects)


def aspect_list(aspects: object) -> list[Any]:
    """Return aspects as a list: a column may hold one a row, or many."""
    is_many = isinstance(aspects, Sequence) and not isinstance(aspects, str | bytes)
    return [*aspects] if is_many else [aspects]  # type: ignore[misc]


def _objection_to_aspects(text: str, aspects: object) -> str:
    for aspect in aspect_list(aspects):
        if not isinstance(aspect, str):
            return f"no aspect: {type(aspect).__name__} in its place"
        try:
            find_spans(text, aspect)
        except DataError as error:
            return f"aspect not found: {error}"
    return ""


def _where_not_utf8(text: bytes) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} at {error.start}"
    return "bytes"
