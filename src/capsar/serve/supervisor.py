"""Several workers that share one listening socket: those that die are replaced."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from capsar.serve.listener import refuse_newcomers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess
    from types import FrameType

_LOGGER = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2
_YOUNG_SECONDS = 5.0
_YOUNG_DEATHS = 5
"""So many deaths in a row of workers this young mean that none will ever work."""


def supervise(
    work: Callable[[socket.socket], None], listener: socket.socket, *, workers: int, grace: float
) -> None:
    """Keep so many workers running until SIGTERM or SIGINT; then let each of them finish.

    Raises:
        SystemExit: If workers die as soon as they are started.
    """
    spawn = multiprocessing.get_context("spawn")

    def start() -> SpawnProcess:
        process = spawn.Process(target=work, args=(listener,))
        process.start()
        return process

    asked, ask = multiprocessing.Pipe(duplex=False)

    def end(_: int, __: FrameType | None) -> None:
        ask.send_bytes(b"end")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    processes: dict[SpawnProcess, float] = {}
    try:
        for _ in range(workers):
            processes[start()] = time.monotonic()
        young_deaths = 0
        while young_deaths < _YOUNG_DEATHS:
            if asked in wait([asked, *(process.sentinel for process in processes)]):
                return
            for process in [p for p in processes if not p.is_alive()]:
                age = time.monotonic() - processes.pop(process)
                young_deaths = young_deaths + 1 if age < _YOUNG_SECONDS else 0
                facts = {"worker": process.pid, "code": process.exitcode, "age_s": round(age, 1)}
                _LOGGER.error("a worker died", extra={"facts": facts})
                time.sleep(_PAUSE_SECONDS)
                processes[start()] = time.monotonic()
        _LOGGER.error("workers die as soon as they are started")
        raise SystemExit(1)
    finally:
        _end(list(processes), listener, grace)


def _end(processes: list[SpawnProcess], listener: socket.socket, grace: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    refuse_newcomers(listener)
    listener.close()  # or clients would still connect, to nobody
    for process in processes:
        process.terminate()
    last = time.monotonic() + grace + 5
    for process in processes:
        process.join(max(0.0, last - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
