"""ASGI middleware: response headers, access log, API keys, and limits of requests."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response

from capsar.serve.settings import BODY_BYTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from capsar.serve.batcher import Batcher
    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import Settings

LOG_FIELDS = "capsar.log_fields"
"""Key of a request's scope that holds the fields of its log line; none of them contains text."""
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
_SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
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
_QUIET_ROUTES = {"/healthz", "/readyz", "/metrics"}
_PROTECTED = ("/v1/", "/metrics")
_PUBLIC = "/v1/openapi.json"
_WITH_BODY = {"/v1/analyze", "/v1/classify", "/v1/explain"}
_BEARER = b"bearer "


def error_response(
    status: int, message: str, *, name: str = "", headers: dict[str, str] | None = None
) -> Response:
    """Return an error response; `name` defaults to the name of the status.

    >>> error_response(503, "Retry in 2 s.").body.decode()
    '{"error": "busy", "message": "Retry in 2 s."}'
    """
    content = {"error": name or _ERROR_NAMES.get(status, "internal_error"), "message": message}
    return Response(dumps(content), status, headers, "application/json")


def busy_response(batcher: Batcher) -> Response:
    """Return 503 with the time after which to retry."""
    seconds = str(batcher.retry_after_seconds())
    message = f"The queue is full. Retry in {seconds} s."
    return error_response(_BUSY, message, headers={"retry-after": seconds})


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
                headers = [*message.get("headers", ()), *_SECURITY_HEADERS]
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
        path = _route_path(scope)
        route = path if path in self._routes else "other"
        self._metrics.requests.labels(route, status).inc()
        if status < 400:  # noqa: PLR2004
            self._metrics.latency.labels(route).observe(seconds)
        level = logging.DEBUG if status == _BUSY or route in _QUIET_ROUTES else logging.INFO
        if not _LOGGER.isEnabledFor(level):  # rejecting a request must be cheap
            return
        fields = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 1),
        }
        _LOGGER.log(level, "request", extra={"fields": fields | scope[LOG_FIELDS]})


def _route_path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _request_id(scope: Scope) -> str:
    """Return the client's request id if it is valid, otherwise a new one."""
    sent = dict(scope["headers"]).get(b"x-request-id", b"")
    return sent.decode("ascii") if _REQUEST_ID.fullmatch(sent) else os.urandom(8).hex()


class LimitMiddleware:
    """Checks API key, queue, content type and size, and rejects a request as early as possible."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        batcher: Batcher,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._app = app
        self._batcher = batcher
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] == "http":
            headers: dict[bytes, bytes] = dict(scope["headers"])
            rejected = self._check_key(scope, headers) or self._check_body(scope, headers)
            if rejected:
                await rejected(scope, receive, send)
                return
            if scope["method"] == "POST":
                receive = self._limit_body(receive)
        await self._app(scope, receive, send)

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Return 401 for a missing or an unknown key, as in RFC 6750, section 3."""
        path, keys = _route_path(scope), self._settings.api_keys
        if keys is None or not path.startswith(_PROTECTED) or path == _PUBLIC:
            return None
        sent = headers.get(b"authorization", b"")
        key = sent[len(_BEARER) :].strip() if sent[: len(_BEARER)].lower() == _BEARER else b""
        owner = keys.get(sha256(key).hexdigest())
        if owner is not None:
            scope[LOG_FIELDS]["key"] = owner
            return None
        scope[LOG_FIELDS]["refused"] = "unknown key" if key else "no key"
        if not key:
            message = "This service requires an API key. Send the header Authorization: Bearer KEY."
            return error_response(401, message, headers={"www-authenticate": "Bearer"})
        message = (
            "The API key is not valid: it is mistyped or was revoked. Request a new key from the "
            "operator of this service."
        )
        challenge = {"www-authenticate": 'Bearer error="invalid_token"'}
        return error_response(401, message, name="invalid_api_key", headers=challenge)

    def _check_body(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Reject a body before it is received."""
        if scope["method"] != "POST" or _route_path(scope) not in _WITH_BODY:
            return None
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > BODY_BYTES:
            return error_response(413, _TOO_LARGE)
        if self._batcher.is_full:
            self._metrics.shed.inc()
            return busy_response(self._batcher)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json" or b"content-encoding" in headers:
            message = "Send JSON, with the header Content-Type: application/json."
            return error_response(415, message)
        return None

    def _limit_body(self, receive: Receive) -> Receive:
        """Return a `receive` that fails for a body that is too large or too slow."""
        left, has_more = BODY_BYTES, True
        end = asyncio.get_running_loop().time() + self._settings.body_timeout

        async def receive_limited() -> Message:
            nonlocal left, has_more
            if not has_more:
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                seconds = self._settings.body_timeout
                reason = f"The body was not received in {seconds:g} s."
                raise HTTPException(408, reason, {"connection": "close"}) from None
            left -= len(message.get("body", b""))
            has_more = message.get("more_body", False)
            if left < 0:
                raise HTTPException(413, _TOO_LARGE)
            return message

        return receive_limited


_TOO_LARGE = f"The body must not exceed {BODY_BYTES} bytes. Send fewer texts per request."
