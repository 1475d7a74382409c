"""The command `capsar`: each command is a typed wrapper around a function, and imports it when run.

Data goes to standard output, messages to standard error. Exit code 2 is bad input; 1 means that a
check found something.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from capsar import __version__
from capsar.cli.analyze import analyze_command
from capsar.cli.data import app as data_app
from capsar.cli.evaluate import evaluate_command
from capsar.cli.export import export_command
from capsar.cli.inspect import inspect_command
from capsar.cli.models import models_command
from capsar.cli.report import report_command
from capsar.cli.score import score_command
from capsar.cli.serve import serve_command
from capsar.cli.train import train_command
from capsar.errors import CapsarError

app = typer.Typer(
    name="capsar",
    help="What is felt, and about what, in customer reviews.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")
app.command("analyze")(analyze_command)
app.command("train")(train_command)
app.command("evaluate")(evaluate_command)
app.command("models")(models_command)
app.command("inspect")(inspect_command)
app.command("export")(export_command)
app.command("score")(score_command)
app.command("report")(report_command)
app.command("serve")(serve_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """What is felt, and about what, in customer reviews."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # What a file holds may not be printable here; showing it escaped beats failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except CapsarError as error:
        typer.echo(f"capsar: {error}", err=True)
        raise SystemExit(2) from None
    except OSError as error:  # a full disk, a read error
        typer.echo(f"capsar: {error}", err=True)
        raise SystemExit(2) from None
