"""The output of `capsar score`, and DuckDB straight on it: in bounded memory, without a network."""

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
    from collections.abc import Iterator

    from duckdb import DuckDBPyConnection

    from capsar.reporting.options import ReportOptions

_NEEDED = ("aspects", "error")
_ROWS_AT_ONCE = 400_000
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Scored:
    """Scored files, and what their job tells about them."""

    path: Path
    files: list[str]
    rows: list[int]
    """Of each file."""
    columns: dict[str, str]
    """Names and DuckDB's types."""
    job: dict[str, Any] = field(default_factory=dict)
    """What `capsar score` was asked; nothing for files of unknown origin."""
    is_whole: bool = True
    """Whether every part of the job is there."""

    @property
    def text_column(self) -> str | None:
        """The column that was scored, if it was kept."""
        name = self.job.get("options", {}).get("text_column", "text")
        return name if name in self.columns else None

    def batches(self) -> Iterator[list[int]]:
        """Yield numbers of files, so many at once that their rows fit into memory."""
        batch: list[int] = []
        held = 0
        for number, rows in enumerate(self.rows):
            if batch and held + rows > _ROWS_AT_ONCE:
                yield batch
                batch, held = [], 0
            batch.append(number)
            held += rows
        yield batch

    def column(self, name: str, option: str) -> str:
        """Return a column's name as SQL takes it.

        Raises:
            DataError: If there is no such column.
        """
        if name not in self.columns or name in _NEEDED:
            kept = [one for one in self.columns if one not in _NEEDED]
            alike = {one.casefold(): one for one in kept}
            near = get_close_matches(name.casefold(), alike, n=1, cutoff=0.8)
            if near:
                raise DataError(
                    f"{option}: there is no column {name!r}; did you mean {alike[near[0]]!r}? Kept "
                    f"are {kept!r}."
                )
            raise DataError(
                f"{option}: there is no column {name!r}; kept are {kept!r}. Score with "
                f"--keep {','.join([*kept, name])} to have it."
            )
        return quoted(name)


@contextmanager
def connect(options: ReportOptions) -> Iterator[DuckDBPyConnection]:
    """Open a database in memory, which writes to a folder of its own what memory does not hold."""
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
        database = duckdb.connect(":memory:", config=settings)
        try:
            yield database
        finally:
            database.close()


def open_scored(database: DuckDBPyConnection, path: str | Path) -> Scored:
    """Find the files of a scored corpus: a folder that `capsar score` wrote, or one Parquet file.

    Raises:
        DataError: If there are none, or they are no scored ones.
    """
    import duckdb

    if "://" in str(path):
        raise DataError(
            f"{path}: a report reads files of this machine; copy the scored folder here"
        )
    folder = Path(path)
    if not folder.exists():
        raise DataError(f"There is no {str(path)!r}. Name the folder that capsar score wrote.")
    files = sorted(folder.glob("[!._]*.parquet")) if folder.is_dir() else [folder]
    if not files:
        raise DataError(f"{str(path)!r} holds no Parquet files. {_score_first(path)}")
    if not _is_parquet(files[0]):
        raise DataError(f"{str(files[0])!r} is no Parquet file. {_score_first(path)}")
    names = [str(file) for file in files]
    try:
        found = database.execute(
            "SELECT file_name, num_rows FROM parquet_file_metadata($files)", {"files": names}
        ).fetchall()
        described = database.execute(
            "DESCRIBE SELECT * FROM read_parquet($files)", {"files": names}
        ).fetchall()
    except duckdb.Error as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from error
    columns = {str(row[0]): str(row[1]) for row in described}
    if "surface" not in columns.get("aspects", "") or "error" not in columns:
        raise DataError(
            f"{str(path)!r} has the columns {list(columns)!r}; expected 'aspects' and 'error' "
            f"among them. {_score_first(path)}"
        )
    rows = {str(name): int(number) for name, number in found}
    home = folder if folder.is_dir() else folder.parent
    job = _read_job(home / "_job" / "job.json")
    is_whole = not job or not folder.is_dir() or (home / "_SUCCESS").exists()
    return Scored(folder, names, [rows[name] for name in names], columns, job, is_whole)


def _is_parquet(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise DataError(f"{str(file)!r} cannot be read: {error}") from error


def _score_first(path: str | Path) -> str:
    return (
        f"A report is made of what was scored: first `capsar score {path} scored --text-column "
        "COLUMN --keep COLUMN,…`, then `capsar report scored`."
    )


def _read_job(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{str(path)!r} is damaged: {error}") from error
    return job if isinstance(job, dict) else {}


def quoted(name: str) -> str:
    """Return a column's name as SQL takes it.

    >>> print(quoted("stars of 5"))
    "stars of 5"
    """
    return '"' + name.replace('"', '""') + '"'
