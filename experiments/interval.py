"""A difference over seeds, and what it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy.stats import t

if TYPE_CHECKING:
    from summary_values import Entry


_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences and its 95 % interval (Student's t)."""

    mean: float
    half_width: float | None
    """Nothing with fewer than two pairs."""
    n: int

    @property
    def verdict(self) -> str:
        """`rises`, `falls`, or `cannot be told` where the interval holds 0; or `too few seeds`."""
        if self.n < _FEWEST or self.half_width is None:
            return "too few seeds"
        if abs(self.mean) <= self.half_width:
            return "cannot be told"
        return "rises" if self.mean > 0 else "falls"


def difference_of(entry: Entry) -> Difference:
    """Return the difference that an entry of the summary holds.

    >>> found = difference_of({"mean": -0.01, "sd": 0.01, "n": 5})
    >>> round(found.half_width, 4), found.verdict
    (0.0124, 'cannot be told')
    """
    n, sd = int(entry["n"]), entry["sd"]
    half: Any = None
    if n > 1 and sd is not None:
        half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Difference(entry["mean"], half, n)
