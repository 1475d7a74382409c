"""Count the mentions of aspects and themes.

Aspects and themes are *topics*, numbered in this order: themes, then aspects. A mention counts for
its aspect, its theme and the parent of that theme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capsar.reporting.query import fill_keys
from capsar.reporting.statistics import AspectCounts
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from capsar.reporting.query import ScoredFolder
    from capsar.reporting.themes import ReportThemes

NUM_BINS = 20
"""Of the histogram of confidences."""
EXCLUDED = -2
"""The number of aspects whose mentions are not counted."""


def load_keys(
    database: DuckDBPyConnection,
    aspects: Mapping[str, int],
    groups: list[str],
    themes: ReportThemes,
) -> None:
    """Create tables with the numbers of aspect names, of themes and of group values."""
    fill_keys(database, "aspect_key", aspects)
    fill_keys(database, "group_key", {value: number for number, value in enumerate(groups)})
    fill_keys(database, "theme_key", themes.keys)
    database.execute("CREATE OR REPLACE TEMP TABLE theme_topic (theme BIGINT, topic BIGINT)")
    if themes.names:
        database.executemany("INSERT INTO theme_topic VALUES (?, ?)", themes.counted_for)


def load_mentions(
    database: DuckDBPyConnection,
    scored: ScoredFolder,
    batch: list[int],
    by: str | None,
    period_sql: str,
    themes: ReportThemes,
) -> None:
    """Create the table `mention` from some files, and `topic_mention`, a row per topic of each."""
    group = "NULL" if by is None else scored.group(by)
    every = "source.aspects" if themes.has_implicit else scored.mentions
    rows = scored.select(value=group, period=period_sql, mentions=every)
    # Files of earlier releases have neither opinion phrases nor themes.
    has_opinions = "opinions" in scored.columns["aspects"]
    opinions = (
        "[capsar_one.text FOR capsar_one IN found.opinions]" if has_opinions else "NULL::VARCHAR[]"
    )
    classes = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(CLASSES))
    is_implicit = "coalesce(found.implicit, false)" if themes.has_implicit else "false"
    database.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE mention AS
        WITH kept AS (
            SELECT review, value, CAST(coalesce(period, -1) AS SMALLINT) AS period,
                   unnest(mentions) AS found
            FROM {rows}
        )
        SELECT kept.review AS review,
               CAST(coalesce(group_key.number, -1) AS SMALLINT) AS part,
               kept.period AS period,
               CAST(coalesce(aspect_key.number, -1) AS SMALLINT) AS aspect,
               CAST(coalesce(theme_key.number, -1) AS SMALLINT) AS theme,
               {is_implicit} AS implicit,
               CAST(CASE found.polarity {classes} END AS TINYINT) AS polarity,
               found.start AS start,
               {opinions} AS opinions,
               least(found.confidence, found.aspect_confidence) AS confidence
        FROM kept
        LEFT JOIN aspect_key ON aspect_key.name = found.text AND NOT {is_implicit}
        LEFT JOIN group_key ON group_key.name = kept.value
        LEFT JOIN theme_key ON theme_key.name = {themes.key_sql}
        WHERE coalesce(aspect_key.number, -1) <> {EXCLUDED}
        """,  # noqa: S608
        {"files": [scored.files[number] for number in batch]},
    )
    database.execute(
        """CREATE OR REPLACE TEMP TABLE topic_mention AS
           SELECT *, aspect AS topic FROM mention UNION ALL
           SELECT mention.*, CAST(topic AS SMALLINT) FROM mention JOIN theme_topic USING (theme)"""
    )


_PAIRS = [(one, other) for one in range(len(CLASSES)) for other in range(one, len(CLASSES))]


class MentionCounter:
    """Adds up the mentions of batches.

    Along each axis of the counts, the last place is for mentions outside every topic, group or
    period.
    """

    def __init__(
        self,
        num_themes: int,
        num_aspects: int,
        num_groups: int,
        num_periods: int,
        min_confidence: float,
    ) -> None:
        num_topics = num_themes + num_aspects
        self.topics = AspectCounts.zeros(num_topics + 1, num_groups + 1, num_periods + 1)
        """(N + 1, G + 1, P + 1)"""
        self.overall = AspectCounts.zeros(num_groups + 1, num_periods + 1)
        """(G + 1, P + 1) Of all mentions, including those of aspects that are not shown."""
        self.by_theme = np.zeros((num_themes, num_aspects + 1, len(CLASSES)), dtype=np.int64)
        """(T, A + 1, C) The mentions of each aspect that have a theme; last, all others."""
        self.implicit = np.zeros(num_themes, dtype=np.int64)
        """(T) Implicit mentions of each theme."""
        self.confidences = np.zeros(NUM_BINS + 1, dtype=np.int64)
        """Mentions by confidence, in bins of equal width; last, those without a confidence."""
        self._min_confidence = min_confidence

    def add(self, database: DuckDBPyConnection) -> None:
        """Add the content of the tables `mention` and `topic_mention`."""
        self._add_counts(database, self.topics, "topic_mention", "topic, part, period")
        self._add_counts(database, self.overall, "mention", "part, period")
        last = NUM_BINS - 1
        bins = database.execute(
            f"""SELECT CASE WHEN confidence IS NULL THEN {NUM_BINS}
                       ELSE CAST(least(greatest(floor(confidence * {NUM_BINS}), 0), {last}) AS INT)
                       END AS bin, count(*) FROM mention GROUP BY bin"""  # noqa: S608
        ).fetchall()
        for number, mentions in bins:
            self.confidences[number] += mentions
        found = database.execute(
            f"""SELECT theme, CASE WHEN aspect < 0 THEN -1 ELSE aspect - {len(self.by_theme)} END,
                       polarity, count(*), count(*) FILTER (implicit)
                FROM mention WHERE theme >= 0 AND polarity IS NOT NULL GROUP BY ALL"""  # noqa: S608
        ).fetchall()
        for theme, aspect, polarity, mentions, implicit in found:
            self.by_theme[theme, aspect, polarity] += mentions
            self.implicit[theme] += implicit

    def _add_counts(
        self, database: DuckDBPyConnection, counts: AspectCounts, table: str, keys: str
    ) -> None:
        """Add reviews, low-confidence mentions, sums and products, grouped by some keys."""
        numbers = range(len(CLASSES))
        columns = ", ".join(f"count(*) FILTER (polarity = {k}) AS n{k}" for k in numbers)
        sums = ", ".join(f"sum(n{k})" for k in numbers)
        products = ", ".join(f"sum(n{k} * n{other})" for k, other in _PAIRS)
        relation = database.execute(
            f"""SELECT {keys}, count(*), sum(low), {sums}, {products}
                FROM (SELECT {keys}, count(*) FILTER (confidence < $limit) AS low, {columns}
                      FROM {table} GROUP BY {keys}, review)
                GROUP BY {keys}""",  # noqa: S608
            {"limit": self._min_confidence},
        )
        found = list(relation.fetchnumpy().values())
        num_keys = keys.count(",") + 1
        # The number -1 is the last place of an axis, as everywhere in numpy.
        index = tuple(np.asarray(column, dtype=np.int64) for column in found[:num_keys])
        values = [np.asarray(column, dtype=np.float64) for column in found[num_keys:]]
        counts.reviews[index] += values[0]
        counts.low_confidence[index] += values[1]
        counts.mentions[index] += np.stack(values[2 : 2 + len(CLASSES)], axis=-1)
        for (one, other), product in zip(_PAIRS, values[2 + len(CLASSES) :], strict=True):
            counts.products[..., one, other][index] += product
            if one != other:
                counts.products[..., other, one][index] += product
