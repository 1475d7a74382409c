"""Around every answer: security headers, a log line without texts, and figures."""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING

from capsar.serve.admission import FACTS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from capsar.serve.metrics import Metrics

_LOGGER = logging.getLogger("capsar.serve.access")
_BUSY = 503
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", _POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/=+@-]{1,128}")
"""What may go from a client into the log and back: no blanks, no quotes, no end of a line."""
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET = {"/healthz", "/readyz", "/metrics"}


class Envelope:
    """The outermost ASGI layer."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, routes: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and see to what its answer carries."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        facts = scope[FACTS] = {"id": _request_id(scope)}
        status = 0

        async def send_in_envelope(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *SECURITY_HEADERS]
                headers.append((b"x-request-id", facts["id"].encode("ascii")))
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_in_envelope)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # A path that nobody serves may be anything, a text even.
        route = scope["path"] if scope["path"] in self._routes else "other"
        self._metrics.requests.labels(route, status).inc()
        if status < 400:  # noqa: PLR2004
            self._metrics.latency.labels(route).observe(seconds)
        level = logging.DEBUG if status == _BUSY or route in _QUIET else logging.INFO
        if not _LOGGER.isEnabledFor(level):  # refusals must be cheap
            return
        told = {
            "method": scope["method"] if scope["method"] in _METHODS else "other",
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 1),
        }
        _LOGGER.log(level, "request", extra={"facts": told | scope[FACTS]})


def _request_id(scope: Scope) -> str:
    """Return the client's name for its request, or a new one if it gave none that can be used."""
    given = dict(scope["headers"]).get(b"x-request-id", b"")
    return given.decode("ascii") if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex()
