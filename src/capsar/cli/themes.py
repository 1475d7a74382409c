"""`capsar themes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

themes_app = typer.Typer(help="Themes to sort mentions into.", no_args_is_help=True)


@themes_app.command("suggest")
def suggest_command(
    scored: Annotated[
        Path, typer.Argument(metavar="SCORED", help="The folder that `capsar score` wrote.")
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("themes.toml"),
    number: Annotated[int, typer.Option(help="Number of themes.")] = 12,
) -> None:
    """Suggest themes: clusters of the aspects that customers mention most.

    `capsar themes suggest scored -o themes.toml`

    They are a start: rename, merge and describe them before you use them.
    """
    from capsar.errors import ConfigError
    from capsar.reporting.suggest import suggest_themes, write_themes

    if out.exists():
        raise ConfigError(f"{str(out)!r} exists; give another file, or remove it")
    themes, counts = suggest_themes(scored, number)
    out.write_text(write_themes(themes, counts), encoding="utf-8", newline="\n")
    for theme, count in zip(themes, counts, strict=True):
        typer.echo(f"{count:>8,}  {theme.name}: {', '.join(theme.terms[:6])}")


@themes_app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="The name of ready-made themes, or a file.")],
) -> None:
    """Print ready-made themes, to copy and change them.

    `capsar themes show hotels > themes.toml`
    """
    from capsar.themes.schema import Themes, find_themes

    text = find_themes(name)
    Themes.parse(text, name)
    typer.echo(text, nl=False)
