"""Running the service: sockets, workers, and an end that loses no request."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import tempfile
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from capsar.hub import find_bundle
from capsar.serve.listener import BACKLOG, accept_all, listen, refuse_newcomers
from capsar.serve.log import start_logging
from capsar.serve.protocol import GuardedProtocol, SharedState
from capsar.serve.supervisor import supervise

if TYPE_CHECKING:
    import socket

    from capsar.serve.settings import Settings, Times

_LOGGER = logging.getLogger(__name__)
_TICKS_A_SECOND = 10
_HANDSHAKE_SECONDS = 0.05
"""For those who have begun to connect when the end begins."""


class DrainingServer(uvicorn.Server):
    """uvicorn's server, which ends connections in time and lets those it has be served."""

    def __init__(self, config: uvicorn.Config, times: Times) -> None:
        super().__init__(config)
        self._times = times
        self.server_state: SharedState = SharedState()

    async def on_tick(self, counter: int) -> bool:
        """See once a second to connections whose time is up, and to a parent that was killed."""
        if counter % _TICKS_A_SECOND == 0:
            self._enforce()
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():
                return True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, finish what has come in, and leave within the grace time."""
        _LOGGER.info("ending")
        self.server_state.is_draining = True
        await self._stop_accepting(sockets or [])
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._times.grace):
                is_serving = True  # those just accepted are connections after a turn of the loop
                while is_serving and not self.force_exit:
                    self._enforce()
                    await asyncio.sleep(0.02)
                    is_serving = self._is_serving()
        except TimeoutError:
            _LOGGER.error("the grace time is up: %d requests are lost", self._num_tasks())
            for task in self.server_state.tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()
        self._captured_signals.clear()  # uvicorn would raise them again: this end is a good one
        _LOGGER.info("ended")

    async def _stop_accepting(self, sockets: list[socket.socket]) -> None:
        """Close what is listened on; whoever has connected by then is served."""
        if multiprocessing.parent_process() is None:  # else others listen too: it is its to say
            for listener in sockets:
                refuse_newcomers(listener)
            await asyncio.sleep(_HANDSHAKE_SECONDS)
        # asyncio drops whom it has accepted if its server is closed before it has begun with them.
        for server in self.servers:
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
        await asyncio.sleep(0)
        # A listening socket that is closed resets those who wait in its backlog: accept them first.
        spares = [listener.dup() for listener in sockets]
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()
        for accepted in [one for spare in spares for one in accept_all(spare)]:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, accepted)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def _is_serving(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    def _num_tasks(self) -> int:
        return len(self.server_state.tasks)

    def _enforce(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol):
                connection.enforce()


def run(settings: Settings) -> None:
    """Serve until a signal ends it.

    Raises:
        ArtifactError: If the model cannot be used.
        ConfigError: If the address cannot be listened on.
    """
    start_logging(settings.log_level)
    find_bundle(settings.model)  # what is wrong with it is told before any worker starts
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _LOGGER.info("listening", extra={"facts": {"url": f"http://{shown}:{port}/"}})
    if settings.workers == 1:
        run_worker(settings, listener)
        return
    with tempfile.TemporaryDirectory(prefix="capsar-metrics-") as folder:
        # Read when a worker imports prometheus_client; that is why nothing above imports it.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        supervise(
            partial(run_worker, settings),
            listener,
            workers=settings.workers,
            grace=settings.times.grace,
        )


def run_worker(settings: Settings, listener: socket.socket) -> None:
    """Serve in this process."""
    from capsar.serve.app import create_app

    start_logging(settings.log_level)
    config = uvicorn.Config(
        partial(create_app, settings),
        factory=True,
        http=partial(GuardedProtocol, limits=settings.limits, times=settings.times),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=round(settings.times.idle),
    )
    DrainingServer(config, settings.times).run(sockets=[listener])
