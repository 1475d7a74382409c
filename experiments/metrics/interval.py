"""Intervals of differences over seeds (Student's t), and whether they are significant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.stats import t

_MIN_SEEDS = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference over seeds and its 95 % interval."""

    mean: float
    half_width: float | None
    """None with fewer than two seeds."""
    n: int

    @property
    def verdict(self) -> str:
        """`higher` or `lower` only if the interval excludes zero."""
        if self.n < _MIN_SEEDS or self.half_width is None:
            return "too few seeds"
        if abs(self.mean) <= self.half_width:
            return "not significantly different"
        return "higher" if self.mean > 0 else "lower"


def difference_of(entry: dict[str, Any]) -> Difference:
    """Return the difference that an entry of the summary holds.

    >>> found = difference_of({"mean": -0.01, "sd": 0.01, "n": 5})
    >>> round(found.half_width, 4), found.verdict
    (0.0124, 'not significantly different')
    """
    n, sd = int(entry["n"]), entry["sd"]
    half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n) if n > 1 and sd is not None else None
    return Difference(entry["mean"], half, n)


def gap_to_paper(entry: dict[str, Any]) -> Difference:
    """Return the difference between our mean and the single value that the paper prints."""
    own = difference_of(entry)
    return Difference(own.mean - entry["paper"], own.half_width, own.n)
