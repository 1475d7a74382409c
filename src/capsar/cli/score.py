"""`capsar score`."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capsar.bundle import DEFAULT_MODEL

if TYPE_CHECKING:
    from capsar.bulk.run import JobProgress, JobSummary

ROWS_WITH_ERROR = 1
FILES_UNREADABLE = 3
STOPPED = 4
_FIRST_LINE_SECONDS = 3.0
_LINE_SECONDS = 10.0


def score_command(  # noqa: PLR0913
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT…", help="Files, folders or patterns, local or remote."),
    ] = None,
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Output folder, local or remote.")
    ] = "",
    *,
    text_column: Annotated[str, typer.Option(help="Column with the texts.")] = "text",
    aspect_column: Annotated[
        str | None,
        typer.Option(help="Column with the aspects of each text. Default: extract aspects."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Columns to copy to the output, as `id,date`.")] = "",
    encoding: Annotated[
        str, typer.Option(help="Encoding of CSV and JSON Lines, for example cp1252.")
    ] = "utf-8",
    model: Annotated[
        str,
        typer.Option(help="Name of a bundled model, folder of a trained model, or hub id."),
    ] = DEFAULT_MODEL,
    themes: Annotated[
        str | None,
        typer.Option(help="Sort mentions into themes: a TOML file, or a name such as restaurants."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Where workers run: `local` or `ray`.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster: `auto`, `ray://host:10001`.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of workers. Default: one per core of this machine.")
    ] = None,
    worker_timeout: Annotated[
        float,
        typer.Option(min=1, help="Seconds without progress after which a worker is replaced."),
    ] = 300.0,
    backend: Annotated[
        str, typer.Option(help="Runtime of the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    max_chars: Annotated[
        int, typer.Option(help="Maximum length of a text. Longer texts get an `error`.")
    ] = 100_000,
    shard_mb: Annotated[
        float, typer.Option(help="Maximum size of a shard in MB; each is one output file.")
    ] = 8.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print rows, shards and the estimated time.")
    ] = False,
    core_hour_price: Annotated[
        float, typer.Option(help="Price of a core-hour, for the cost that --dry-run prints.")
    ] = 0.05,
    json: Annotated[bool, typer.Option("--json", help="Print progress as JSON Lines.")] = False,
) -> None:
    """Score Parquet, CSV, Excel or JSON Lines files of any size, and write Parquet.

    `capsar score reviews.csv scored --text-column review --keep id,date`

    `capsar score s3://bucket/reviews/ s3://bucket/scored/ --engine ray --workers 64`

    The same command resumes an interrupted job, and scores new files of a folder. Exit codes: 0,
    all rows are scored; 1, some rows have an `error`; 2, the job could not start; 3, some files
    could not be read; 4, the job was stopped (full disk, unavailable storage, signal) and can be
    resumed; 70, an unexpected error.
    """
    from capsar.errors import ConfigError, MissingExtraError

    if not inputs:  # the parser assigns a single argument to `output`
        example = output or "reviews.csv"
        raise ConfigError(f"Expected an input and an output folder: capsar score {example} scored")
    try:
        from capsar.bulk.executors import RetryPolicy
        from capsar.bulk.job import ScoreOptions
        from capsar.bulk.run import EngineOptions, JobStoppedError, estimate, score
        from capsar.inference.sessions import num_cores
    except ImportError as error:
        raise MissingExtraError("bulk", "Bulk scoring") from error
    options = ScoreOptions(
        text_column=text_column,
        aspect_column=aspect_column,
        keep=tuple(name.strip() for name in keep.split(",") if name.strip()),
        encoding=encoding,
        model=model,
        backend=backend,
        themes=themes,
        max_chars=max_chars,
        shard_mb=shard_mb,
    )
    engine_options = EngineOptions(engine, workers, address, RetryPolicy(worker_timeout))
    if dry_run:
        found = estimate(inputs, options, engine=engine_options)
        typer.echo(
            f"{found.files:,} files, about {found.rows:,} rows, {found.shards:,} shards; about "
            f"{_duration(found.seconds)} with {workers or num_cores()} workers, "
            f"{found.core_hours:,.2f} core-hours, {found.core_hours * core_hour_price:,.2f} at "
            f"{core_hour_price:g} per core-hour"
        )
        for reason in found.unreadable:
            typer.echo(f"capsar: not read: {reason}", err=True)
        return
    # Handle SIGTERM (sent by schedulers) like SIGINT: end the workers and print a message.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _ProgressDisplay(as_json=json) as display:
        try:
            summary = score(
                inputs, output, options, engine=engine_options, on_progress=display.update
            )
        except JobStoppedError as error:
            typer.echo(f"capsar: {error}", err=True)
            raise typer.Exit(STOPPED) from None
        except KeyboardInterrupt:
            message = "stopped; finished shards are kept, run the same command again to resume"
            typer.echo(f"capsar: {message}", err=True)
            raise typer.Exit(STOPPED) from None
    _print_summary(summary, as_json=json)
    if summary.unreadable:
        raise typer.Exit(FILES_UNREADABLE)
    if summary.rows_with_error:
        raise typer.Exit(ROWS_WITH_ERROR)


class _ProgressDisplay:
    """Shows progress as a bar on a terminal, otherwise as a line every ten seconds or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._as_json = as_json
        self._has_bar = sys.stderr.isatty() and not as_json
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not self._has_bar,
            transient=True,
        )
        self._task = self._bar.add_task("planning", total=None)
        self._next_line = time.monotonic() + _FIRST_LINE_SECONDS

    def __enter__(self) -> _ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, progress: JobProgress) -> None:
        """Show the progress of the job."""
        if self._as_json:
            from dataclasses import asdict

            _print({"event": "progress", **asdict(progress)})
            return
        left = progress.seconds_left
        description = (
            f"{progress.rows:,} rows · {progress.rows_per_second:,.0f}/s · "
            f"{'?' if left is None else _duration(left)} left · {progress.errors:,} errors · "
            f"{progress.workers} workers"
        )
        if self._has_bar:
            self._bar.update(
                self._task,
                description=description,
                completed=progress.shards_done,
                total=progress.shards,
            )
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            typer.echo(f"capsar: {description}", err=True)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _print_summary(summary: JobSummary, *, as_json: bool) -> None:
    if as_json:
        _print({"event": "summary", **summary.as_dict()})
        return
    typer.echo(
        f"{summary.output}: {summary.rows:,} rows, {summary.rows_with_error:,} with an error, "
        f"{summary.seconds:.1f} s, {summary.rows_per_second:,.0f} rows/s; "
        f"{summary.shards_skipped} of {summary.shards} shards skipped"
    )
    warnings = [] if summary.rows else ["the input has no rows"]
    for kind, number in summary.errors.items():
        first = next((row for row in summary.first_errors if row["error"].startswith(kind)), None)
        where = (
            f"; the first: {first['file']}, {first['location']}: {first['error']}" if first else ""
        )
        warnings.append(f"{number} × {kind}{where}")
    warnings += [f"not read: {shard['reason']}" for shard in summary.unreadable]
    if summary.ignored:
        number, example = len(summary.ignored), summary.ignored[0]
        warnings.append(f"ignored {number} files of unknown format, such as {example!r}")
    for warning in warnings:
        typer.echo(f"capsar: {warning}", err=True)


def _print(content: dict[str, Any]) -> None:
    from json import dumps

    typer.echo(dumps(content))
