"""Micro-batcher: requests that arrive at the same time are run as one batch.

One worker thread runs inference; the event loop queues requests and receives their results. The
queue is limited by characters of work. A request is dropped when its client disconnects or its
deadline passes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from capsar.errors import CapsarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.serve.handlers import Task
    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import BatchSize

_LOGGER = logging.getLogger(__name__)
_INITIAL_CHARS_PER_SECOND = 50_000.0
"""Assumed speed until the first batch has been timed."""
_MAX_RETRY_SECONDS = 30


class QueuedRequest:
    """The tasks of one request in the queue, and their results so far."""

    __slots__ = ("arrived", "chars", "future", "is_dropped", "results", "taken", "tasks")

    def __init__(self, tasks: Sequence[Task], future: asyncio.Future[list[bytes]]) -> None:
        self.tasks = tasks
        self.chars = sum(task.chars for task in tasks)
        self.future = future
        self.arrived = time.monotonic()
        self.results: list[bytes] = []
        self.taken = 0
        self.is_dropped = False

    def take(self, chars: int, texts: int) -> Sequence[Task]:
        """Take the next tasks that fit; may be empty."""
        start = self.taken
        for task in self.tasks[start : start + texts]:
            chars -= task.chars
            if chars < 0:
                break
            self.taken += 1
        return self.tasks[start : self.taken]

    def take_one(self) -> Sequence[Task]:
        """Take the next task, regardless of its size."""
        self.taken += 1
        return self.tasks[self.taken - 1 : self.taken]

    @property
    def has_more(self) -> bool:
        """Whether tasks are left to take."""
        return self.taken < len(self.tasks)


_Batch = list[tuple[QueuedRequest, "Sequence[Task]"]]
_Finished = list[tuple[QueuedRequest, Exception | None]]


class Batcher:
    """Queue of requests and the thread that runs them; call its methods from the event loop."""

    def __init__(
        self,
        run_tasks: Callable[[Sequence[Task]], list[bytes]],
        *,
        batch_size: BatchSize,
        batch_wait: float,
        queue_chars: int,
        metrics: Metrics,
    ) -> None:
        self._run_tasks = run_tasks
        self._batch_size = batch_size
        self._batch_wait = batch_wait
        self._queue_chars = queue_chars
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._pending_chars = 0  # of all requests without a result
        self._queue: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()  # guards the queue and the attributes below
        self._queued_chars = 0
        self._is_closing = False
        self._last_requests = 0
        self._chars_per_second = _INITIAL_CHARS_PER_SECOND
        self._busy_since = math.inf
        self._thread = threading.Thread(
            target=self._run_batches, name="capsar-batcher", daemon=True
        )
        self._thread.start()

    def has_room(self, chars: int) -> bool:
        """Return whether so much work can be queued; an empty queue accepts any amount."""
        return not self._pending_chars or self._pending_chars + chars <= self._queue_chars

    def retry_after_seconds(self) -> int:
        """Return when there will be room again, estimated from the recent speed."""
        seconds = math.ceil(self._pending_chars / self._chars_per_second)
        return min(max(1, seconds), _MAX_RETRY_SECONDS)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether the thread has ended, or one batch has been running for so long."""
        return not self._thread.is_alive() or time.monotonic() - self._busy_since > seconds

    async def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """Queue tasks and return their results; drop them if the caller is cancelled.

        Raises:
            CapsarError: If one of the tasks fails.
        """
        if not tasks:
            return []
        request = QueuedRequest(tasks, self._loop.create_future())
        self._add_pending(request.chars)
        try:
            with self._changed:
                self._queue.append(request)
                self._queued_chars += request.chars
                self._changed.notify()
            return await request.future
        finally:
            request.is_dropped = True  # has no effect on a finished request
            self._add_pending(-request.chars)

    async def close(self) -> None:
        """Finish the queued requests and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _add_pending(self, chars: int) -> None:
        self._pending_chars += chars
        self._metrics.queue_chars.set(self._pending_chars)

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            self._busy_since = time.monotonic()
            finished = self._run_batch(batch)
            seconds = time.monotonic() - self._busy_since
            self._busy_since = math.inf
            tasks = [task for _, part in batch for task in part]
            chars = sum(task.chars for task in tasks)
            self._metrics.observe_batch(len(tasks), chars, seconds)
            if seconds > 0:
                self._chars_per_second += 0.2 * (chars / seconds - self._chars_per_second)
            self._loop.call_soon_threadsafe(_deliver, finished)

    def _next_batch(self) -> _Batch:
        """Wait for requests and return the next batch; empty when the batcher is closed."""
        batch: _Batch = []
        while not batch:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return []
                # A single client does not wait for others.
                if len(self._queue) > 1 or self._last_requests > 1:
                    wait = self._queue[0].arrived + self._batch_wait - time.monotonic()
                    self._changed.wait_for(self._is_full, timeout=max(0.0, wait))
                batch = self._take()
        self._last_requests = len(batch)
        return batch

    def _is_full(self) -> bool:
        return self._queued_chars >= self._batch_size.chars or self._is_closing

    def _take(self) -> _Batch:
        """Take a batch from the head of the queue; unfinished requests go back to its end.

        A request with few texts therefore never waits for all texts of a large one.
        """
        batch: _Batch = []
        chars, texts = self._batch_size.chars, self._batch_size.texts
        unfinished: list[QueuedRequest] = []
        while self._queue and texts:
            request = self._queue[0]
            if request.is_dropped:
                self._queued_chars -= sum(task.chars for task in request.tasks[request.taken :])
                self._metrics.dropped.inc()
                self._queue.popleft()
                continue
            tasks = request.take(chars, texts) or (() if batch else request.take_one())
            if not tasks:
                break
            taken = sum(task.chars for task in tasks)
            self._queued_chars -= taken
            chars, texts = chars - taken, texts - len(tasks)
            batch.append((request, tasks))
            self._queue.popleft()
            if request.has_more:
                unfinished.append(request)
        self._queue.extend(unfinished)
        return batch

    def _run_batch(self, batch: _Batch) -> _Finished:
        """Run a batch, or each request alone if that fails, so that only faulty requests fail.

        Returns:
            The finished requests, each with its error if it failed.
        """
        finished: _Finished = []
        try:
            results = iter(self._run_tasks([task for _, tasks in batch for task in tasks]))
        except Exception as error:
            if len(batch) > 1:
                return [done for part in batch for done in self._run_batch([part])]
            if not isinstance(error, CapsarError):
                _LOGGER.error("a batch failed", exc_info=error)
            request = batch[0][0]
            request.is_dropped = True
            return [(request, error)]
        for request, tasks in batch:
            request.results += [next(results) for _ in tasks]
            if len(request.results) == len(request.tasks):
                finished.append((request, None))
        return finished


def _deliver(finished: _Finished) -> None:
    for request, error in finished:
        if request.future.done():  # the client has disconnected
            continue
        if error is None:
            request.future.set_result(request.results)
        else:
            request.future.set_exception(error)
