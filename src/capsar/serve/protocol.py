"""HTTP connections with timeouts and size limits, which uvicorn's own protocol does not have.

The headers and body of a request must arrive in time and within the size limits. A connection is
closed only after its client could read the response. During shutdown, requests that are already
being sent are still served.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from capsar.serve.middleware import JSON, error_body, send_busy

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from capsar.serve.settings import Limits, Timeouts

_MAX_HEADERS = 100
_LARGE_HEADERS = "The headers of the request are too large."
_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
}


class _Part(Enum):
    """The part of a request that is being received."""

    NOTHING = auto()
    HEADERS = auto()
    BODY = auto()


class SharedState(ServerState):
    """State shared by the connections of a worker."""

    def __init__(self) -> None:
        super().__init__()
        self.is_draining = False
        """Whether the service is shutting down; a response then closes its connection."""


class GuardedProtocol(HttpToolsProtocol):
    """HTTP connection with limits; `enforce_timeout` must be called regularly."""

    def __init__(self, *, limits: Limits, timeouts: Timeouts, **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self._limits = limits
        self._timeouts = timeouts
        self._close_at = math.inf
        self._receiving = _Part.NOTHING
        self._header_bytes = 0
        self._is_rejected = False
        self._current: RequestResponseCycle | None = None

    @property
    def _is_draining(self) -> bool:
        return isinstance(self.server_state, SharedState) and self.server_state.is_draining

    @property
    def _is_busy(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; reject it if there are too many."""
        super().connection_made(transport)
        self._set_timeout(self._timeouts.linger if self._is_draining else self._timeouts.headers)
        if len(self.connections) > 2 * self._limits.connections:
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self.app = _too_many_connections

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the running request, which is not always the last one received."""
        super().connection_lost(exc)
        if self._current is not None and not self._current.response_complete:
            self._current.disconnected = True
            self._current.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._current = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Receive bytes, and reject headers that are too large."""
        if self._is_rejected:
            return  # not closed yet: closing with unread bytes would discard the error response
        has_started = self._receiving is _Part.HEADERS
        super().data_received(data)
        if self._receiving is _Part.HEADERS and has_started:
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.header_bytes:
                self._reject(431, _LARGE_HEADERS)

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._receiving = _Part.HEADERS
        self._header_bytes = 0
        self._set_timeout(self._timeouts.headers)

    def on_headers_complete(self) -> None:
        """Start to handle a request, unless its headers are too large."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self._limits.header_bytes or len(self.headers) > _MAX_HEADERS:
            self._reject(431, _LARGE_HEADERS)
            return
        super().on_headers_complete()
        self._receiving = _Part.BODY
        self._set_timeout(self._timeouts.body)
        if self._is_draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        if not self._is_rejected:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; its response may already be complete."""
        if self._is_rejected:
            return
        self._receiving = _Part.NOTHING
        self._close_at = math.inf
        super().on_message_complete()
        if self.cycle.response_complete:
            self._set_timeout(self._timeouts.idle)

    def on_response_complete(self) -> None:
        """End a response; the client can read it even if its request is not complete."""
        super().on_response_complete()
        if self._receiving is _Part.NOTHING:
            # Also limits a client that does not read its response.
            self._set_timeout(2 * self._timeouts.idle)
        elif self.cycle.response_complete:
            self._set_timeout(self._timeouts.linger)

    def send_400_response(self, msg: str) -> None:
        """Reject input that is not HTTP."""
        self._reject(400, msg)

    def shutdown(self) -> None:
        """Close after the running request; wait briefly for one that is being sent."""
        if self._is_busy:
            self.cycle.keep_alive = False
        elif not self._is_rejected:
            self._unset_keepalive_if_required()
            self._set_timeout(self._timeouts.linger)

    def enforce_timeout(self) -> None:
        """Close the connection if its timeout has passed."""
        if self.loop.time() < self._close_at:
            return
        is_waiting = self._receiving is _Part.HEADERS or (
            self._receiving is _Part.BODY and not self.cycle.response_started
        )
        if is_waiting and not self._is_rejected:
            self._reject(408, "The request was not received in time.")
        else:
            self.transport.abort()

    def _set_timeout(self, seconds: float) -> None:
        self._close_at = self.loop.time() + seconds

    def _reject(self, status: int, message: str) -> None:
        """Send an error without the application, and ignore further input of this client."""
        if self._is_rejected or self.transport.is_closing():
            return
        self._is_rejected = True
        self._set_timeout(self._timeouts.linger)
        if self.pipeline or (self._is_busy and self._receiving is not _Part.BODY):
            self.transport.abort()  # an earlier response is being sent
            return
        if self._is_busy:  # the response of the application would not be read
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = error_body(status, message)
        head = (b"HTTP/1.1 %d %s" % (status, _REASONS[status]), b"content-type: " + JSON)
        length = b"content-length: %d" % len(body)
        self.transport.write(b"\r\n".join((*head, length, b"connection: close", b"", body)))
        self.transport.write_eof()


async def _too_many_connections(_: Scope, __: Receive, send: Send) -> None:
    await send_busy(send, 1, close=True)
