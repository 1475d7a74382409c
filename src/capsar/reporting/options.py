"""Options of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsar.themes.schema import Theme, Themes

UNITS = ("day", "week", "month", "quarter", "year")
"""Possible lengths of a period."""
_LIMITS = {
    "aspects": (1, 2000),
    "groups": (2, 200),
    "memory_mb": (200, 10**9),
    "threads": (0, 10**4),
}
DROPS = ("duplicates", "non-english")
"""Kinds of reviews that can be dropped."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report compares and how much it shows."""

    by: str | None = None
    """A kept column whose values are compared, for example the product."""
    over: str | None = None
    """A kept column of dates."""
    every: str | None = None
    """Length of a period; by default chosen to fit the dates."""
    date_format: str | None = None
    """Format of the dates, such as `%d.%m.%Y`; by default ISO 8601 or seconds since 1970."""
    rating: str | None = None
    """A kept column of numbers, such as stars, to estimate how it differs with each theme."""
    themes: Themes | Sequence[Theme] | str | Path | None = None
    """Themes, a `themes.toml` or the name of ready-made ones, to sort aspects into by their names;
    by default the themes that the reviews were scored with."""
    exclude: tuple[str, ...] = ()
    """Aspects whose mentions are not counted."""
    drop: tuple[str, ...] = ()
    """Reviews that are not counted: `duplicates`, `non-english`."""
    text_column: str | None = None
    """The kept column with the reviews; by default the one that was scored."""
    model: str | Path | None = None
    """The model that scored, for its metrics and limits; a bundled model is found by itself."""
    min_confidence: float = 0.5
    """Mentions below it count as low-confidence and are not shown as examples."""
    aspects: int = 60
    """Number of aspects to show, most mentioned first."""
    groups: int = 30
    """Number of values of `by` to compare, most frequent first."""
    memory_mb: int = 1000
    """Memory limit of DuckDB; beyond it, DuckDB writes to a temporary folder."""
    threads: int = 0
    """CPU threads; 0 for one per processor."""
    title: str = ""

    def __post_init__(self) -> None:
        if self.every is not None and self.every not in UNITS:
            raise ConfigError(f"every must be one of {', '.join(UNITS)}; got {self.every!r}")
        for name in ("every", "date_format"):
            if getattr(self, name) is not None and self.over is None:
                raise ConfigError(f"{name} needs a column of dates; set over as well")
        self._check_lists()
        if not 0 <= self.min_confidence <= 1:
            raise ConfigError(f"min_confidence must be from 0 to 1, got {self.min_confidence}")
        for name, (least, most) in _LIMITS.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be {least} or more, got {getattr(self, name)}")
            if getattr(self, name) > most:
                raise ConfigError(f"{name} must be {most} or less, got {getattr(self, name)}")

    def _check_lists(self) -> None:
        for name in ("exclude", "drop"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise ConfigError(f"{name} must be a list of names, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        unknown = [one for one in self.drop if one not in DROPS]
        if unknown:
            raise ConfigError(f"drop must be among {', '.join(DROPS)}; got {unknown[0]!r}")
