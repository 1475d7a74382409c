"""Sizes of slow tests: a tenth of the full size unless CAPSAR_FULL_SIZE is set (`make stress`).

Committed benchmarks cover the full size.
"""

from __future__ import annotations

import os

FULL_SIZE = bool(os.environ.get("CAPSAR_FULL_SIZE"))


def sized(full: int) -> int:
    """Return the size of a test in this run."""
    return full if FULL_SIZE else full // 10
