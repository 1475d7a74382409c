"""`capsar report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _shown(content: dict[str, Any]) -> str:
    aspects = f"{len(content['aspects'])} aspects shown"
    return f"{len(content['themes'])} themes, {aspects}" if content["themes"] else aspects


def report_command(  # noqa: PLR0913
    scored: Annotated[
        Path, typer.Argument(metavar="SCORED", help="The folder that `capsar score` wrote.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default `report.html`.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Compare the values of this kept column, such as `product`.")
    ] = None,
    over: Annotated[
        str | None, typer.Option(help="Show changes over the dates of this kept column.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Length of a period: day, week, month, quarter or year.")
    ] = None,
    date_format: Annotated[
        str | None, typer.Option(help="Format of dates, such as `%d.%m.%Y`; default ISO 8601.")
    ] = None,
    rating: Annotated[
        str | None,
        typer.Option(help="Show how this kept column of numbers differs with each theme."),
    ] = None,
    themes: Annotated[
        str | None,
        typer.Option(
            help="Sort aspects into themes by their names: a TOML file, or a name such as "
            "restaurants. By default the themes that were scored."
        ),
    ] = None,
    exclude: Annotated[
        str, typer.Option(help="Aspects that are not counted, separated by commas.")
    ] = "",
    drop: Annotated[
        str,
        typer.Option(help="Reviews that are not counted: `duplicates`, `non-english` or both."),
    ] = "",
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(help="`html` (one page), `json`, `csv` or `xlsx`; by default as --out ends."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that scored; bundled models are recognized.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Kept column with the reviews; by default the scored one.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option(help="Mentions below it are not shown as examples.")
    ] = 0.5,
    aspects: Annotated[int, typer.Option(help="Number of aspects to show.")] = 60,
    groups: Annotated[int, typer.Option(help="Number of values of --by to compare.")] = 30,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "",
    memory_mb: Annotated[
        int, typer.Option(help="Memory limit of DuckDB; beyond it, a temporary folder is used.")
    ] = 1000,
    threads: Annotated[int, typer.Option(help="CPU threads; 0 for one per processor.")] = 0,
) -> None:
    """Report on a scored folder: a self-contained HTML page, JSON, CSV or Excel.

    `capsar report scored -o report.html --by product --over date`

    `capsar report scored -o report.xlsx --by product --over date --every month --rating stars`

    The page shows example sentences if the column of reviews was kept when scoring.
    """
    from rich.console import Console
    from rich.progress import Progress

    from capsar.reporting.options import ReportOptions
    from capsar.reporting.run import report

    options = ReportOptions(
        by=by,
        over=over,
        every=every,
        date_format=date_format,
        rating=rating,
        themes=themes,
        exclude=_split(exclude),
        drop=_split(drop),
        text_column=text_column,
        model=model,
        min_confidence=min_confidence,
        aspects=aspects,
        groups=groups,
        memory_mb=memory_mb,
        threads=threads,
        title=title,
    )
    path = out or Path(f"report.{format or 'html'}")
    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("counting", total=None)
        content = report(
            scored,
            path,
            options,
            format=format,
            on_progress=lambda done, rows: bar.update(task, completed=done, total=rows),
        )
    totals = content["totals"]
    typer.echo(
        f"{path}: {totals['reviews']:,} reviews, {totals['mentions']:,} mentions, "
        f"{_shown(content)}, {totals['errors']:,} rows with an error"
    )
    if content["source"]["text_column"] is None:
        typer.echo(
            "capsar: the reviews were not kept, so there are no example sentences; score with "
            "--keep and the name of their column",
            err=True,
        )
