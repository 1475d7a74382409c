"""Who is let in: keys, sizes and room in the queue, before a body is read, let alone parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.serve.replies import refuse, refuse_busy

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from capsar.serve.batcher import Batcher
    from capsar.serve.keys import Keys
    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import Limits

FACTS = "capsar.facts"
"""Where a request's scope holds what its log line tells, none of it from a text."""
_GUARDED = ("/v1/", "/metrics")
_OPEN = "/v1/openapi.json"
_QUESTIONS = ("/v1/analyze", "/v1/classify", "/v1/explain")
_BEARER = b"bearer "


class _TooLargeError(Exception):
    """More bytes than a body may have."""


class _FullError(Exception):
    """More bytes than all bodies together may have, or no room left in the queue."""


class Admission:
    """An ASGI layer that refuses what will not be answered, as early and cheaply as it can."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        batcher: Callable[[], Batcher],
        limits: Limits,
        metrics: Metrics,
        keys: Keys | None,
    ) -> None:
        self._app = app
        self._batcher = batcher
        self._limits = limits
        self._metrics = metrics
        self._keys = keys
        self._receiving_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path: str = scope["path"]
        if self._keys and path.startswith(_GUARDED) and path != _OPEN:
            key = _given_key(headers)
            name = self._keys.name_of(key)
            if name is None:
                scope[FACTS]["refused"] = "unknown key" if key else "no key"
                await _refuse_key(send, is_given=bool(key))
                return
            scope[FACTS]["key"] = name
        if scope["method"] != "POST" or path not in _QUESTIONS:  # nobody reads a body there
            await self._app(scope, receive, send)
            return
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() else 0
        try:
            self._check(size)
            if not _is_json(headers):
                told = "Send JSON, with the header Content-Type: application/json."
                await refuse(send, 415, told)
                return
            body = await self._read(receive)
            if body is None:
                return  # the client has gone
            self._check(len(body))
        except _TooLargeError:
            told = f"A body may have {self._limits.body_bytes} bytes; send fewer texts at once."
            await refuse(send, 413, told)
            return
        except _FullError:
            self._metrics.shed.inc()
            await refuse_busy(send, self._batcher().retry_after_seconds())
            return
        await self._app(scope, _replay(body, receive), send)

    def _check(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise _TooLargeError
        if not self._batcher().has_room(size):
            raise _FullError

    async def _read(self, receive: Receive) -> bytes | None:
        """Read a body, never more of it than is allowed; nothing if its client goes."""
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


def _given_key(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"authorization", b"")
    return given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else b""


async def _refuse_key(send: Send, *, is_given: bool) -> None:
    """Say as RFC 6750 does (section 3) whether a key is missing or not known."""
    if is_given:
        told = (
            "This service does not know the key: it is mistyped, or no longer valid. Ask whoever "
            "runs the service for another."
        )
        challenge = (b"www-authenticate", b'Bearer error="invalid_token"')
        await refuse(send, 401, told, challenge, name="key_unknown")
        return
    told = "This service asks for a key: send the header Authorization: Bearer KEY."
    await refuse(send, 401, told, (b"www-authenticate", b"Bearer"))


def _is_json(headers: dict[bytes, bytes]) -> bool:
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return media_type == b"application/json" and b"content-encoding" not in headers


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give a body that has been read, and then whatever comes after it."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
