"""Run the service: one uvicorn process, which finishes all received requests on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

import uvicorn

from capsar.errors import ConfigError
from capsar.serve.app import create_app
from capsar.serve.metrics import start_logging

if TYPE_CHECKING:
    from capsar.serve.settings import Settings

_LOGGER = logging.getLogger(__name__)
_MAX_CONNECTIONS = 1000
_ACCEPT_SECONDS = 0.5
_LINGER_SECONDS = 1.0
_CANCEL_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 65
"""Longer than the 60 seconds of common proxies, which otherwise reuse closed connections."""


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of all responses, including those that uvicorn makes itself."""


class Server(uvicorn.Server):
    """A server that answers once more on open connections before it closes them.

    A client that sends a request on an idle connection while it is closed would lose it.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, wait for the last requests, and finish them."""
        for listener in sockets or ():
            listener.listen(0)  # closing it would reset the connections that wait to be accepted
        await asyncio.sleep(_ACCEPT_SECONDS)
        for server in self.servers:
            server.close()
        self.server_state.default_headers.append((b"connection", b"close"))
        await asyncio.sleep(_LINGER_SECONDS)
        await super().shutdown(sockets)
        if tasks := self.server_state.tasks:  # cancelled after the grace period
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: If the address cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error}. Choose another --host or --port."
        ) from error


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ArtifactError: If a model cannot be used.
        ConfigError: If the address cannot be used.
    """
    start_logging(settings.log_level)
    app = create_app(settings)  # reports a damaged model before the service listens
    seconds = settings.grace - _ACCEPT_SECONDS - _LINGER_SECONDS - _CANCEL_SECONDS
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        headers=list(_HEADERS.items()),
        log_config=None,
        access_log=False,
        server_header=False,
        root_path=settings.root_path,
        forwarded_allow_ips=settings.proxies,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(seconds)),
    )
    with listen(settings.host, settings.port) as listener:
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        fields = {"models": list(settings.sources), "threads": settings.num_threads}
        fields["url"] = f"http://{address}:{port}/"
        _LOGGER.info("ready", extra={"fields": fields})
        Server(config).run(sockets=[listener])
