"""Run the service: listening socket, worker processes, and a shutdown that loses no request."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import uvicorn

from capsar.bundle import find_bundle
from capsar.errors import ConfigError
from capsar.serve.metrics import MULTIPROCESS_FOLDER, start_logging
from capsar.serve.protocol import GuardedProtocol, SharedState

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess
    from types import FrameType

    from capsar.serve.settings import Settings, Timeouts

BACKLOG = 2048
_SO_ATTACH_FILTER = 26  # Linux; Python has no constant for it
_NO_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags of the TCP header
        (0x45, 0, 1, 0x02),  # is SYN set?
        (0x06, 0, 0, 0),  # then drop the packet
        (0x06, 0, 0, 0xFFFFFFFF),  # otherwise accept it
    )
)
"""A packet filter that drops new connections and does not affect established ones."""
_LOGGER = logging.getLogger(__name__)
_RESTART_PAUSE_SECONDS = 0.2
_EARLY_CRASH_SECONDS = 5.0
_MAX_EARLY_CRASHES = 5
"""Consecutive crashes of workers younger than this after which the service gives up."""
_TICKS_PER_SECOND = 10
_HANDSHAKE_SECONDS = 0.05
"""Time for clients that are connecting when the shutdown starts."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: If the address cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error}. Choose another --host or --port."
        ) from error


def block_new_connections(listener: socket.socket) -> None:
    """Block new connections in every process with this socket, and keep those in its backlog.

    Closing the socket instead would reset clients that connected after the last `accept`. A blocked
    client retries after about a second, and is refused once the socket is closed.
    """
    if sys.platform != "linux":
        return  # clients that connect between the last `accept` and the close are reset
    code = ctypes.create_string_buffer(_NO_SYN, len(_NO_SYN))
    program = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(code))
    with suppress(OSError):  # a kernel without packet filters: as above
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """Accept all connections in the backlog, and close the listening socket."""
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


def supervise(
    run_worker: Callable[[socket.socket], None],
    listener: socket.socket,
    *,
    workers: int,
    grace: float,
) -> None:
    """Run worker processes until SIGTERM or SIGINT, replace those that crash, then shut down.

    Raises:
        SystemExit: If workers crash as soon as they are started.
    """
    spawn = multiprocessing.get_context("spawn")

    def start() -> SpawnProcess:
        process = spawn.Process(target=run_worker, args=(listener,))
        process.start()
        return process

    stop_signal, sender = multiprocessing.Pipe(duplex=False)

    def stop(_: int, __: FrameType | None) -> None:
        sender.send_bytes(b"stop")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    processes: dict[SpawnProcess, float] = {}
    try:
        for _ in range(workers):
            processes[start()] = time.monotonic()
        early_crashes = 0
        while early_crashes < _MAX_EARLY_CRASHES:
            if stop_signal in wait([stop_signal, *(process.sentinel for process in processes)]):
                return
            for process in [p for p in processes if not p.is_alive()]:
                age = time.monotonic() - processes.pop(process)
                early_crashes = early_crashes + 1 if age < _EARLY_CRASH_SECONDS else 0
                fields = {"worker": process.pid, "code": process.exitcode, "age_s": round(age, 1)}
                _LOGGER.error("worker crashed", extra={"fields": fields})
                time.sleep(_RESTART_PAUSE_SECONDS)
                processes[start()] = time.monotonic()
        _LOGGER.error("workers crash as soon as they are started")
        raise SystemExit(1)
    finally:
        _stop_workers(list(processes), listener, grace)


def _stop_workers(processes: list[SpawnProcess], listener: socket.socket, grace: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    block_new_connections(listener)
    listener.close()  # otherwise clients could still connect
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace + 5
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


class DrainingServer(uvicorn.Server):
    """uvicorn's server with connection timeouts and a shutdown that serves open connections."""

    def __init__(self, config: uvicorn.Config, timeouts: Timeouts) -> None:
        super().__init__(config)
        self._timeouts = timeouts
        self.server_state: SharedState = SharedState()

    async def on_tick(self, counter: int) -> bool:
        """Enforce timeouts once per second; stop if the parent process was killed."""
        if counter % _TICKS_PER_SECOND == 0:
            self._enforce_timeouts()
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, finish all received requests, and return within the grace period."""
        _LOGGER.info("shutting down")
        self.server_state.is_draining = True
        await self._stop_accepting(sockets or [])
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._timeouts.grace):
                is_serving = True  # sockets accepted above are registered one iteration later
                while is_serving and not self.force_exit:
                    self._enforce_timeouts()
                    await asyncio.sleep(0.02)
                    is_serving = self._is_serving()
        except TimeoutError:
            _LOGGER.error("grace period exceeded: %d requests lost", len(self.server_state.tasks))
            for task in self.server_state.tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()
        self._captured_signals.clear()  # uvicorn would raise them again and exit with an error
        _LOGGER.info("stopped")

    async def _stop_accepting(self, sockets: list[socket.socket]) -> None:
        """Close the listening sockets; clients that are connected by then are served."""
        if multiprocessing.parent_process() is None:  # otherwise the supervisor does this
            for listener in sockets:
                block_new_connections(listener)
            await asyncio.sleep(_HANDSHAKE_SECONDS)
        # asyncio drops accepted sockets if its server is closed before they are registered.
        for server in self.servers:
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
        await asyncio.sleep(0)
        # Closing a listening socket resets the clients in its backlog: accept them first.
        duplicates = [listener.dup() for listener in sockets]
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        for accepted in [each for duplicate in duplicates for each in accept_all(duplicate)]:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, accepted)

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _is_serving(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    def _enforce_timeouts(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.enforce_timeout()


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ArtifactError: If the model cannot be used.
        ConfigError: If the address cannot be used.
    """
    start_logging(settings.log_level)
    find_bundle(settings.model)  # report a damaged model before any worker starts
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    _LOGGER.info("listening", extra={"fields": {"url": f"http://{address}:{port}/"}})
    if settings.workers == 1:
        run_worker(settings, listener)
        return
    with tempfile.TemporaryDirectory(prefix="capsar-metrics-") as folder:
        # Workers are spawned, and prometheus_client reads the variable when they import it.
        os.environ[MULTIPROCESS_FOLDER] = folder
        supervise(
            partial(run_worker, settings),
            listener,
            workers=settings.workers,
            grace=settings.timeouts.grace,
        )


def run_worker(settings: Settings, listener: socket.socket) -> None:
    """Serve in this process."""
    from capsar.serve.app import create_app

    start_logging(settings.log_level)
    config = uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        http=partial(GuardedProtocol, limits=settings.limits, timeouts=settings.timeouts),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=round(settings.timeouts.idle),
    )
    DrainingServer(config, settings.timeouts).run(sockets=[listener])
