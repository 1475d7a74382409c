"""Input rows, and the checks that each row must pass before inference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capsar.errors import DataError
from capsar.schema import find_mentions

if TYPE_CHECKING:
    from capsar.bulk.job import ScoreOptions

SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class InputRow:
    """One record of the input."""

    text: object
    """A string if the record is valid; otherwise bytes that are not UTF-8, or any other value."""
    aspects: object = None
    location: str = ""
    """Position of the record in its file, for error messages, such as `line 3`."""
    error: str = ""
    """Why the record could not be read; empty if it could."""


RowResult = tuple[list[dict[str, Any]] | None, str | None]
"""The aspects of a row, or its error. The part of an error before the first colon is its kind."""


def score_valid_rows(
    rows: Sequence[InputRow],
    options: ScoreOptions,
    score: Callable[[Sequence[InputRow]], list[RowResult]],
) -> list[RowResult]:
    """Call `score` with the valid rows, and return the results of all rows in order."""
    errors = [row.error or validate_row(row, options) for row in rows]
    results = iter(score([row for row, error in zip(rows, errors, strict=True) if not error]))
    return [(None, error) if error else next(results) for error in errors]


def validate_row(row: InputRow, options: ScoreOptions) -> str:
    """Return why a row cannot be scored; an empty string if it can."""
    text = row.text
    if text is None:
        return "null text"
    if isinstance(text, bytes):
        return f"not UTF-8: {_describe_invalid_utf8(text)}"
    if not isinstance(text, str):
        return f"not text: {type(text).__name__}"
    if len(text) > options.max_chars:
        return f"too long: {len(text)} characters, the maximum is {options.max_chars}"
    if not text.isascii() and SURROGATE.search(text):
        return "not UTF-8: unpaired surrogate"
    return "" if options.aspect_column is None else _validate_aspects(text, row.aspects)


def aspect_list(aspects: object) -> list[Any]:
    """Return the aspects of a row as a list; the column holds one aspect or a list per row."""
    is_many = isinstance(aspects, Sequence) and not isinstance(aspects, str | bytes)
    return [*aspects] if is_many else [aspects]  # type: ignore[misc]


def _validate_aspects(text: str, aspects: object) -> str:
    for aspect in aspect_list(aspects):
        if not isinstance(aspect, str):
            return f"invalid aspect: expected a string, got {type(aspect).__name__}"
        try:
            find_mentions(text, aspect)
        except DataError as error:
            return f"aspect not found: {error}"
    return ""


def _describe_invalid_utf8(text: bytes) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} at {error.start}"
    return "bytes"
