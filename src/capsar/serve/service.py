"""`Service`: the state shared by the requests of a worker, and the handling of one request."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response

from capsar.bundle import find_bundle, name_of
from capsar.errors import CapsarError
from capsar.inference.analyzer import load
from capsar.schema import CLASSES, SCHEMA_VERSION
from capsar.serve.batcher import Batcher
from capsar.serve.handlers import join_documents, run_tasks
from capsar.serve.metrics import Metrics, remove_dead_workers
from capsar.serve.middleware import LOG_FIELDS, error_body
from capsar.serve.schemas import WORK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import FastAPI

    from capsar.serve.handlers import Task
    from capsar.serve.settings import Limits, Settings

    Parser = Callable[[bytes, Limits], tuple[list[Task], bool]]

_PUBLIC_LIMITS = ("queue_chars", "text_chars", "texts", "aspects", "body_bytes")
_LOGGER = logging.getLogger(__name__)
_STUCK_SECONDS = 60.0


class _DisconnectedError(Exception):
    """The client has disconnected."""


def served_models(settings: Settings) -> dict[str, Any]:
    """Return the content of `GET /v1/models`.

    Raises:
        ArtifactError: If the model cannot be used.
    """
    bundle = find_bundle(settings.model)
    config = bundle.config
    section = config.get("trained_on")
    trained_on = section if isinstance(section, dict) else {}
    model = {
        "name": name_of(settings.model),  # without the path of a folder
        "sha256": bundle.fingerprint(),
        "classes": [str(polarity) for polarity in CLASSES],
        "capsar_version": str(config.get("capsar_version", "")),
        "trained_on": str(trained_on.get("train", "")),
        "license": str(trained_on.get("license", "")),
    }
    limits = {name: getattr(settings.limits, name) for name in _PUBLIC_LIMITS}
    return {"schema_version": SCHEMA_VERSION, "models": [model], "limits": limits}


class Service:
    """The state shared by the requests of a worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._batcher: Batcher | None = None

    @property
    def batcher(self) -> Batcher:
        """The batcher; available after startup."""
        if self._batcher is None:
            raise RuntimeError("the service has not started")
        return self._batcher

    @property
    def is_working(self) -> bool:
        """Whether the model is loaded and no batch is stuck."""
        return self._batcher is not None and not self._batcher.is_stuck(_STUCK_SECONDS)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Load the model before the first request; finish queued work after the last."""
        remove_dead_workers()
        settings = self.settings
        analyzer = await asyncio.to_thread(
            load, settings.model, threads=settings.threads, backend=settings.backend
        )
        self._batcher = Batcher(
            partial(run_tasks, analyzer),
            batch_size=settings.batch_size,
            batch_wait=settings.timeouts.batch_wait,
            queue_chars=settings.limits.queue_chars,
            metrics=self.metrics,
        )
        _LOGGER.info("ready", extra={"fields": {"model": settings.model}})
        try:
            yield
        finally:
            await self._batcher.close()

    async def handle(self, request: Request, parse: Parser) -> Response:
        """Parse a request, run its tasks, and return the response."""
        try:
            tasks, is_batch = parse(await request.body(), self.settings.limits)
            rejected = self._reject(request, tasks)
            if rejected is not None:
                return rejected
            results = await self._run(request, tasks)
        except CapsarError as error:
            return error_response(422, str(error))
        except TimeoutError:
            message = "The deadline was exceeded. Send fewer texts per request."
            return error_response(504, message)
        except _DisconnectedError:
            return error_response(499, "The client has disconnected.")
        content = join_documents(results) if is_batch else results[0]
        return Response(content, media_type="application/json")

    def _reject(self, request: Request, tasks: list[Task]) -> Response | None:
        """Return an error if the tasks are too much work for one request or for the queue."""
        limit = self.settings.limits.queue_chars
        chars = sum(task.chars for task in tasks)
        request.scope[LOG_FIELDS] |= {"texts": len(tasks), "chars": chars}
        if chars > limit:
            message = f"A request is limited to {limit} characters of work, got {chars}. {WORK}"
            return error_response(413, f"{message} Send fewer texts per request.")
        if self.batcher.has_room(chars):
            return None
        self.metrics.shed.inc()
        seconds = self.batcher.retry_after_seconds()
        busy = error_response(503, f"The queue is full. Retry in {seconds} s.")
        busy.headers["retry-after"] = str(seconds)
        return busy

    async def _run(self, request: Request, tasks: list[Task]) -> list[bytes]:
        work = asyncio.ensure_future(self.batcher.run(tasks))
        disconnect = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait(
                {work, disconnect},
                timeout=self.settings.timeouts.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if work.done():
                return work.result()
            raise _DisconnectedError if disconnect.done() else TimeoutError
        finally:
            work.cancel()
            disconnect.cancel()


def error_response(status: int, message: str) -> Response:
    """Return an error response."""
    return Response(error_body(status, message), status, media_type="application/json")
