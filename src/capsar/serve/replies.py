"""Answers that say no, and why: one form for all of them."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Send

JSON = b"application/json"
_NAMES = {
    400: "bad_request",
    401: "key_needed",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "not_json",
    422: "not_understood",
    431: "too_large",
    499: "client_gone",
    500: "failed",
    503: "busy",
    504: "too_late",
}


def problem(status: int, message: str, name: str = "") -> bytes:
    """Return the body of an answer that says no; the status has a name, if none is given.

    >>> problem(503, "Ask again later.").decode()
    '{"error": "busy", "message": "Ask again later."}'
    """
    content = {"error": name or _NAMES.get(status, "failed"), "message": message}
    return dumps(content).encode("ascii")


async def refuse(
    send: Send,
    status: int,
    message: str,
    *headers: tuple[bytes, bytes],
    name: str = "",
    is_last: bool = False,
) -> None:
    """Send an answer that says no; the last one of a connection ends it."""
    body = problem(status, message, name)
    given = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *headers]
    if is_last:
        given.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


async def refuse_busy(send: Send, retry_after_seconds: int, *, is_last: bool = False) -> None:
    """Say that there is no room now, and when to ask again."""
    message = f"The queue is full. Ask again in {retry_after_seconds} s."
    retry = (b"retry-after", b"%d" % retry_after_seconds)
    await refuse(send, 503, message, retry, is_last=is_last)
