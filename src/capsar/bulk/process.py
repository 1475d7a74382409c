"""A process that answers lines: a question a line in, an answer a line out.

Plain text, no objects; it needs no guard in a user's script, and it ends when whoever asks does.
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
_STARTS = 5
"""A process that dies while it starts, by whatever, is started again so often in all."""
_SECONDS_BETWEEN_LOOKS = 0.5
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class LineProcess:
    """A Python module run as a process, and the two pipes to it."""

    def __init__(self, module: str, first: str) -> None:
        """Start it.

        Args:
            module: Its `main` calls `serve_lines`.
            first: The line that it begins with.

        Raises:
            ArtifactError: If it cannot begin, or died every time before it could.
        """
        modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for _ in range(_STARTS):
            self._process = subprocess.Popen(  # noqa: S603  (ourselves)
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                process_group=0,  # what stops whoever asks is told to them alone: they end this
                env=os.environ | _THREADS | modules,
            )
            answer = self.ask(first)
            if answer == _READY:
                return
            code = self.close()
            if answer is not None:
                raise ArtifactError(f"A worker cannot begin: {answer}")
        raise ArtifactError(f"No worker got ready in {_STARTS} starts; exit code {code}")

    def ask(self, line: str) -> str | None:
        """Send a line and return the answer; nothing if the process has died."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None:
            return None
        try:
            pipe_in.write(line + "\n")
            pipe_in.flush()
        except BrokenPipeError:
            return None
        answer = pipe_out.readline()
        if not answer.endswith("\n"):
            self._process.wait()
            return None
        return answer.rstrip("\n")

    def kill(self) -> None:
        """End the process at once; whoever waits for its answer gets none."""
        self._process.kill()

    def close(self) -> int:
        """End the process and return its exit code."""
        self.kill()
        self._process.communicate()
        return self._process.returncode


def serve_lines(begin: Callable[[str], Callable[[str], str]]) -> None:
    """Answer lines until there are no more: `begin` makes the answering function of the first.

    When whoever asks is gone, the process ends, be it in the middle of an answer.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions = os.fdopen(sys.stdin.fileno(), encoding="utf-8", closefd=False)
    try:
        reply = begin(questions.readline())
    except CapsarError as error:
        print(" ".join(str(error).split()), file=answers, flush=True)
        return
    print(_READY, file=answers, flush=True)
    with suppress(BrokenPipeError):  # nobody is left to answer
        while line := questions.readline():
            print(reply(line), file=answers, flush=True)


def _end_with(parent: int) -> None:
    """End this process at once when it has lost its parent: no work is left that anyone awaits."""
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    os._exit(1)
