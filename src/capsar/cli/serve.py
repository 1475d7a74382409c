"""`capsar serve`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated

import typer

from capsar.bundle import DEFAULT_MODEL


def serve_command(  # noqa: PLR0913
    *,
    model: Annotated[
        str, typer.Option(help="Name of a bundled model, folder of a trained one, or hub id.")
    ] = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes, each with its own model.")] = 1,
    threads: Annotated[int, typer.Option(help="CPU threads for inference, per worker.")] = 1,
    backend: Annotated[
        str, typer.Option(help="Runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    api_keys: Annotated[
        Path | None, typer.Option(help="File of hashed API keys; requests then need one of them.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Allow web pages of this origin (CORS); repeatable.")
    ] = None,
    queue_chars: Annotated[
        int, typer.Option(help="Characters of work that a worker may queue.")
    ] = 65_536,
    deadline: Annotated[float, typer.Option(help="Seconds until a request fails with 504.")] = 30.0,
    grace: Annotated[float, typer.Option(help="Seconds to finish requests after SIGTERM.")] = 20.0,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve a model over HTTP, with a demo page.

    `capsar serve --port 8000`

    `capsar serve --model runs/mine/bundle --host 0.0.0.0 --workers 4 --api-keys keys.txt`
    """
    from capsar.errors import MissingExtraError

    try:
        from capsar.serve.server import run
        from capsar.serve.settings import Limits, Settings, Timeouts, read_api_keys
    except ImportError as error:
        raise MissingExtraError("serve", "Serving") from error
    settings = Settings(
        model=model,
        threads=threads,
        backend=backend,
        host=host,
        port=port,
        workers=workers,
        api_keys=read_api_keys(api_keys) if api_keys else None,
        origins=tuple(allow_origin or ()),
        log_level=log_level,
        limits=Limits(queue_chars=queue_chars),
        timeouts=Timeouts(deadline=deadline, grace=grace),
    )
    run(settings)
