"""The themes of a report: those that reviews were scored with, or given ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from capsar.themes.matcher import NO_THEME, ThemeMatcher, words_of
from capsar.themes.schema import Themes, as_themes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from capsar.reporting.aspect_names import MergedAspect
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.query import ScoredFolder


@dataclass(frozen=True, slots=True)
class ReportThemes:
    """Themes, and how to find that of a mention."""

    names: tuple[str, ...] = ()
    parents: tuple[int | None, ...] = ()
    """The number of the theme that each one is a part of."""
    keys: Mapping[str, int] = field(default_factory=dict)
    """The number of each theme by its name or, of given themes, by the names of its aspects."""
    key_sql: str = "NULL"
    """The SQL of what to look up in `keys` for the mention `found`."""
    has_implicit: bool = False

    @property
    def counted_for(self) -> list[tuple[int, int]]:
        """Pairs of a theme and itself, and of a theme and its parent."""
        own = [(number, number) for number in range(len(self.names))]
        return own + [
            (number, parent) for number, parent in enumerate(self.parents) if parent is not None
        ]


def scored_themes(database: DuckDBPyConnection, scored: ScoredFolder) -> ReportThemes:
    """Return the themes that a folder was scored with; none if there are none."""
    if not scored.has_implicit:
        return ReportThemes()
    options = scored.job.get("options", {}).get("themes")
    if options:
        themes = Themes.from_dicts(options["themes"])
        return _make(
            themes,
            {name: n for n, name in enumerate(themes.names)},
            "found.theme",
            has_implicit=True,
        )
    rows = database.execute(
        f"""SELECT DISTINCT mention.theme FROM
            (SELECT unnest(mentions) AS mention FROM {scored.select(mentions="source.aspects")})
            WHERE mention.theme IS NOT NULL ORDER BY ALL""",  # noqa: S608
        {"files": scored.files},
    ).fetchall()
    names = tuple(str(name) for (name,) in rows)
    keys = {name: number for number, name in enumerate(names)}
    return ReportThemes(names, (None,) * len(names), keys, "found.theme", bool(names))


def given_themes(options: ReportOptions, aspects: Sequence[MergedAspect]) -> ReportThemes:
    """Sort merged aspects into the themes of the options, by their names alone."""
    themes = as_themes(options.themes or ())
    known = [aspect for aspect in aspects if words_of(aspect.name)]
    words = [words_of(aspect.name) for aspect in known]
    found: list[tuple[int, float]] = []
    if words:
        found, _ = ThemeMatcher(themes, None).match(words, words, np.arange(len(words)), None)
    keys = {
        name: number
        for aspect, (number, _) in zip(known, found, strict=True)
        if number != NO_THEME
        for name in aspect.spellings
    }
    return _make(themes, keys, "found.text", has_implicit=False)


def _make(
    themes: Themes, keys: Mapping[str, int], key_sql: str, *, has_implicit: bool
) -> ReportThemes:
    numbers = {name: number for number, name in enumerate(themes.names)}
    parents = tuple(numbers.get(theme.parent) for theme in themes.themes)
    return ReportThemes(themes.names, parents, keys, key_sql, has_implicit)
