"""ASGI middleware: error responses, response headers, access log, API keys and admission."""

from __future__ import annotations

import logging
import os
import re
import time
from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from capsar.serve.batcher import Batcher
    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import ApiKeys, Limits

LOG_FIELDS = "capsar.log_fields"
"""Key of a request's scope that holds the fields of its log line; none of them contains text."""
JSON = b"application/json"
_LOGGER = logging.getLogger("capsar.serve.access")
_ERROR_NAMES = {
    400: "bad_request",
    401: "missing_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "too_large",
    415: "not_json",
    422: "invalid_request",
    431: "too_large",
    499: "client_closed_request",
    500: "internal_error",
    503: "busy",
    504: "deadline_exceeded",
}
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
"""Request ids accepted from clients: no spaces, quotes or line ends, since they are logged."""
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET_ROUTES = {"/healthz", "/readyz", "/metrics"}
_PROTECTED = ("/v1/", "/metrics")
_PUBLIC = "/v1/openapi.json"
_POST_ROUTES = ("/v1/analyze", "/v1/classify", "/v1/explain")
_BEARER = b"bearer "


def error_body(status: int, message: str, name: str = "") -> bytes:
    """Return the body of an error response; `name` defaults to the name of the status.

    >>> error_body(503, "Retry in 2 s.").decode()
    '{"error": "busy", "message": "Retry in 2 s."}'
    """
    content = {"error": name or _ERROR_NAMES.get(status, "internal_error"), "message": message}
    return dumps(content).encode("ascii")


async def send_error(
    send: Send,
    status: int,
    message: str,
    *headers: tuple[bytes, bytes],
    name: str = "",
    close: bool = False,
) -> None:
    """Send an error response, and close the connection if `close` is set."""
    body = error_body(status, message, name)
    sent = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *headers]
    if close:
        sent.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


async def send_busy(send: Send, retry_after_seconds: int, *, close: bool = False) -> None:
    """Send 503 with the time after which to retry."""
    message = f"The queue is full. Retry in {retry_after_seconds} s."
    retry = (b"retry-after", b"%d" % retry_after_seconds)
    await send_error(send, _BUSY, message, retry, close=close)


class RequestMiddleware:
    """Outermost layer: adds response headers, counts requests, and writes the access log."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, routes: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        request_id = _request_id(scope)
        scope[LOG_FIELDS] = {"id": request_id}
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *SECURITY_HEADERS]
                headers.append((b"x-request-id", request_id.encode("ascii")))
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # An unknown path is not logged: it may contain text.
        route = scope["path"] if scope["path"] in self._routes else "other"
        self._metrics.requests.labels(route, status).inc()
        if status < 400:  # noqa: PLR2004
            self._metrics.latency.labels(route).observe(seconds)
        level = logging.DEBUG if status == _BUSY or route in _QUIET_ROUTES else logging.INFO
        if not _LOGGER.isEnabledFor(level):  # rejecting a request must be cheap
            return
        fields = {
            "method": scope["method"] if scope["method"] in _METHODS else "other",
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 1),
        }
        _LOGGER.log(level, "request", extra={"fields": fields | scope[LOG_FIELDS]})


def _request_id(scope: Scope) -> str:
    """Return the client's request id if it is valid, otherwise a new one."""
    sent = dict(scope["headers"]).get(b"x-request-id", b"")
    return sent.decode("ascii") if _REQUEST_ID.fullmatch(sent) else os.urandom(8).hex()


class _TooLargeError(Exception):
    """The body is larger than allowed."""


class _FullError(Exception):
    """The bodies being received are too large together, or the queue is full."""


class AdmissionMiddleware:
    """Checks API key, size, content type and queue, and rejects a request as early as possible."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        batcher: Callable[[], Batcher],
        limits: Limits,
        metrics: Metrics,
        api_keys: ApiKeys | None,
    ) -> None:
        self._app = app
        self._batcher = batcher
        self._limits = limits
        self._metrics = metrics
        self._api_keys = api_keys
        self._receiving_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path: str = scope["path"]
        if self._api_keys and path.startswith(_PROTECTED) and path != _PUBLIC:
            key = _bearer_key(headers)
            name = self._api_keys.name_of(key)
            if name is None:
                scope[LOG_FIELDS]["refused"] = "unknown key" if key else "no key"
                await _send_unauthorized(send, has_key=bool(key))
                return
            scope[LOG_FIELDS]["key"] = name
        if scope["method"] != "POST" or path not in _POST_ROUTES:  # no body is read there
            await self._app(scope, receive, send)
            return
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() else 0
        try:
            self._check(size)
            if not _is_json(headers):
                message = "Send JSON, with the header Content-Type: application/json."
                await send_error(send, 415, message)
                return
            body = await self._read(receive)
            if body is None:
                return  # the client has disconnected
            self._check(len(body))
        except _TooLargeError:
            message = (
                f"The body must not exceed {self._limits.body_bytes} bytes. "
                "Send fewer texts per request."
            )
            await send_error(send, 413, message)
            return
        except _FullError:
            self._metrics.shed.inc()
            await send_busy(send, self._batcher().retry_after_seconds())
            return
        await self._app(scope, _replay(body, receive), send)

    def _check(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise _TooLargeError
        if not self._batcher().has_room(size):
            raise _FullError

    async def _read(self, receive: Receive) -> bytes | None:
        """Read a body up to the limit; return None if the client disconnects."""
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                chunk: bytes = message.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                self._receiving_bytes += len(chunk)
                if size > self._limits.body_bytes:
                    raise _TooLargeError
                if not message.get("more_body", False):
                    return b"".join(chunks)
                if self._receiving_bytes > self._limits.bodies_bytes:
                    raise _FullError
        finally:
            self._receiving_bytes -= size


def _bearer_key(headers: dict[bytes, bytes]) -> bytes:
    sent = headers.get(b"authorization", b"")
    return sent[len(_BEARER) :].strip() if sent[: len(_BEARER)].lower() == _BEARER else b""


async def _send_unauthorized(send: Send, *, has_key: bool) -> None:
    """Send 401 for a missing or an unknown key, as in RFC 6750, section 3."""
    if has_key:
        message = (
            "The API key is not valid: it is mistyped or was revoked. Request a new key from the "
            "operator of this service."
        )
        challenge = (b"www-authenticate", b'Bearer error="invalid_token"')
        await send_error(send, 401, message, challenge, name="invalid_api_key")
        return
    message = "This service requires an API key. Send the header Authorization: Bearer KEY."
    await send_error(send, 401, message, (b"www-authenticate", b"Bearer"))


def _is_json(headers: dict[bytes, bytes]) -> bool:
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return media_type == b"application/json" and b"content-encoding" not in headers


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields a body that was read already, then the messages after it."""
    is_sent = False

    async def next_message() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
