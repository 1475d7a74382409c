"""`capsar data list` and `capsar data check`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from capsar.data.doctor import FileReport, Overlap

app = typer.Typer(
    help="Find datasets, and check data files before you train on them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_NAMED = 3
"""Records named for each kind of notice, unless all are asked for."""
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_command(*, json: _Json = False) -> None:
    """List the datasets CAPSAR knows by name, their licence, and whether they are here.

    Files are looked for below the folder that CAPSAR_DATA names. With `--json`, every file's path,
    checksum and source are shown as well.

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
        here = present(dataset)
        parts = ", ".join(
            file.part + ("" if file.part in here else " (missing)") for file in dataset.files
        )
        typer.secho(dataset.name, bold=True, nl=False)
        typer.echo(f"  {dataset.about}\n    parts: {parts}\n    licence: {dataset.licence}")
        for file in dataset.files:
            if file.part not in here:
                typer.echo(f"    get {file.path}: {file.where()}\n      sha256 {file.sha256}")


@app.command("check")
def check_command(  # noqa: PLR0913
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders or names of datasets.")
    ],
    *,
    text_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "text",
    aspect_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "aspect",
    polarity_column: Annotated[str, typer.Option(help="Of CSV and JSONL files.")] = "polarity",
    encoding: Annotated[str, typer.Option(help="Of CSV, JSONL and plain files.")] = "utf-8",
    overlaps: Annotated[
        bool, typer.Option(help="Look for sentences that two labelled files share.")
    ] = True,
    show_all: Annotated[
        bool, typer.Option("--all", help="Name every record of every notice, not the first three.")
    ] = False,
    json: _Json = False,
) -> None:
    """Read data files to their end; name every bad record, and whatever else one should know.

    `capsar data check reviews.csv --text-column review`

    `capsar data check train.xml test.xml` also reports the sentences that both hold.

    Exit code 1 if a record is bad.
    """
    from capsar.data.doctor import check_file, find_overlaps
    from capsar.data.formats.tables import Columns

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
    """Turn files, folders and names of datasets into files, each once."""
    from capsar.data.catalog import dataset, datasets, find_file
    from capsar.data.doctor import data_files
    from capsar.errors import ConfigError

    paths: list[Path] = []
    for source in sources:
        if Path(source).exists():
            paths.extend(data_files(Path(source)))
        elif source in datasets():
            paths.extend(find_file(source, file.part) for file in dataset(source).files)
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
        + ("" if report.remembered_all else " (duplicates: only the first sentences compared)")
    )
    if report.labels:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(report.labels.items()))
        included = ", those of bad records included" if report.bad else ""
        published = {True: " (as published)", False: " (NOT as published)", None: ""}
        typer.echo(f"  labels: {counts}{included}{published[report.labels_as_published]}")
    for kind, tally in report.notices.items():
        named = tally.records if show_all else tally.records[:_NAMED]
        more = "; …" if len(tally.records) > len(named) else ""
        typer.echo(f"  {tally.count} x {kind}: {'; '.join(named)}{more}")
    for error in report.bad:
        typer.secho(f"  BAD {error.record}: {error.reason}", fg="red")


def _print_overlaps(overlaps: list[Overlap], *, show_all: bool) -> None:
    for overlap in overlaps:
        typer.echo(
            f"{overlap.exact} sentences equal and {overlap.near} nearly equal: "
            f"{overlap.path} in {overlap.other}"
        )
        for record, other, sharing in overlap.records if show_all else ():
            typer.echo(f"  {sharing}: {record} in {other}")


def _print_json(reports: list[FileReport], overlaps: list[Overlap]) -> None:
    from dataclasses import asdict
    from json import dumps

    files = []
    for report in reports:
        bad = [{"record": error.record, "reason": error.reason} for error in report.bad]
        fields = {name: getattr(report, name) for name in report.__slots__}
        fields["notices"] = {kind: asdict(tally) for kind, tally in report.notices.items()}
        files.append(fields | {"bad": bad, "labels_as_published": report.labels_as_published})
    document = {"files": files, "overlaps": [asdict(overlap) for overlap in overlaps]}
    typer.echo(dumps(document, indent=1))
