"""The `capsar` command line; each command imports the function that it wraps when it runs.

Data goes to standard output, messages to standard error. Exit code 2 means bad input, 1 that a
check found problems, 70 an unexpected error.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from capsar.cli.analyze import analyze_command
from capsar.cli.data import app as data_app
from capsar.cli.evaluate import evaluate_command
from capsar.cli.export import export_command
from capsar.cli.models import inspect_command, models_command
from capsar.cli.report import report_command
from capsar.cli.score import score_command
from capsar.cli.serve import serve_command
from capsar.cli.themes import themes_app
from capsar.cli.train import train_command
from capsar.errors import CapsarError
from capsar.version import __version__

UNEXPECTED_ERROR = 70

app = typer.Typer(
    name="capsar",
    help="Aspect-based sentiment analysis: find the aspects of a review and their sentiment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")
app.add_typer(themes_app, name="themes")
app.command("analyze")(analyze_command)
app.command("train")(train_command)
app.command("evaluate")(evaluate_command)
app.command("models")(models_command)
app.command("inspect")(inspect_command)
app.command("export")(export_command)
app.command("score")(score_command)
app.command("report")(report_command)
app.command("serve", context_settings={"auto_envvar_prefix": "CAPSAR_SERVE"})(serve_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Aspect-based sentiment analysis: find the aspects of a review and their sentiment."""


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # The content of a file may not be printable in this encoding: escape it.
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
    except Exception:  # noqa: BLE001  (exit code 1 has another meaning)
        traceback.print_exc()
        raise SystemExit(UNEXPECTED_ERROR) from None
