"""`capsar serve`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (typer reads the annotations)
from typing import Annotated, Literal

import typer

from capsar.bundle import DEFAULT_MODEL


def serve_command(  # noqa: PLR0913
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Bundled model, folder of a trained one, or hub id; repeat it as NAME=MODEL to "
            f"serve several.  [default: {DEFAULT_MODEL}]"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port; 0 chooses a free one.")
    ] = 8000,
    threads: Annotated[int, typer.Option(min=0, help="Inference threads; 0 for one per CPU.")] = 0,
    backend: Annotated[
        str, typer.Option(help="Runs the encoder: onnxruntime, or openvino (an extra).")
    ] = "onnxruntime",
    api_keys: Annotated[
        Path | None, typer.Option(help="File of hashed API keys; requests then need one of them.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Allow web pages of this origin (CORS); repeatable.")
    ] = None,
    root_path: Annotated[
        str, typer.Option(help="Path under which a proxy serves this, such as /absa.")
    ] = "",
    proxies: Annotated[
        str, typer.Option(help="Addresses of proxies, whose X-Forwarded headers are used.")
    ] = "127.0.0.1",
    queue_chars: Annotated[
        int, typer.Option(min=1, help="Characters of work that may be queued, and of one request.")
    ] = 65_536,
    deadline: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Seconds until a request fails with 504.")
    ] = 30.0,
    body_timeout: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Seconds to receive a body.")
    ] = 20.0,
    grace: Annotated[
        float,
        typer.Option(min=0.001, max=86_400, help="Seconds to finish requests after SIGTERM."),
    ] = 20.0,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="What to log.")
    ] = "info",
) -> None:
    """Serve models over HTTP, with a demo page.

    `capsar serve --port 8000`

    `capsar serve --model base --model phones=runs/phones/bundle --host 0.0.0.0 --api-keys keys.txt`

    Every option can be set by an environment variable, such as CAPSAR_SERVE_PORT.
    """
    from capsar.errors import MissingExtraError

    try:
        from capsar.serve.server import run
        from capsar.serve.settings import Settings, read_api_keys
    except ImportError as error:
        raise MissingExtraError("serve", "Serving") from error
    settings = Settings(
        models=tuple(model or (DEFAULT_MODEL,)),
        threads=threads,
        backend=backend,
        host=host,
        port=port,
        root_path=f"/{root_path.strip('/')}".rstrip("/"),
        proxies=proxies,
        api_keys=read_api_keys(api_keys) if api_keys else None,
        origins=tuple(allow_origin or ()),
        queue_chars=queue_chars,
        deadline=deadline,
        body_timeout=body_timeout,
        grace=grace,
        log_level=log_level,
    )
    run(settings)
