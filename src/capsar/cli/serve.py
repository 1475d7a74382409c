"""`capsar serve`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer

from capsar.hub import DEFAULT_MODEL


def serve_command(  # noqa: PLR0913
    *,
    model: Annotated[
        str, typer.Option(help="A shipped model's name, a trained model's folder, or a hub id.")
    ] = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes, each with a model of its own.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads of the engine, in each worker.")] = 1,
    backend: Annotated[
        str, typer.Option(help="What runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    api_keys: Annotated[
        Path | None, typer.Option(help="Only who has one of these keys may ask (hashed).")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Let pages of this origin ask (CORS); repeatable.")
    ] = None,
    queue_chars: Annotated[
        int, typer.Option(help="Characters of work that may wait in a worker.")
    ] = 65_536,
    deadline: Annotated[float, typer.Option(help="Seconds that an answer may take.")] = 30.0,
    grace: Annotated[float, typer.Option(help="Seconds to finish in after SIGTERM.")] = 20.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Answer over HTTP, and show a page to try it on.

    `capsar serve --port 8000`

    `capsar serve --model runs/mine/bundle --host 0.0.0.0 --workers 4 --api-keys keys.txt`
    """
    from capsar.errors import MissingExtraError

    try:
        from capsar.serve.keys import read_keys
        from capsar.serve.server import run
        from capsar.serve.settings import Limits, Settings, Times
    except ImportError as error:
        raise MissingExtraError("serve", "Serving") from error
    settings = Settings(
        model=model,
        threads=threads,
        backend=backend,
        host=host,
        port=port,
        workers=workers,
        keys=read_keys(api_keys) if api_keys else None,
        origins=tuple(allow_origin or ()),
        log_level=log_level,
        limits=Limits(queue_chars=queue_chars),
        times=Times(deadline=deadline, grace=grace),
    )
    run(settings)
