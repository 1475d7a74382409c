"""Hints that commands add to errors. This module must not import code that opens test sets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def suggest_check() -> Iterator[None]:
    """Add to the error of a bad record how to list all of them."""
    from capsar.errors import DataError, FormatError

    try:
        yield
    except FormatError as error:
        if error.record == "the file":  # the file cannot be opened, or is invalid as a whole
            raise
        reason = str(error).removesuffix(".")
        raise DataError(
            f"{reason}. Run `capsar data check {error.path}` to list all bad records"
        ) from None
