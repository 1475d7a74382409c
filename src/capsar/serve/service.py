"""`Service`: what the requests of a worker share, and how one of them is answered."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import Request, Response

from capsar.analyze import load
from capsar.errors import CapsarError
from capsar.serve.admission import FACTS
from capsar.serve.batcher import Batcher
from capsar.serve.messages import WORK
from capsar.serve.metrics import Metrics, forget_dead_workers
from capsar.serve.replies import problem
from capsar.serve.work import answer, join_documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import FastAPI

    from capsar.serve.settings import Limits, Settings
    from capsar.serve.work import Task

    Reader = Callable[[bytes, Limits], tuple[list[Task], bool]]

_LOGGER = logging.getLogger(__name__)
_STUCK_SECONDS = 60.0


class _ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Service:
    """What the requests of a worker share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self._batcher: Batcher | None = None

    @property
    def batcher(self) -> Batcher:
        """The batcher, once the service has started."""
        if self._batcher is None:
            raise RuntimeError("the service has not started")
        return self._batcher

    @property
    def is_working(self) -> bool:
        """Whether requests are answered: the model is loaded, and no batch takes forever."""
        return self._batcher is not None and not self._batcher.is_stuck(_STUCK_SECONDS)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Load the model before the first request, and finish the work after the last."""
        forget_dead_workers()
        settings = self.settings
        analyzer = await asyncio.to_thread(
            load, settings.model, threads=settings.threads, backend=settings.backend
        )
        self._batcher = Batcher(
            partial(answer, analyzer),
            batches=settings.batches,
            batch_wait=settings.times.batch_wait,
            queue_chars=settings.limits.queue_chars,
            metrics=self.metrics,
        )
        _LOGGER.info("ready", extra={"facts": {"model": settings.model}})
        try:
            yield
        finally:
            await self._batcher.close()

    async def reply(self, request: Request, read: Reader) -> Response:
        """Answer a request, unless its client goes or its time is up."""
        try:
            tasks, many = read(await request.body(), self.settings.limits)
            refused = self._refuse(request, tasks)
            if refused is not None:
                return refused
            answers = await self._answers(request, tasks)
        except CapsarError as error:
            return refusal(422, str(error))
        except TimeoutError:
            return refusal(504, "The answer would have come too late; ask for less at once.")
        except _ClientGoneError:
            return refusal(499, "The client has gone.")
        content = join_documents(answers) if many else answers[0]
        return Response(content, media_type="application/json")

    def _refuse(self, request: Request, tasks: list[Task]) -> Response | None:
        """Refuse what turned out to be more work than its size let expect."""
        limit = self.settings.limits.queue_chars
        chars = sum(task.chars for task in tasks)
        request.scope[FACTS] |= {"texts": len(tasks), "chars": chars}
        if chars > limit:
            told = f"A request may ask for {limit} characters of work, got {chars}. {WORK}"
            return refusal(413, f"{told} Send fewer texts at once.")
        if self.batcher.has_room(chars):
            return None
        self.metrics.shed.inc()
        seconds = self.batcher.retry_after_seconds()
        busy = refusal(503, f"The queue is full. Ask again in {seconds} s.")
        busy.headers["retry-after"] = str(seconds)
        return busy

    async def _answers(self, request: Request, tasks: list[Task]) -> list[bytes]:
        work = asyncio.ensure_future(self.batcher.answers_to(tasks))
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait(
                {work, gone},
                timeout=self.settings.times.deadline,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if work.done():
                return work.result()
            raise _ClientGoneError if gone.done() else TimeoutError
        finally:
            work.cancel()
            gone.cancel()


def refusal(status: int, message: str) -> Response:
    """Return an answer that says no."""
    return Response(problem(status, message), status, media_type="application/json")
