"""What a report is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsar.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

UNITS = ("day", "week", "month", "quarter", "year")
"""How long a period may be."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is compared, and how much is shown."""

    by: str | None = None
    """A kept column whose values are compared, as products are."""
    over: str | None = None
    """A kept column that holds dates."""
    every: str | None = None
    """How long a period is; by default what fits the dates."""
    date_format: str | None = None
    """How dates are written, as `%d.%m.%Y`; by default as ISO 8601, or as seconds since 1970."""
    text_column: str | None = None
    """The kept column that holds the reviews; by default the one that was scored."""
    model: str | Path | None = None
    """The model that scored, for its confusion and its limits; by default found if it ships."""
    confusion: str | Path | None = None
    """What `capsar evaluate --json` wrote; by default what the model says of itself."""
    min_confidence: float = 0.5
    """Answers that are less sure are counted as unsure, and not shown as examples."""
    aspects: int = 60
    """How many aspects are shown, the most mentioned first."""
    groups: int = 12
    """How many values of `by` are compared, the most frequent first."""
    memory_mb: int = 1000
    """What DuckDB may use; beyond it, it writes to the disk."""
    threads: int = 0
    """CPU threads; 0 for one a processor."""
    title: str = ""

    def __post_init__(self) -> None:
        if self.every is not None and self.every not in UNITS:
            raise ConfigError(f"A period is one of {', '.join(UNITS)}; got {self.every!r}")
        for name in ("every", "date_format"):
            if getattr(self, name) is not None and self.over is None:
                raise ConfigError(
                    f"{name} says how dates are read; give the column of dates (over)"
                )
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence is from 0 to 1, got {self.min_confidence}")
        for name, least in (("aspects", 1), ("groups", 2), ("memory_mb", 200), ("threads", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be {least} or more, got {getattr(self, name)}")
