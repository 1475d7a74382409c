"""`capsar report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def report_command(  # noqa: PLR0913
    scored: Annotated[
        Path, typer.Argument(metavar="SCORED", help="The folder that `capsar score` wrote.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default `report.html`.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Compare the values of this kept column, as products.")
    ] = None,
    over: Annotated[
        str | None, typer.Option(help="Show change over the dates of this kept column.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="A period: day, week, month, quarter or year.")
    ] = None,
    date_format: Annotated[
        str | None, typer.Option(help="How dates are written, as `%d.%m.%Y`; else ISO 8601.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="`html`, one page; `json`; or `csv`; by default what --out ends with."
        ),
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(help="What `capsar evaluate --json` wrote on labelled reviews like these."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that scored; found by itself if it ships.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="The kept column of reviews; by default the scored one.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="What is less sure is counted as unsure, and not shown.")
    ] = 0.5,
    aspects: Annotated[int, typer.Option(help="How many aspects to show.")] = 60,
    title: Annotated[str, typer.Option(help="Of the page.")] = "",
    memory_mb: Annotated[
        int, typer.Option(help="For DuckDB; what does not fit goes to a temporary folder.")
    ] = 1000,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for one a processor.")] = 0,
) -> None:
    """Tell what a scored corpus says: one page that opens anywhere, or its figures.

    `capsar report scored -o report.html --by product --over date`

    `capsar report scored -o shares.csv --by product --over date --every month`

    Shares are corrected for what the model confuses where that is known, from the model itself or
    from `--confusion`. Sentences are shown if the column of reviews was kept when scoring.
    """
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.run import report

    options = ReportOptions(
        by=by,
        over=over,
        every=every,
        date_format=date_format,
        text_column=text_column,
        model=model,
        confusion=confusion,
        min_confidence=min_confidence,
        aspects=aspects,
        memory_mb=memory_mb,
        threads=threads,
        title=title,
    )
    path = out or Path(f"report.{form or 'html'}")
    with _Shown() as shown:
        content = report(scored, path, options, form=form, on_progress=shown.show)
    _tell(path, content)


def _tell(path: Path, content: dict[str, Any]) -> None:
    totals, model = content["totals"], content["model"]
    typer.echo(
        f"{path}: {totals['reviews']:,} reviews, {totals['mentions']:,} mentions, "
        f"{len(content['aspects'])} aspects shown, {totals['errors']:,} rows with an error"
    )
    if model["uncorrected"]:
        typer.echo(f"capsar: shares are not corrected. {model['uncorrected']}", err=True)
    for warning in model["confusion_warnings"]:
        typer.echo(f"capsar: of {model['confusion_source']}: {warning}", err=True)
    if content["source"]["text_column"] is None:
        told = "the reviews were not kept, so no sentences are shown; score with --keep"
        typer.echo(f"capsar: {told}", err=True)


class _Shown:
    """Progress as people see it on a terminal."""

    def __enter__(self) -> _Shown:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(
            console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
        )
        self._bar.start()
        self._task = self._bar.add_task("counting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, rows: int) -> None:
        """Show how many rows are counted."""
        self._bar.update(self._task, completed=done, total=rows)
