"""Dates as people keep them -> periods of one length."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shortened
from typing import TYPE_CHECKING

from capsar.errors import DataError
from capsar.reporting.options import UNITS

if TYPE_CHECKING:
    from datetime import date

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions
    from capsar.reporting.scored import Scored

_MOST_PERIODS = 40
_FEWEST_PERIODS = 4
_DAYS = {"day": 1, "week": 7, "month": 30.4, "quarter": 91.3, "year": 365.25}
_EDGE = 0.0005
"""The share of dates at either end that may be slips (1970, 2206) and does not set the range."""
_MILLISECONDS_FROM = 100_000_000_000
_SECONDS_FROM = 315_532_800
"""1980: smaller numbers are stars, years or dates without hyphens, and not seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods of one length, one after the other."""

    unit: str
    starts: list[date]
    sql: str
    """The number of a row's period, or null."""
    undated: int
    """Rows whose date is missing, cannot be read, or lies outside."""


def make_calendar(
    database: DuckDBPyConnection, scored: Scored, options: ReportOptions
) -> Calendar | None:
    """Choose periods for the dates of a column; nothing if no column of dates was named.

    Raises:
        DataError: If hardly any date can be read.
    """
    if options.over is None:
        return None
    stamp = _stamp(scored, options)
    column = scored.column(options.over, "--over")
    first, last, read, rows, unread = database.execute(
        f"""SELECT quantile_disc(stamp, {_EDGE}), quantile_disc(stamp, {1 - _EDGE}), count(stamp),
                   count(*), min(told) FILTER (stamp IS NULL)
            FROM (SELECT {stamp} AS stamp, CAST({column} AS VARCHAR) AS told
                  FROM read_parquet($files))""",  # noqa: S608
        {"files": scored.files},
    ).fetchall()[0]
    if read * 2 < rows or first is None:
        raise _unreadable(f"Only {read} of {rows} dates in {options.over!r}", unread, options)
    unit = options.every or _fitting((last - first).days)
    starts = [
        row[0]
        for row in database.execute(
            f"""SELECT CAST(unnest(generate_series(date_trunc('{unit}', CAST($first AS TIMESTAMP)),
                       CAST($last AS TIMESTAMP), INTERVAL 1 {unit})) AS DATE)""",
            {"first": first, "last": last},
        ).fetchall()
    ][-_MOST_PERIODS * 2 :]
    number = f"date_diff('{unit}', TIMESTAMP '{starts[0]}', date_trunc('{unit}', {stamp}))"
    inside = f"CASE WHEN {number} BETWEEN 0 AND {len(starts) - 1} THEN {number} END"
    undated = database.execute(
        f"SELECT count(*) FILTER (({inside}) IS NULL) FROM read_parquet($files)",  # noqa: S608
        {"files": scored.files},
    ).fetchall()[0][0]
    return Calendar(unit, starts, inside, int(undated))


def _unreadable(which: str, example: str | None, options: ReportOptions) -> DataError:
    if options.date_format is not None:
        return DataError(
            f"{which} are of the form {options.date_format!r}, got {shortened(example)}. Write "
            "--date-format as they are: %d.%m.%Y for 14.03.2026, %d.%m.%y for 14.03.26; or leave "
            "it out, if they are ISO 8601 (2026-03-14)."
        )
    return DataError(
        f"{which} can be read; expected ISO 8601 (2026-03-14) or seconds since 1970, got "
        f"{shortened(example)}. Name a column of dates; if it is one, give its form, as "
        "--date-format %d.%m.%Y, or %Y for years."
    )


def _fitting(days: int) -> str:
    """Return the shortest period of which there are not too many, but months rather than weeks."""
    for unit in ("month", "week", "day"):
        if _FEWEST_PERIODS <= days / _DAYS[unit] + 1 <= _MOST_PERIODS:
            return unit
    return next((unit for unit in UNITS if days / _DAYS[unit] + 1 <= _MOST_PERIODS), "year")


def _stamp(scored: Scored, options: ReportOptions) -> str:
    """Return SQL for the time that a row is of; null where it cannot be read."""
    column = scored.column(str(options.over), "--over")
    kind = scored.columns[str(options.over)]
    if options.date_format is not None:
        form = options.date_format.replace("'", "''")
        return f"try_strptime(CAST({column} AS VARCHAR), '{form}')"
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"CAST({column} AS TIMESTAMP)"
    number = f"TRY_CAST({column} AS DOUBLE)"
    seconds = f"""CASE WHEN {number} > {_MILLISECONDS_FROM} THEN {number} / 1000
                      WHEN {number} >= {_SECONDS_FROM} THEN {number} END"""
    since_1970 = f"TRY(CAST(to_timestamp({seconds}) AS TIMESTAMP))"
    if kind == "VARCHAR":
        return f"coalesce(TRY_CAST({column} AS TIMESTAMP), {since_1970})"
    return since_1970
