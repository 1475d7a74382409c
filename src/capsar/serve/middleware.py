"""ASGI middleware: request ids, access log, API keys, and limits of requests."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from capsar.serve.schemas import error_response
from capsar.serve.settings import API_PATHS, BODY_BYTES

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from capsar.serve.batcher import Batcher
    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import Settings

LOG_FIELDS = "capsar.log_fields"
"""Key of a request's scope that holds the fields of its log line; none of them contains text."""
_LOGGER = logging.getLogger("capsar.serve.access")
_BUSY = 503
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/=+@-]{1,128}")
"""Request ids accepted from clients: no spaces, quotes or line ends, since they are logged."""
_QUIET_ROUTES = {"/healthz", "/readyz", "/metrics"}
_PROTECTED = ("/v1/", "/metrics")


def busy_response(batcher: Batcher) -> Response:
    """Reject a request: return 503 with the time after which to retry."""
    seconds = str(batcher.reject())
    message = f"The queue is full. Retry in {seconds} s."
    return error_response(_BUSY, message, headers={"retry-after": seconds})


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """Outermost layer: adds the request id, counts requests, and writes the access log."""

    app: ASGIApp
    metrics: Metrics
    routes: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        start = time.perf_counter()
        request_id = _request_id(scope)
        scope[LOG_FIELDS] = {"id": request_id}
        status = 500  # until there is a response

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self._record(scope, status, time.perf_counter() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # An unknown path is not logged: it may contain text.
        path = _route_path(scope)
        route = path if path in self.routes else "other"
        self.metrics.requests.labels(route, status).inc()
        if status < 400:  # noqa: PLR2004
            self.metrics.latency.labels(route).observe(seconds)
        level = logging.DEBUG if status == _BUSY or route in _QUIET_ROUTES else logging.INFO
        if _LOGGER.isEnabledFor(level):  # rejecting a request must be cheap
            fields = {"method": scope["method"], "route": route, "status": status}
            fields |= {"ms": round(1000 * seconds, 1)} | scope[LOG_FIELDS]
            _LOGGER.log(level, "request", extra={"fields": fields})


def _route_path(scope: Scope) -> str:
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _request_id(scope: Scope) -> str:
    """Return the client's request id if it is valid, otherwise a new one."""
    sent: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
    if _REQUEST_ID.fullmatch(sent):
        return sent.decode("ascii")
    # os.urandom would release the lock of the interpreter, and wait for an inference thread.
    return f"{random.getrandbits(64):016x}"


@dataclass(frozen=True, slots=True)
class LimitMiddleware:
    """Checks API key, queue, content type and size, and rejects a request as early as possible."""

    app: ASGIApp
    batcher: Batcher
    settings: Settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        rejected = self._check_key(scope, headers) or self._check_body(scope, headers)
        if scope["path"].endswith("\n"):  # the router would ignore it
            rejected = error_response(404, "Not Found: see /v1/openapi.json.")
        await (rejected or self.app)(scope, self._limit_body(receive), send)

    def _check_key(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Return 401 for a missing or an unknown key, as in RFC 6750, section 3."""
        path, keys = _route_path(scope), self.settings.api_keys
        if keys is None or not path.startswith(_PROTECTED) or path == "/v1/openapi.json":
            return None
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip() if scheme.lower() == b"bearer" else b""
        if key and (owner := keys.get(sha256(key).hexdigest())):
            scope[LOG_FIELDS]["key"] = owner
            return None
        scope[LOG_FIELDS]["refused"] = "unknown key" if key else "no key"
        if not key:
            message = "This service requires an API key. Send the header Authorization: Bearer KEY."
            return error_response(401, message, headers={"www-authenticate": "Bearer"})
        message = "The API key is not valid: mistyped or revoked. Request one from the operator."
        challenge = {"www-authenticate": 'Bearer error="invalid_token"'}
        return error_response(401, message, name="invalid_api_key", headers=challenge)

    def _check_body(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Reject a body before it is received."""
        if scope["method"] != "POST" or _route_path(scope) not in API_PATHS:
            return None
        length = headers.get(b"content-length", b"").lstrip(b"0")
        if length.isdigit() and int(length) > BODY_BYTES:
            return error_response(413, _TOO_LARGE)
        if self.batcher.is_full:
            return busy_response(self.batcher)
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json" or b"content-encoding" in headers:
            return error_response(415, "Send JSON, with the header Content-Type: application/json.")
        return None

    def _limit_body(self, receive: Receive) -> Receive:
        """Return a `receive` that fails for a body that is too large or too slow."""
        left = BODY_BYTES
        end: float | None = asyncio.get_running_loop().time() + self.settings.body_timeout

        async def receive_limited() -> Message:
            nonlocal left, end
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                reason = f"The body was not received in {self.settings.body_timeout:g} s."
                raise HTTPException(408, reason, {"connection": "close"}) from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, _TOO_LARGE)
            if message["type"] == "http.disconnect" and end:
                raise HTTPException(499, "The client has disconnected.")
            if not message.get("more_body"):
                end = None  # what follows is the disconnect of the client
            return message

        return receive_limited


_TOO_LARGE = f"The body must not exceed {BODY_BYTES} bytes. Send fewer texts per request."
