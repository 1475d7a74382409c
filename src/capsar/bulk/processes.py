"""Python modules that run as worker processes and exchange messages with their parent.

Unlike `multiprocessing`, this needs no `__main__` guard in the caller's script. A worker process
exits when its parent does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from capsar.errors import CapsarError

READY, FAILED, ROWS, DONE, CRASHED = "ready", "failed", "rows", "done", "crashed"
"""Kinds of messages: after start-up, while a request is handled, and at its end."""
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of a worker: one per core, so each uses one thread."""
_POLL_SECONDS = 0.5

Message = tuple[str, Any]
Setup = Callable[[Any, Callable[[int], None]], Callable[[Any], object]]


class WorkerProcess:
    """A Python module that runs as a process, and the connection to it."""

    def __init__(self, module: str, setup: object) -> None:
        """Start the process.

        Args:
            module: Its `main` calls `serve_requests`.
            setup: The first object to send. The process responds with `READY` or `FAILED`.
        """
        self.connection, theirs = Pipe()
        fd = str(theirs.fileno())
        modules = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p and isinstance(p, str))}
        self._process = subprocess.Popen(  # noqa: S603  (this program)
            [sys.executable, "-P", "-c", f"from {module} import main; main()", fd],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # signals go to the parent only, which then ends this process
            env=os.environ | SINGLE_THREAD | modules,
        )
        theirs.close()
        self.send(setup)

    def send(self, request: object) -> None:
        """Send a request; if the process has crashed, `receive` reports it."""
        with suppress(OSError):
            self.connection.send(request)

    def receive(self) -> Message:
        """Return the next message, `CRASHED` with the exit code if the process has crashed."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):  # it is about to end with its own exit code
                self._process.wait(_POLL_SECONDS)
            return CRASHED, self.close()
        return message

    def close(self) -> int:
        """Kill the process and return its exit code."""
        self._process.kill()
        self.connection.close()
        return self._process.wait()


def serve_requests(setup: Setup) -> None:
    """Handle the requests of the parent process until it closes the connection."""
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    handle_requests(Connection(int(sys.argv[1])), setup)


def handle_requests(connection: Connection, setup: Setup) -> None:
    """Handle requests until the connection is closed.

    Args:
        connection: Receives the setup, then requests.
        setup: Receives the first object, and a function to report the number of rows that were
            scored; returns the function that handles requests.
    """
    with connection, suppress(EOFError, OSError):  # the other side is gone
        first = connection.recv()
        try:
            handle = setup(first, lambda rows: connection.send((ROWS, rows)))
        except CapsarError as error:
            connection.send((FAILED, str(error)))
            return
        connection.send((READY, None))
        while True:
            connection.send((DONE, handle(connection.recv())))


def _exit_with(parent: int) -> None:
    """Exit at once when the parent process is gone, because nothing waits for the result."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
