"""Worker processes that exchange one line of text per request and per response.

Unlike `multiprocessing`, this needs no `__main__` guard in the caller's script. A worker process
exits when its parent does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from capsar.errors import ArtifactError, CapsarError

if TYPE_CHECKING:
    from collections.abc import Callable

_READY = "ready"
_MAX_STARTS = 5
"""How often to start a process that crashes during start-up."""
_POLL_SECONDS = 0.5
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of a worker: one per core, so each uses one thread."""


class WorkerProcess:
    """A Python module that runs as a process, and the pipes to it."""

    def __init__(self, module: str, setup: str) -> None:
        """Start the process.

        Args:
            module: Its `main` calls `serve_requests`.
            setup: The first line to send.

        Raises:
            ArtifactError: If the worker reports an error, or crashes in every start.
        """
        modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for _ in range(_MAX_STARTS):
            self._process = subprocess.Popen(  # noqa: S603  (this program)
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                process_group=0,  # signals go to the parent only, which then ends this process
                env=os.environ | SINGLE_THREAD | modules,
            )
            response = self.request(setup)
            if response == _READY:
                return
            code = self.close()
            if response is not None:
                raise ArtifactError(f"A worker cannot start: {response}")
        raise ArtifactError(f"No worker was ready after {_MAX_STARTS} starts; exit code {code}")

    def request(self, line: str) -> str | None:
        """Send a line and return the response, or `None` if the process has crashed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return None
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError:
            return None
        response = stdout.readline()
        if not response.endswith("\n"):
            self._process.wait()
            return None
        return response.rstrip("\n")

    def kill(self) -> None:
        """Kill the process; a pending `request` returns `None`."""
        self._process.kill()

    def close(self) -> int:
        """Kill the process and return its exit code."""
        self.kill()
        self._process.communicate()
        return self._process.returncode


def serve_requests(setup: Callable[[str], Callable[[str], str]]) -> None:
    """Respond to lines on standard input until it ends, or until the parent process is gone.

    Args:
        setup: Receives the first line and returns the function that handles the others.
    """
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    # Redirect standard output, so that output of a library is not read as a response.
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = os.fdopen(sys.stdin.fileno(), encoding="utf-8", closefd=False)
    try:
        handle = setup(requests.readline())
    except CapsarError as error:
        print(" ".join(str(error).split()), file=responses, flush=True)
        return
    print(_READY, file=responses, flush=True)
    with suppress(BrokenPipeError):  # the parent is gone
        while line := requests.readline():
            print(handle(line), file=responses, flush=True)


def _exit_with(parent: int) -> None:
    """Exit at once when the parent process is gone, because nothing waits for the result."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
