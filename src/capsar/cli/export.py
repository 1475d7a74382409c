"""`capsar export`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer


def export_command(
    bundle: Annotated[
        str,
        typer.Argument(metavar="BUNDLE", help="Folder of a trained model, or bundled name."),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    *,
    store: Annotated[
        str, typer.Option(help="Weight format: float32, or int8, which is a quarter of the size.")
    ] = "float32",
) -> None:
    """Export a model again from its weights, in the format of this release.

    Use it after an upgrade of capsar, or if a graph cannot be loaded. OUT may be the same folder;
    a folder with other content is not overwritten.

    `capsar export runs/mine runs/mine-upgraded`

    `capsar export old/bundle old/bundle`

    `capsar export runs/mine runs/mine-small --store int8`
    """
    from capsar.errors import MissingExtraError

    try:
        from capsar.training.trainer import export_bundle
    except ImportError as error:
        raise MissingExtraError("train", "Exporting") from error
    export_bundle(bundle, out, store=store)
    typer.echo(str(out))
