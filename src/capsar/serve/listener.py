"""The socket that is listened on, and how to leave it without losing anyone."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

from capsar.errors import ConfigError

BACKLOG = 2048
_SO_ATTACH_FILTER = 26  # of Linux; Python has no name for it
_NO_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags of the TCP header
        (0x45, 0, 1, 0x02),  # is SYN among them?
        (0x06, 0, 0, 0),  # then drop the packet
        (0x06, 0, 0, 0xFFFFFFFF),  # else take all of it
    )
)
"""A packet filter that nobody new gets through; who has connected is not touched by it."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigError: If the address cannot be listened on.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error}. Choose another --host or --port."
        ) from error


def refuse_newcomers(listener: socket.socket) -> None:
    """Let nobody new connect, in any process that has this socket; those in its backlog stay.

    Closing alone cannot do that: it resets who has connected after the last `accept`. Who is kept
    out asks again within a second or so, and is refused once the socket is closed.
    """
    if sys.platform != "linux":
        return  # whoever comes between the last `accept` and the close is reset there
    code = ctypes.create_string_buffer(_NO_SYN, len(_NO_SYN))
    program = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(code))
    with suppress(OSError):  # a kernel without filters: as above
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """Accept whoever has connected by now, and close the listening socket."""
    accepted = []
    listener.setblocking(False)
    with listener:
        while True:
            try:
                accepted.append(listener.accept()[0])
            except BlockingIOError:
                return accepted
            except ConnectionAbortedError:
                continue
