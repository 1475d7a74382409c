"""HTTP on a connection, guarded: uvicorn's own protocol waits for slow clients without end.

A request's headers and body must come in time and in size, a connection that ends lets its client
read the answer first, and a service that ends serves the requests already on their way.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from capsar.serve.replies import JSON, problem, refuse_busy

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from capsar.serve.settings import Limits, Times

_MAX_HEADERS = 100
_LARGE_HEADERS = "The request's headers are too large."
_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
}


class _Part(Enum):
    """What part of a request is being received."""

    NOTHING = auto()
    HEADERS = auto()
    BODY = auto()


class SharedState(ServerState):
    """What the connections of a worker share."""

    def __init__(self) -> None:
        super().__init__()
        self.is_draining = False
        """Whether the service is ending: answers are then the last of their connection."""


class GuardedProtocol(HttpToolsProtocol):
    """A connection with limits. `enforce` must be called now and then."""

    def __init__(self, *, limits: Limits, times: Times, **given: Any) -> None:  # noqa: ANN401
        super().__init__(**given)
        self._limits = limits
        self._times = times
        self._end_by = math.inf
        self._receives = _Part.NOTHING
        self._header_bytes = 0
        self._is_refused = False
        self._in_work: RequestResponseCycle | None = None

    @property
    def _is_draining(self) -> bool:
        return isinstance(self.server_state, SharedState) and self.server_state.is_draining

    @property
    def _is_busy(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # before the first request, none
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; refuse it where there are too many."""
        super().connection_made(transport)
        self._allow(self._times.linger if self._is_draining else self._times.headers)
        if len(self.connections) > 2 * self._limits.connections:
            transport.abort()
        elif len(self.connections) > self._limits.connections:
            self.app = _too_many_connections

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request in work, which need not be the last one received."""
        super().connection_lost(exc)
        if self._in_work is not None and not self._in_work.response_complete:
            self._in_work.disconnected = True
            self._in_work.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._in_work = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see that headers do not grow without end."""
        if self._is_refused:
            return  # so that its client can read why: closing on unread bytes would lose it
        has_begun = self._receives is _Part.HEADERS
        super().data_received(data)
        if self._receives is _Part.HEADERS and has_begun:
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.header_bytes:
                self._refuse(431, _LARGE_HEADERS)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._receives = _Part.HEADERS
        self._header_bytes = 0
        self._allow(self._times.headers)

    def on_headers_complete(self) -> None:
        """Begin to answer, if the headers are not too large."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self._limits.header_bytes or len(self.headers) > _MAX_HEADERS:
            self._refuse(431, _LARGE_HEADERS)
            return
        super().on_headers_complete()
        self._receives = _Part.BODY
        self._allow(self._times.body)
        if self._is_draining:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; its answer may be over already."""
        if self._is_refused:
            return
        self._receives = _Part.NOTHING
        self._end_by = math.inf
        super().on_message_complete()
        if self.cycle.response_complete:
            self._allow(self._times.idle)

    def on_response_complete(self) -> None:
        """End an answer, and let the client read it even if its request is not over."""
        super().on_response_complete()
        if self._receives is _Part.NOTHING:
            # A client that does not read its answer has as long as one that asks nothing more.
            self._allow(2 * self._times.idle)
        elif self.cycle.response_complete:
            self._allow(self._times.linger)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(400, msg)

    def shutdown(self) -> None:
        """End after the request in work; wait a moment for one that is on its way."""
        if self._is_busy:
            self.cycle.keep_alive = False
        elif not self._is_refused:
            self._unset_keepalive_if_required()
            self._allow(self._times.linger)

    def enforce(self) -> None:
        """End the connection if its time is up."""
        if self.loop.time() < self._end_by:
            return
        waits = self._receives is _Part.HEADERS or (
            self._receives is _Part.BODY and not self.cycle.response_started
        )
        if waits and not self._is_refused:
            self._refuse(408, "The request was sent too slowly.")
        else:
            self.transport.abort()

    def _allow(self, seconds: float) -> None:
        self._end_by = self.loop.time() + seconds

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and take nothing more from this client."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._allow(self._times.linger)
        if self.pipeline or (self._is_busy and self._receives is not _Part.BODY):
            self.transport.abort()  # an earlier answer is under way
            return
        if self._is_busy:  # nobody will read what the application says
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = problem(status, message)
        head = (b"HTTP/1.1 %d %s" % (status, _REASONS[status]), b"content-type: " + JSON)
        length = b"content-length: %d" % len(body)
        self.transport.write(b"\r\n".join((*head, length, b"connection: close", b"", body)))
        self.transport.write_eof()


async def _too_many_connections(_: Scope, __: Receive, send: Send) -> None:
    await refuse_busy(send, 1, is_last=True)
