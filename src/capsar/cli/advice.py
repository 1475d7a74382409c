"""What commands add to an error, so that a user knows what to do next."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def advising_check() -> Iterator[None]:
    """Say of a bad record how to find all of them."""
    from capsar.errors import DataError, FormatError

    try:
        yield
    except FormatError as error:
        if error.record == "the file":  # it cannot be opened, or all of it is wrong
            raise
        told = str(error).removesuffix(".")
        raise DataError(f"{told}. `capsar data check {error.path}` names all that is bad") from None
