"""How much a slow test does: a tenth of its size, and all of it where CAPSAR_FULL_SIZE is set.

`make stress` sets it. What a tenth cannot show, a committed benchmark does.
"""

from __future__ import annotations

import os

FULL_SIZE = bool(os.environ.get("CAPSAR_FULL_SIZE"))


def sized(full: int) -> int:
    """Return how many of `full` things this run does."""
    return full if FULL_SIZE else full // 10
