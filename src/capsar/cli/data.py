"""`capsar data list` and `capsar data check`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from capsar.data.validate import FileReport, Overlap

app = typer.Typer(
    help="Find datasets, and check data files before you train on them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_LISTED = 3
"""Records listed per kind of notice without --all."""
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_command(*, json: _Json = False) -> None:
    """List the datasets of the catalog, their licenses, and which files are present.

    Files are expected below the folder in CAPSAR_DATA. With `--json`, the path, checksum and source
    of every file are included.

    `capsar data list --json`
    """
    from dataclasses import asdict
    from json import dumps

    from capsar.data.catalog import DATA_VARIABLE, datasets, present

    known = datasets().values()
    if json:
        entries = [asdict(dataset) | {"present": present(dataset)} for dataset in known]
        typer.echo(dumps(entries, indent=1))
        return
    if not os.environ.get(DATA_VARIABLE):
        reason = "only the corpus of a source checkout can be found"
        typer.echo(f"{DATA_VARIABLE} is not set: {reason}.", err=True)
    for dataset in known:
        missing = [file for file in dataset.files if file.part not in present(dataset)]
        parts = (file.part + " (missing)" * (file in missing) for file in dataset.files)
        typer.secho(dataset.name, bold=True, nl=False)
        typer.echo(f"  {dataset.description}\n    parts: {', '.join(parts)}")
        typer.echo(f"    license: {dataset.license}")
        for file in missing:
            typer.echo(f"    get {file.path}: {file.where()}\n      sha256 {file.sha256}")


@app.command("check")
def check_command(  # noqa: PLR0913
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or names of datasets.")
    ],
    *,
    text_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of a table or JSON Lines.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    overlaps: Annotated[
        bool, typer.Option(help="Look for sentences that two labeled files share.")
    ] = True,
    show_all: Annotated[
        bool, typer.Option("--all", help="List all records of each notice, not the first three.")
    ] = False,
    json: _Json = False,
) -> None:
    """Read data files to the end; list every bad record and other notable findings.

    `capsar data check reviews.csv --text-column review`

    `capsar data check train.xml test.xml` also reports the sentences that are in both.

    The exit code is 1 if a record is bad.
    """
    from capsar.data.tables import Columns
    from capsar.data.validate import check_file, find_overlaps

    columns = Columns(text=text_column, aspect=aspect_column, polarity=polarity_column)
    reports, texts = [], {}
    for path in _resolve(sources):
        report, texts[str(path)] = check_file(path, columns=columns, encoding=encoding)
        reports.append(report)
        if not json:
            _print_report(report, show_all=show_all)
    shared = find_overlaps(texts) if overlaps and len(texts) > 1 else []
    if json:
        _print_json(reports, shared)
    else:
        _print_overlaps(shared, show_all=show_all)
    if any(report.bad for report in reports):
        raise typer.Exit(1)


def _resolve(sources: list[str]) -> list[Path]:
    """Return the distinct files of paths, folders and dataset names."""
    from capsar.data.catalog import datasets, find_file
    from capsar.data.validate import data_files
    from capsar.errors import ConfigError

    paths: list[Path] = []
    for source in sources:
        if Path(source).exists():
            paths.extend(data_files(Path(source)))
        elif source in datasets():
            paths.extend(find_file(source, file.part) for file in datasets()[source].files)
        else:
            raise ConfigError(f"{source!r} is neither a file or folder nor a known dataset")
    if not paths:
        raise ConfigError(f"No data files in {', '.join(sources)}")
    return list(dict.fromkeys(paths))


def _print_report(report: FileReport, *, show_all: bool) -> None:
    typer.secho(report.path, bold=True)
    what = report.dataset or "not a published file that the catalog knows"
    typer.echo(f"  {report.format or 'unknown format'}; {what}")
    without = report.sentences_without_aspect
    typer.echo(
        f"  {report.examples} examples, {report.sentences} sentences, {without} without an aspect"
        + ("" if report.compared_all else " (duplicates: only the first sentences compared)")
    )
    if report.labels:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(report.labels.items()))
        included = ", those of bad records included" if report.bad else ""
        published = {True: " (as published)", False: " (NOT as published)", None: ""}
        typer.echo(f"  labels: {counts}{included}{published[report.labels_as_published]}")
    for kind, notice in report.notices.items():
        listed = notice.records if show_all else notice.records[:_LISTED]
        more = "; …" if len(notice.records) > len(listed) else ""
        typer.echo(f"  {notice.count} x {kind}: {'; '.join(listed)}{more}")
    for error in report.bad:
        typer.secho(f"  BAD {error.record}: {error.reason}", fg="red")


def _print_overlaps(overlaps: list[Overlap], *, show_all: bool) -> None:
    for overlap in overlaps:
        typer.echo(
            f"{overlap.exact} sentences equal and {overlap.near} nearly equal: "
            f"{overlap.path} in {overlap.other}"
        )
        for record, other, kind in overlap.records if show_all else ():
            typer.echo(f"  {kind}: {record} in {other}")


def _print_json(reports: list[FileReport], overlaps: list[Overlap]) -> None:
    from dataclasses import asdict
    from json import dumps

    files = []
    for report in reports:
        fields = {name: getattr(report, name) for name in report.__slots__}
        fields["notices"] = {kind: asdict(notice) for kind, notice in report.notices.items()}
        fields["bad"] = [{"record": e.record, "reason": e.reason} for e in report.bad]
        files.append(fields | {"labels_as_published": report.labels_as_published})
    document = {"files": files, "overlaps": [asdict(overlap) for overlap in overlaps]}
    typer.echo(dumps(document, indent=1))
