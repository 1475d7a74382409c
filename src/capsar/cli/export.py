"""`capsar export`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer


def export_command(
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="A trained model's folder, or a shipped name.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    *,
    store: Annotated[
        str, typer.Option(help="How weights are stored: float32, or int8 in a quarter of the room.")
    ] = "float32",
) -> None:
    """Write a model's graphs anew from its weights, as this release writes them.

    After an upgrade of capsar, or where a graph cannot be loaded. OUT may be the same folder; a
    folder that holds anything but a bundle is left alone.

    `capsar export runs/mine runs/mine-upgraded`

    `capsar export old/bundle old/bundle`

    `capsar export runs/mine runs/mine-small --store int8`
    """
    from capsar.errors import MissingExtraError

    try:
        from capsar.training.run import export_bundle
    except ImportError as error:
        raise MissingExtraError("train", "Exporting") from error
    export_bundle(bundle, out, store=store)
    typer.echo(str(out))
