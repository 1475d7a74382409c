"""`capsar score`."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capsar.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from capsar.bulk.summary import Progress, Summary

ROWS_WITH_ERROR = 1
FILES_UNREADABLE = 3
STOPPED = 4


def score_command(  # noqa: PLR0913
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT…", help="Files, folders or patterns, here or in a store."),
    ] = None,
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="A folder to write, here or in a store.")
    ] = "",
    *,
    text_column: Annotated[str, typer.Option(help="The column that holds the reviews.")] = "text",
    aspect_column: Annotated[
        str | None, typer.Option(help="Names what to ask about; without it aspects are found.")
    ] = None,
    keep: Annotated[str, typer.Option(help="Columns to keep, as `id,date`.")] = "",
    encoding: Annotated[
        str, typer.Option(help="Of CSV and JSON Lines; UTF-8, or one byte a character, as cp1252.")
    ] = "utf-8",
    model: Annotated[
        str, typer.Option(help="A shipped model's name, a trained model's folder, or a hub id.")
    ] = DEFAULT_MODEL,
    engine: Annotated[str, typer.Option(help="Who does the work: `local` or `ray`.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, as `auto` or `ray://host:10001`.")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N|MIN-MAX", help="By default one a processor.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="What runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    max_chars: Annotated[
        int, typer.Option(help="A longer text is not scored, and says so in `error`.")
    ] = 100_000,
    fragment_mb: Annotated[float, typer.Option(help="Input that is one unit of work.")] = 8.0,
    json: Annotated[bool, typer.Option("--json", help="Print progress as JSON lines.")] = False,
) -> None:
    """Score a corpus of any size, exactly once: Parquet, CSV or JSON Lines in, Parquet out.

    `capsar score reviews.csv scored --text-column review --keep id,date`

    `capsar score s3://bucket/reviews/ s3://bucket/scored/ --engine ray --workers 4-64`

    Run again, a job goes on where it was. Exit code 0: every row has its answer; 1: some rows have
    an `error` instead; 2: it could not begin; 3: some files could not be read; 4: it was stopped (a
    full disk, a store that is gone, a signal) and can be run again.
    """
    from capsar.errors import ConfigError, MissingExtraError

    if not inputs:  # of one argument alone, the parser takes it for the last
        given = output or "reviews.csv"
        raise ConfigError(
            f"Name what to score and then a folder to write: capsar score {given} scored"
        )
    try:
        from capsar.bulk.job import ScoreOptions
        from capsar.bulk.run import Engine, JobStoppedError, score
    except ImportError as error:
        raise MissingExtraError("bulk", "Scoring a corpus") from error
    options = ScoreOptions(
        text_column=text_column,
        aspect_column=aspect_column,
        keep=tuple(name.strip() for name in keep.split(",") if name.strip()),
        encoding=encoding,
        model=model,
        backend=backend,
        max_chars=max_chars,
        fragment_mb=fragment_mb,
    )
    who = Engine(engine, _workers(workers), address)
    # What a scheduler sends is heard as what a terminal sends: workers end, and it is said.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _Shown(as_json=json) as shown:
        try:
            summary = score(inputs, output, options, engine=who, on_progress=shown.show)
        except JobStoppedError as error:
            typer.echo(f"capsar: {error}", err=True)
            raise typer.Exit(STOPPED) from None
        except KeyboardInterrupt:
            told = "stopped; what is finished is kept, run the same command again to go on"
            typer.echo(f"capsar: {told}", err=True)
            raise typer.Exit(STOPPED) from None
    _report(summary, as_json=json)
    if summary.unreadable:
        raise typer.Exit(FILES_UNREADABLE)
    if summary.rows_with_error:
        raise typer.Exit(ROWS_WITH_ERROR)


def _workers(text: str | None) -> tuple[int, int] | None:
    """Read `4` or `2-16`."""
    from capsar.errors import ConfigError

    if text is None:
        return None
    least, dash, most = text.partition("-")
    try:
        return int(least), int(most if dash else least)
    except ValueError:
        raise ConfigError(f"--workers is a number, or two as in 2-16, got {text!r}") from None


class _Shown:
    """Progress as people see it on a terminal, or as JSON lines."""

    def __init__(self, *, as_json: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._as_json = as_json
        self._bar = Bar(
            TextColumn("{task.fields[told]}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=as_json or not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", told="planning", total=None)

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Show how far the job is."""
        if self._as_json:
            from dataclasses import asdict

            _print({"event": "progress", **asdict(progress)})
            return
        left = progress.seconds_left
        told = (
            f"{progress.rows:,} rows · {progress.rows_per_second:,.0f}/s · "
            f"{'?' if left is None else _duration(left)} left · {progress.errors:,} errors · "
            f"{progress.workers} workers"
        )
        self._bar.update(
            self._task, told=told, completed=progress.fragments_done, total=progress.fragments
        )


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _report(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        _print({"event": "summary", **summary.as_dict()})
        return
    typer.echo(
        f"{summary.output}: {summary.rows:,} rows, {summary.rows_with_error:,} with an error, "
        f"{summary.seconds:.1f} s, {summary.rows_per_second:,.0f} rows/s; "
        f"{summary.fragments_skipped} of {summary.fragments} parts were there already"
    )
    if not summary.rows:
        typer.echo("capsar: there was not one row to score", err=True)
    for kind, number in summary.errors.items():
        first = next(row for row in summary.named if row["error"].startswith(kind))
        told = f"{number} × {kind}; the first: {first['file']}, {first['place']}: {first['error']}"
        typer.echo(f"capsar: {told}", err=True)
    for missing in summary.unreadable:
        typer.echo(f"capsar: not read: {missing['reason']}", err=True)
    if summary.ignored:
        told = f"{len(summary.ignored)} files of no known format, as {summary.ignored[0]!r}"
        typer.echo(f"capsar: left out: {told}", err=True)


def _print(content: dict[str, Any]) -> None:
    from json import dumps

    typer.echo(dumps(content))
