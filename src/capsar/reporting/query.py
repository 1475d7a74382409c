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

from capsar.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions

MAX_NAMES = 100_000
"""Only the most frequent names are merged; rarer ones count in the totals."""
_FILE = "capsar_file"
_ROW_BITS = 40
"""A review's number is that of its file, shifted by these bits, plus that of its row."""
_RESERVED = (_FILE, "capsar_one", "file_row_number")
_MAX_ERRORS = 20
"""Kinds of errors to show."""
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
    def has_implicit(self) -> bool:
        """Whether the files may have implicit mentions; those of earlier releases have none."""
        return "implicit" in self.columns["aspects"]

    @property
    def mentions(self) -> str:
        """The SQL expression of a row's explicit mentions."""
        if not self.has_implicit:
            return "source.aspects"
        is_explicit = "NOT coalesce(capsar_one.implicit, false)"  # a name that no column has
        return f"[capsar_one FOR capsar_one IN source.aspects IF {is_explicit}]"

    def select(self, **columns: str) -> str:
        """Return the SQL of the counted rows of `$files`: `review`, its number, and expressions.

        Only named expressions are selected, so that kept columns may have any name.
        """
        named = "".join(f", {sql} AS {name}" for name, sql in columns.items())
        return f"""(
            SELECT * FROM (
                SELECT (file_key.number << {_ROW_BITS}) + source.file_row_number AS review {named}
                FROM read_parquet($files, filename = '{_FILE}', file_row_number = true) AS source
                JOIN file_key ON file_key.name = source.{_FILE}
                WHERE source.error IS NULL)
            ANTI JOIN dropped USING (review))"""  # noqa: S608

    def group(self, name: str) -> str:
        """Return the SQL of a group: the text of a kept column, or null if it is blank."""
        return f"nullif(trim(CAST({self.column(name, '--by')} AS VARCHAR)), '')"

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
        """Return the SQL of a kept column.

        Raises:
            DataError: If there is no such column.
        """
        kept = [one for one in self.columns if one not in _RESULT_COLUMNS]
        if name in kept:
            return 'source."' + name.replace('"', '""') + '"'
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
    reserved = [name for name in columns if name.casefold() in _RESERVED]
    if reserved:
        raise DataError(
            f"{str(path)!r} has a column {reserved[0]!r}, which a report uses itself. Score again "
            "with another name of that column."
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
    """Rows with an error, by kind; of the most frequent kinds."""
    num_errors: int
    reviews: int
    """Rows that are counted: those without an error that were not dropped."""
    without_mention: int
    implicit: int
    """Implicit mentions of themes."""
    names: dict[str, int]
    """Aspect terms as written with their counts, most frequent first."""
    num_names: int
    mentions: int
    """Explicit mentions, of rarer names as well."""
    groups: list[str] = field(default_factory=list)
    """The most frequent values of the compared column, sorted alphabetically."""
    num_groups: int = 0
    """All values of that column."""


def number_files(database: DuckDBPyConnection, scored: ScoredFolder) -> None:
    """Create the table of file numbers, and that of dropped reviews, which is empty at first."""
    fill_keys(database, "file_key", {name: number for number, name in enumerate(scored.files)})
    database.execute("CREATE OR REPLACE TEMP TABLE dropped (review BIGINT)")


def fill_keys(database: DuckDBPyConnection, table: str, numbers: Mapping[str, int]) -> None:
    """Create a table of names and their numbers."""
    database.execute(f"CREATE OR REPLACE TEMP TABLE {table} (name VARCHAR, number BIGINT)")
    database.execute(
        f"INSERT INTO {table} SELECT unnest($names), unnest($numbers)",
        {"names": list(numbers), "numbers": list(numbers.values())},
    )


def count_totals(
    database: DuckDBPyConnection, scored: ScoredFolder, options: ReportOptions, *, implicit: bool
) -> Totals:
    """Count rows, errors, names and groups.

    Args:
        database: The database.
        scored: The files.
        options: What to compare.
        implicit: Whether implicit mentions are counted.
    """
    source = {"files": scored.files}
    explicit = f"coalesce(len({scored.mentions}), 0)"
    every = "coalesce(len(source.aspects), 0)" if implicit else explicit
    counted, without, num_implicit = database.execute(
        f"""SELECT count(*), count(*) FILTER (every = 0), coalesce(sum(every - explicit), 0)
            FROM {scored.select(every=every, explicit=explicit)}""",  # noqa: S608
        source,
    ).fetchall()[0]
    errors = database.execute(
        """SELECT split_part(error, ':', 1), count(*) FROM read_parquet($files)
           WHERE error IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1""",
        source,
    ).fetchall()
    database.execute(
        f"""CREATE OR REPLACE TEMP TABLE name AS
           SELECT mention.text AS name, count(*) AS number
           FROM (SELECT unnest(mentions) AS mention
                 FROM {scored.select(mentions=scored.mentions)})
           GROUP BY ALL""",  # noqa: S608
        source,
    )
    num_names, num_mentions = database.execute(
        "SELECT count(*), coalesce(sum(number), 0) FROM name"
    ).fetchall()[0]
    names = database.execute(
        f"SELECT name, number FROM name ORDER BY number DESC, name LIMIT {MAX_NAMES}"  # noqa: S608
    ).fetchall()
    database.execute("DROP TABLE name")
    groups, num_groups = _count_groups(database, scored, options)
    return Totals(
        rows=sum(scored.rows),
        errors=[(str(kind), int(number)) for kind, number in errors[:_MAX_ERRORS]],
        num_errors=sum(int(number) for _, number in errors),
        reviews=int(counted),
        without_mention=int(without),
        implicit=int(num_implicit),
        names={str(name): int(number) for name, number in names},
        num_names=int(num_names),
        mentions=int(num_mentions),
        groups=groups,
        num_groups=num_groups,
    )


def _count_groups(
    database: DuckDBPyConnection, scored: ScoredFolder, options: ReportOptions
) -> tuple[list[str], int]:
    if options.by is None:
        return [], 0
    rows = database.execute(
        f"""SELECT value, count(*) FROM {scored.select(value=scored.group(options.by))}
            WHERE value IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1""",  # noqa: S608
        {"files": scored.files},
    )
    found = rows.fetchmany(options.groups)
    total = len(found)
    while more := rows.fetchmany(_ROWS_AT_ONCE):
        total += len(more)
    return sorted(str(value) for value, _ in found), total
