"""Query the output of `capsar score` with DuckDB, in bounded memory and without a network.

Files are read in batches; memory depends on a batch and on the counts, not on the number of rows.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.errors import DataError
from capsar.reporting.statistics import AspectCounts
from capsar.schema import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions

MAX_NAMES = 100_000
"""Only the most frequent names are merged; rarer ones count in the totals."""
NUM_BINS = 20
"""Of the histogram of confidences."""
FILE = "capsar_file"
"""The column with the file of a row, named so that no kept column has the same name."""
ROW_BITS = 40
"""A review's number is that of its file, shifted by these bits, plus that of its row."""
_RESULT_COLUMNS = ("aspects", "error")
_ROWS_AT_ONCE = 400_000
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class ScoredFolder:
    """The Parquet files of a scoring job, and its manifest."""

    path: Path
    files: list[str]
    rows: list[int]
    """Of each file."""
    columns: dict[str, str]
    """Names and DuckDB types."""
    job: dict[str, Any] = field(default_factory=dict)
    """The job manifest; empty for files of unknown origin."""
    is_complete: bool = True
    """Whether the job has finished."""

    @property
    def text_column(self) -> str | None:
        """The column that was scored, if it was kept."""
        name = self.job.get("options", {}).get("text_column", "text")
        return name if name in self.columns else None

    @property
    def mentions(self) -> str:
        """The SQL expression of a row's explicit mentions."""
        if "implicit" not in self.columns["aspects"]:  # files of earlier releases
            return "aspects"
        return "[one FOR one IN aspects IF NOT coalesce(one.implicit, false)]"

    def batches(self) -> Iterator[list[int]]:
        """Yield batches of file numbers whose rows fit into memory."""
        batch: list[int] = []
        size = 0
        for number, rows in enumerate(self.rows):
            if batch and size + rows > _ROWS_AT_ONCE:
                yield batch
                batch, size = [], 0
            batch.append(number)
            size += rows
        yield batch

    def column(self, name: str, option: str) -> str:
        """Return a kept column's name, quoted for SQL.

        Raises:
            DataError: If there is no such column.
        """
        kept = [one for one in self.columns if one not in _RESULT_COLUMNS]
        if name in kept:
            return '"' + name.replace('"', '""') + '"'
        similar = {one.casefold(): one for one in kept}
        close = get_close_matches(name.casefold(), similar, n=1, cutoff=0.8)
        if close:
            raise DataError(
                f"{option}: there is no column {name!r}; did you mean {similar[close[0]]!r}? The "
                f"kept columns are {kept!r}."
            )
        raise DataError(
            f"{option}: there is no column {name!r}; the kept columns are {kept!r}. Score with "
            f"--keep {','.join([*kept, name])} to have it."
        )


@contextmanager
def connect(options: ReportOptions) -> Iterator[DuckDBPyConnection]:
    """Open an in-memory database that spills to a temporary folder."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="capsar-report-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{options.memory_mb}MB",
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        if options.threads:
            settings["threads"] = options.threads
        with duckdb.connect(":memory:", config=settings) as database:
            yield database


def open_scored_folder(database: DuckDBPyConnection, path: str | Path) -> ScoredFolder:
    """Open a folder that `capsar score` wrote, or a single Parquet file of it.

    Raises:
        DataError: If there are no files, or they are not the output of `capsar score`.
    """
    import duckdb

    if "://" in str(path):
        raise DataError(f"{path}: a report reads local files; copy the scored folder here")
    folder = Path(path)
    if not folder.exists():
        raise DataError(f"There is no {str(path)!r}. Pass the folder that capsar score wrote.")
    files = sorted(folder.glob("[!._]*.parquet")) if folder.is_dir() else [folder]
    score_first = (
        f"A report needs scored reviews: first run `capsar score {path} scored --text-column "
        "COLUMN --keep COLUMN,…`, then `capsar report scored`."
    )
    if not files:
        raise DataError(f"{str(path)!r} has no Parquet files. {score_first}")
    if not _is_parquet(files[0]):
        raise DataError(f"{str(files[0])!r} is not a Parquet file. {score_first}")
    names = [str(file) for file in files]
    try:
        counted = database.execute(
            "SELECT file_name, num_rows FROM parquet_file_metadata($files)", {"files": names}
        ).fetchall()
        described = database.execute(
            "DESCRIBE SELECT * FROM read_parquet($files)", {"files": names}
        ).fetchall()
    except duckdb.Error as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from error
    columns = {str(row[0]): str(row[1]) for row in described}
    if "aspect_confidence" not in columns.get("aspects", "") or "error" not in columns:
        raise DataError(
            f"{str(path)!r} has the columns {list(columns)!r}; expected 'aspects' and 'error' "
            f"among them. {score_first}"
        )
    rows = {str(name): int(number) for name, number in counted}
    home = folder if folder.is_dir() else folder.parent
    job = _read_job(home / "_job" / "job.json")
    is_complete = not job or not folder.is_dir() or (home / "_SUCCESS").exists()
    return ScoredFolder(folder, names, [rows[name] for name in names], columns, job, is_complete)


def _is_parquet(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise DataError(f"{str(file)!r} cannot be read: {error}") from error


def _read_job(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{str(path)!r} is damaged: {error}") from error
    return job if isinstance(job, dict) else {}


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a whole corpus."""

    rows: int
    errors: list[tuple[str, int]]
    """Rows with an error, by kind."""
    without_aspect: int
    mentions: int
    names: dict[str, int]
    """Aspect terms as written with their counts, most frequent first."""
    num_names: int
    groups: list[str] = field(default_factory=list)
    """The most frequent values of the compared column, sorted alphabetically."""
    num_groups: int = 0
    """All values of that column; approximate if there are many."""


def count_totals(
    database: DuckDBPyConnection, scored: ScoredFolder, options: ReportOptions
) -> Totals:
    """Count rows, errors, names and groups."""
    source = {"files": scored.files}
    rows, without = database.execute(
        f"""SELECT count(*),
                  count(*) FILTER (error IS NULL AND coalesce(len({scored.mentions}), 0) = 0)
           FROM read_parquet($files)""",  # noqa: S608
        source,
    ).fetchall()[0]
    errors = database.execute(
        """SELECT split_part(error, ':', 1), count(*) FROM read_parquet($files)
           WHERE error IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20""",
        source,
    ).fetchall()
    database.execute(
        f"""CREATE TEMP TABLE name AS
           SELECT mention.text AS name, count(*) AS number
           FROM (SELECT unnest({scored.mentions}) AS mention FROM read_parquet($files)
                 WHERE error IS NULL)
           GROUP BY ALL""",  # noqa: S608
        source,
    )
    num_names, mentions = database.execute(
        "SELECT count(*), coalesce(sum(number), 0) FROM name"
    ).fetchall()[0]
    names = database.execute(
        f"SELECT name, number FROM name ORDER BY number DESC, name LIMIT {MAX_NAMES}"  # noqa: S608
    ).fetchall()
    database.execute("DROP TABLE name")
    groups, num_groups = _count_groups(database, scored, options)
    return Totals(
        rows=int(rows),
        errors=[(str(kind), int(number)) for kind, number in errors],
        without_aspect=int(without),
        mentions=int(mentions),
        names={str(name): int(number) for name, number in names},
        num_names=int(num_names),
        groups=groups,
        num_groups=num_groups,
    )


def _count_groups(
    database: DuckDBPyConnection, scored: ScoredFolder, options: ReportOptions
) -> tuple[list[str], int]:
    if options.by is None:
        return [], 0
    column = scored.column(options.by, "--by")
    source = {"files": scored.files}
    found = database.execute(
        f"""SELECT CAST({column} AS VARCHAR), count(*)
            FROM read_parquet($files) WHERE error IS NULL AND {column} IS NOT NULL
            GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {options.groups}""",  # noqa: S608
        source,
    ).fetchall()
    groups = sorted(str(value) for value, _ in found)
    if len(groups) < options.groups:
        return groups, len(groups)
    distinct = database.execute(
        f"SELECT approx_count_distinct({column}) FROM read_parquet($files)",  # noqa: S608
        source,
    ).fetchall()[0][0]
    return groups, max(int(distinct), len(groups))


def load_keys(
    database: DuckDBPyConnection,
    scored: ScoredFolder,
    aspects: Mapping[str, int],
    groups: list[str],
) -> None:
    """Create tables with the numbers of files, of aspect names and of group values."""
    for table, numbers in (
        ("file_key", {name: number for number, name in enumerate(scored.files)}),
        ("aspect_key", aspects),
        ("group_key", {value: number for number, value in enumerate(groups)}),
    ):
        database.execute(f"CREATE OR REPLACE TEMP TABLE {table} (name VARCHAR, number BIGINT)")
        database.execute(
            f"INSERT INTO {table} SELECT unnest($names), unnest($numbers)",
            {"names": list(numbers), "numbers": list(numbers.values())},
        )


def load_mentions(
    database: DuckDBPyConnection,
    scored: ScoredFolder,
    batch: list[int],
    by: str | None,
    period_sql: str,
) -> None:
    """Create the table `mention` from some files, with one row per mention."""
    group = "NULL" if by is None else f"CAST({scored.column(by, '--by')} AS VARCHAR)"
    # Files of earlier releases have no opinion phrases.
    has_opinions = "opinions" in scored.columns["aspects"]
    opinions = "[one.text for one in found.opinions]" if has_opinions else "NULL::VARCHAR[]"
    classes = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(CLASSES))
    database.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE mention AS
        WITH kept AS (
            SELECT {FILE}, file_row_number, {group} AS value,
                   CAST(coalesce({period_sql}, -1) AS SMALLINT) AS period,
                   unnest({scored.mentions}) AS found
            FROM read_parquet($files, filename = '{FILE}', file_row_number = true)
            WHERE error IS NULL
        )
        SELECT (file_key.number << {ROW_BITS}) + kept.file_row_number AS review,
               CAST(coalesce(group_key.number, -1) AS SMALLINT) AS part,
               kept.period AS period,
               CAST(coalesce(aspect_key.number, -1) AS SMALLINT) AS aspect,
               CAST(CASE found.polarity {classes} END AS TINYINT) AS polarity,
               found.start AS start,
               {opinions} AS opinions,
               least(found.confidence, found.aspect_confidence) AS confidence
        FROM kept
        JOIN file_key ON file_key.name = kept.{FILE}
        LEFT JOIN aspect_key ON aspect_key.name = found.text
        LEFT JOIN group_key ON group_key.name = kept.value
        """,  # noqa: S608
        {"files": [scored.files[number] for number in batch]},
    )


_PAIRS = [(one, other) for one in range(len(CLASSES)) for other in range(one, len(CLASSES))]


class MentionCounter:
    """Adds up the mentions of batches.

    Along each axis of the counts, the last place is for mentions outside every aspect, group or
    period.
    """

    def __init__(
        self, num_aspects: int, num_groups: int, num_periods: int, min_confidence: float
    ) -> None:
        self.aspects = AspectCounts.zeros(num_aspects + 1, num_groups + 1, num_periods + 1)
        """(A + 1, G + 1, P + 1)"""
        self.overall = AspectCounts.zeros(num_groups + 1, num_periods + 1)
        """(G + 1, P + 1) Of all mentions, including those of aspects that are not shown."""
        self.confidences = np.zeros(NUM_BINS + 1, dtype=np.int64)
        """Mentions by confidence, in bins of equal width; last, those without a confidence."""
        self._min_confidence = min_confidence

    def add(self, database: DuckDBPyConnection) -> None:
        """Add the content of the table `mention`."""
        self._add_counts(database, self.aspects, "aspect, part, period")
        self._add_counts(database, self.overall, "part, period")
        last = NUM_BINS - 1
        bins = database.execute(
            f"""SELECT CASE WHEN confidence IS NULL THEN {NUM_BINS}
                       ELSE CAST(least(greatest(floor(confidence * {NUM_BINS}), 0), {last}) AS INT)
                       END AS bin, count(*) FROM mention GROUP BY bin"""  # noqa: S608
        ).fetchall()
        for number, mentions in bins:
            self.confidences[number] += mentions

    def _add_counts(self, database: DuckDBPyConnection, counts: AspectCounts, keys: str) -> None:
        """Add reviews, low-confidence mentions, sums and products, grouped by some keys."""
        numbers = range(len(CLASSES))
        columns = ", ".join(f"count(*) FILTER (polarity = {k}) AS n{k}" for k in numbers)
        sums = ", ".join(f"sum(n{k})" for k in numbers)
        products = ", ".join(f"sum(n{k} * n{other})" for k, other in _PAIRS)
        relation = database.execute(
            f"""SELECT {keys}, count(*), sum(low), {sums}, {products}
                FROM (SELECT {keys}, count(*) FILTER (confidence < $limit) AS low, {columns}
                      FROM mention GROUP BY {keys}, review)
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
