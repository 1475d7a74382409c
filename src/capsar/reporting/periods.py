"""Divide the dates of a corpus into periods of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shorten
from typing import TYPE_CHECKING

from capsar.errors import DataError
from capsar.reporting.options import UNITS

if TYPE_CHECKING:
    from datetime import date

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions
    from capsar.reporting.query import ScoredFolder

_MAX_PERIODS = 40
"""That are chosen; twice as many can be requested."""
_MIN_PERIODS = 4
_DAYS = {"day": 1, "week": 7, "month": 30.4, "quarter": 91.3, "year": 365.25}
_OUTLIERS = 0.0005
"""The share of dates at either end that may be wrong (1970, 2206) and does not set the range."""
_MIN_MILLISECONDS = 100_000_000_000
_MIN_SECONDS = 315_532_800
"""1980: smaller numbers are stars, years or dates without hyphens, not seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Consecutive periods of equal length; none without a column of dates."""

    unit: str | None = None
    starts: tuple[date, ...] = ()
    sql: str = "NULL"
    """SQL for the number of a row's period, or null."""
    undated: int = 0
    """Rows whose date is missing, unreadable or outside the range."""


def make_periods(
    database: DuckDBPyConnection, scored: ScoredFolder, options: ReportOptions
) -> Periods:
    """Choose periods for the dates of the column `over`.

    Raises:
        DataError: If fewer than half of the dates can be read.
    """
    if options.over is None:
        return Periods()
    column = scored.column(options.over, "--over")
    timestamp = _timestamp_sql(column, scored.columns[options.over], options.date_format)
    first, last, read, rows, unread = database.execute(
        f"""SELECT quantile_disc(stamp, {_OUTLIERS}), quantile_disc(stamp, {1 - _OUTLIERS}),
                   count(stamp), count(*),
                   min(written) FILTER (stamp IS NULL AND trim(written) <> '')
            FROM (SELECT {timestamp} AS stamp, CAST({column} AS VARCHAR) AS written
                  FROM read_parquet($files) AS source)""",  # noqa: S608
        {"files": scored.files},
    ).fetchall()[0]
    if read * 2 < rows or first is None:
        raise _unreadable(f"Only {read} of {rows} dates in {options.over!r}", unread, options)
    unit = _choose_unit((last - first).days)
    if options.every is not None:
        requested = int((last - first).days / _DAYS[options.every]) + 1
        if requested > 2 * _MAX_PERIODS:
            raise DataError(
                f"--every {options.every} gives {requested:,} periods, more than "
                f"{2 * _MAX_PERIODS}; choose a longer one, such as {unit}"
            )
        unit = options.every
    starts = database.execute(
        f"""SELECT CAST(unnest(generate_series(date_trunc('{unit}', CAST($first AS TIMESTAMP)),
                   CAST($last AS TIMESTAMP), INTERVAL 1 {unit})) AS DATE)""",
        {"first": first, "last": last},
    ).fetchall()[-_MAX_PERIODS * 2 :]
    number = f"date_diff('{unit}', TIMESTAMP '{starts[0][0]}', date_trunc('{unit}', {timestamp}))"
    period = f"CASE WHEN {number} BETWEEN 0 AND {len(starts) - 1} THEN {number} END"
    undated = database.execute(
        f"SELECT count(*) FILTER (({period}) IS NULL) FROM read_parquet($files) AS source",  # noqa: S608
        {"files": scored.files},
    ).fetchall()[0][0]
    return Periods(unit, tuple(row[0] for row in starts), period, int(undated))


def _unreadable(which: str, example: str | None, options: ReportOptions) -> DataError:
    if options.date_format is not None:
        return DataError(
            f"{which} have the format {options.date_format!r}, got {shorten(example)}. Write "
            "--date-format as the dates are: %d.%m.%Y for 14.03.2026, %d.%m.%y for 14.03.26; or "
            "omit it if they are ISO 8601 (2026-03-14)."
        )
    return DataError(
        f"{which} can be read; expected ISO 8601 (2026-03-14) or seconds since 1970, got "
        f"{shorten(example)}. Choose a column of dates, or pass their format, such as "
        "--date-format %d.%m.%Y, or %Y for years."
    )


def _choose_unit(days: int) -> str:
    """Return the shortest unit that gives few enough periods, but months rather than weeks."""
    for unit in ("month", "week", "day"):
        if _MIN_PERIODS <= days / _DAYS[unit] + 1 <= _MAX_PERIODS:
            return unit
    return next((unit for unit in UNITS if days / _DAYS[unit] + 1 <= _MAX_PERIODS), "year")


def _timestamp_sql(column: str, kind: str, date_format: str | None) -> str:
    """Return SQL for the time of a row; null where it cannot be read."""
    if date_format is not None:
        quoted = date_format.replace("'", "''")
        return f"try_strptime(CAST({column} AS VARCHAR), '{quoted}')"
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"CAST({column} AS TIMESTAMP)"
    number = f"TRY_CAST({column} AS DOUBLE)"
    seconds = f"""CASE WHEN {number} > {_MIN_MILLISECONDS} THEN {number} / 1000
                      WHEN {number} >= {_MIN_SECONDS} THEN {number} END"""
    since_1970 = f"TRY(CAST(to_timestamp({seconds}) AS TIMESTAMP))"
    if kind == "VARCHAR":
        return f"coalesce(TRY_CAST({column} AS TIMESTAMP), {since_1970})"
    return since_1970
