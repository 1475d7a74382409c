"""Scored rows -> tallies by aspect, product and period; one batch of files after the other.

The memory that counting takes is that of a batch and of the tallies, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.labels import CLASSES
from capsar.reporting.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

    from capsar.reporting.calendar import Calendar
    from capsar.reporting.merging import Aspect
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.scored import Scored

MOST_NAMES = 100_000
"""Names beyond these, the rarest, are counted and not merged."""
BINS = 20
FILE = "capsar_file"
"""The column that tells the file of a row; kept columns have other names."""
ROW_BITS = 40
"""The number of a review is that of its file, and in so many lower bits that of its row."""
_OTHER = "CAST(-1 AS SMALLINT)"


@dataclass(frozen=True, slots=True)
class Totals:
    """What a corpus holds as a whole."""

    rows: int
    errors: list[tuple[str, int]]
    """Rows without an answer, by kind."""
    without_aspect: int
    mentions: int
    names: dict[str, int]
    """Aspects as they are written, the most frequent ones."""
    num_names: int
    groups: list[str] = field(default_factory=list)
    """Values that are compared: the most frequent ones, in the order of the alphabet."""
    num_groups: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """Tallies of all aspects (A, G + 1, P + 1); the last of each is what belongs to none."""

    aspects: Tally
    everything: Tally
    """(G + 1, P + 1) Of all mentions, those of rarer aspects too."""
    surety: list[int]
    """Mentions by how sure they are, in bins of equal width from 0 to 1."""
    without_surety: int


def count_totals(database: DuckDBPyConnection, scored: Scored, options: ReportOptions) -> Totals:
    """Count rows, errors, names and groups."""
    source = {"files": scored.files}
    rows, without = database.execute(
        """SELECT count(*), count(*) FILTER (error IS NULL AND coalesce(len(aspects), 0) = 0)
           FROM read_parquet($files)""",
        source,
    ).fetchall()[0]
    errors = database.execute(
        """SELECT split_part(error, ':', 1), count(*) FROM read_parquet($files)
           WHERE error IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20""",
        source,
    ).fetchall()
    database.execute(
        """CREATE TEMP TABLE name AS
           SELECT mention.surface AS surface, count(*) AS number
           FROM (SELECT unnest(aspects) AS mention FROM read_parquet($files) WHERE error IS NULL)
           GROUP BY ALL""",
        source,
    )
    num_names, mentions = database.execute(
        "SELECT count(*), coalesce(sum(number), 0) FROM name"
    ).fetchall()[0]
    names = database.execute(
        "SELECT surface, number FROM name ORDER BY number DESC, surface LIMIT $most",
        {"most": MOST_NAMES},
    ).fetchall()
    database.execute("DROP TABLE name")
    groups: list[tuple[str, int]] = []
    num_groups = 0
    if options.by is not None:
        column = scored.column(options.by, "--by")
        groups = database.execute(
            f"""SELECT CAST({column} AS VARCHAR), count(*)
                FROM read_parquet($files) WHERE error IS NULL AND {column} IS NOT NULL
                GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {options.groups}""",  # noqa: S608
            source,
        ).fetchall()
        num_groups = database.execute(
            f"SELECT approx_count_distinct({column}) FROM read_parquet($files)",  # noqa: S608
            source,
        ).fetchall()[0][0]
    return Totals(
        rows=int(rows),
        errors=[(str(kind), int(number)) for kind, number in errors],
        without_aspect=int(without),
        mentions=int(mentions),
        names={str(surface): int(number) for surface, number in names},
        num_names=int(num_names),
        groups=sorted(str(value) for value, _ in groups),
        num_groups=max(int(num_groups), len(groups))
        if len(groups) == options.groups
        else len(groups),
    )


def load_keys(
    database: DuckDBPyConnection, scored: Scored, aspects: Sequence[Aspect], groups: Sequence[str]
) -> None:
    """Put files, names of aspects and values of groups where queries find their numbers."""
    names = {
        surface: number for number, aspect in enumerate(aspects) for surface in aspect.surfaces
    }
    for table, numbers in (
        ("file_key", {name: number for number, name in enumerate(scored.files)}),
        ("aspect_key", names),
        ("group_key", {value: number for number, value in enumerate(groups)}),
    ):
        database.execute(f"CREATE OR REPLACE TEMP TABLE {table} (name VARCHAR, number BIGINT)")
        database.execute(
            f"INSERT INTO {table} SELECT unnest($names), unnest($numbers)",
            {"names": list(numbers), "numbers": list(numbers.values())},
        )


def load_mentions(
    database: DuckDBPyConnection,
    scored: Scored,
    batch: list[int],
    options: ReportOptions,
    calendar: Calendar | None,
) -> None:
    """Make the table `mention` of the rows of some files: one line for each mention."""
    group = (
        "NULL" if options.by is None else f"CAST({scored.column(options.by, '--by')} AS VARCHAR)"
    )
    period = _OTHER if calendar is None else f"CAST(coalesce({calendar.sql}, -1) AS SMALLINT)"
    classes = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(CLASSES))
    database.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE mention AS
        WITH kept AS (
            SELECT {FILE}, file_row_number, {group} AS value, {period} AS period,
                   unnest(aspects) AS found
            FROM read_parquet($files, filename = '{FILE}', file_row_number = true)
            WHERE error IS NULL
        )
        SELECT (file_key.number << {ROW_BITS}) + kept.file_row_number AS review,
               CAST(coalesce(group_key.number, -1) AS SMALLINT) AS part,
               kept.period AS period,
               CAST(coalesce(aspect_key.number, -1) AS SMALLINT) AS aspect,
               CAST(CASE found.polarity {classes} END AS TINYINT) AS polarity,
               found.start AS start,
               least(found.confidence, found.aspect_confidence) AS sure
        FROM kept
        JOIN file_key ON file_key.name = kept.{FILE}
        LEFT JOIN aspect_key ON aspect_key.name = found.surface
        LEFT JOIN group_key ON group_key.name = kept.value
        """,  # noqa: S608
        {"files": [scored.files[number] for number in batch]},
    )


class Counter:
    """Adds up batches."""

    def __init__(self, num_aspects: int, num_groups: int, num_periods: int, limit: float) -> None:
        self._aspects = Tally.zeros(num_aspects + 1, num_groups + 1, num_periods + 1)
        self._everything = Tally.zeros(num_groups + 1, num_periods + 1)
        self._surety = np.zeros(BINS + 1, dtype=np.int64)
        self._limit = limit

    def add(self, database: DuckDBPyConnection) -> None:
        """Add what the table `mention` holds."""
        rows = _tally_rows(database, "aspect, part, period", self._limit)
        _put(self._aspects, rows, 3)
        _put(self._everything, _tally_rows(database, "part, period", self._limit), 2)
        bins = database.execute(
            f"""SELECT CASE WHEN sure IS NULL THEN {BINS}
                            ELSE CAST(least(greatest(floor(sure * {BINS}), 0), {BINS - 1}) AS INT)
                       END AS bin, count(*) FROM mention GROUP BY bin"""  # noqa: S608
        ).fetchall()
        for number, mentions in bins:
            self._surety[number] += mentions

    def counted(self) -> Counted:
        """Return what was added; of aspects those that have a number."""
        return Counted(
            self._aspects[:-1],
            self._everything,
            [int(number) for number in self._surety[:-1]],
            int(self._surety[-1]),
        )


_PAIRS = [(one, other) for one in range(len(CLASSES)) for other in range(one, len(CLASSES))]


def _tally_rows(database: DuckDBPyConnection, keys: str, limit: float) -> list[Any]:
    """Return the columns of tallies by some keys: the keys, reviews, unsure, sums and products."""
    told = ", ".join(f"count(*) FILTER (polarity = {k}) AS n{k}" for k in range(len(CLASSES)))
    sums = ", ".join(f"sum(n{k})" for k in range(len(CLASSES)))
    products = ", ".join(f"sum(n{k} * n{other})" for k, other in _PAIRS)
    relation = database.execute(
        f"""SELECT {keys}, count(*), sum(unsure), {sums}, {products}
            FROM (SELECT {keys}, count(*) FILTER (sure < $limit) AS unsure, {told}
                  FROM mention GROUP BY {keys}, review)
            GROUP BY {keys}""",  # noqa: S608
        {"limit": limit},
    )
    return list(relation.fetchnumpy().values())


def _put(tally: Tally, columns: list[Any], num_keys: int) -> None:
    """Add rows to a tally in place; the number -1 is its last place, as everywhere in numpy."""
    places = tuple(np.asarray(column, dtype=np.int64) for column in columns[:num_keys])
    values = [np.asarray(column, dtype=np.float64) for column in columns[num_keys:]]
    reviews, unsure, sums = values[0], values[1], values[2 : 2 + len(CLASSES)]
    tally.reviews[places] += reviews
    tally.unsure[places] += unsure
    tally.mentions[places] += np.stack(sums, axis=-1)
    for (one, other), product in zip(_PAIRS, values[2 + len(CLASSES) :], strict=True):
        tally.products[..., one, other][places] += product
        if one != other:
            tally.products[..., other, one][places] += product
