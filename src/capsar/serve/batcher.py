"""Queue of requests and the threads that run them in batches.

A batch has a slice of each waiting request, so that small requests do not wait for large ones.
Batches and slices are sized by time, with the measured speed of the model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from capsar.errors import ConfigError, DataError
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.schema import AspectSpan
    from capsar.serve.metrics import Metrics
    from capsar.themes.schema import Themes

CHARS_PER_TEXT = 32
"""Fixed cost of a text, in characters."""
_MAX_EXPLAIN_CHARS = 40_000
"""The cost of leaving out the words of the longest possible sentence."""
_LOGGER = logging.getLogger(__name__)
_INITIAL_CHARS_PER_SECOND = 5_000.0
"""Assumed speed of a thread, which counts as much as a second of batches."""
_DECAY = 0.8
"""The weight of a batch in the speed, relative to that of the next one."""
_BATCH_SECONDS = 0.25
_MIN_CHARS = 8_192
_SLICES_PER_BATCH = 4
_MAX_RETRY_SECONDS = 30
_NEARLY_FULL = 0.9
_REST_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Task:
    """One text to analyze, to classify (with given aspects) or to explain."""

    model: str
    text: str
    aspects: tuple[str | AspectSpan, ...] | None = None
    """The given aspects; None to extract them."""
    explains: bool = False
    themes: Themes | None = None
    """The themes that mentions are sorted into."""
    theme_chars: int = 0
    """Characters of the themes, counted once per request."""
    path: str = ""
    """Path of the aspects in the request, such as `requests[3].aspects[{}]`."""
    chars: int = field(init=False)
    """The cost in characters; some encoders read the text once per aspect."""

    def __post_init__(self) -> None:
        chars = CHARS_PER_TEXT + len(self.text) * max(1, len(self.aspects or ())) + self.theme_chars
        if self.explains:  # a sentence is read once more per word, and these are cheaper together
            longest = max((end - start for start, end in split_sentences(self.text)), default=0)
            chars += min(min(64, longest // 5) * longest // 2, _MAX_EXPLAIN_CHARS)
        object.__setattr__(self, "chars", chars)


class _Request:
    """The tasks of one request in the queue, and their results so far."""

    def __init__(self, tasks: Sequence[Task], slice_chars: float) -> None:
        self.tasks = tasks
        self.future: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()
        self.chars = sum(task.chars for task in tasks)
        self.slice_chars = min(self.chars, slice_chars)
        self.results = [b""] * len(tasks)
        self.taken = self.slices_running = 0

    def take(self, chars: float) -> slice:
        """Take the next tasks up to so many characters, at least one; return where they are."""
        start = self.taken
        while self.taken < len(self.tasks) and (self.taken == start or chars > 0):
            chars -= self.tasks[self.taken].chars
            self.taken += 1
        return slice(start, self.taken)


_Batch = list[tuple[_Request, slice]]


@dataclass(eq=False)
class Batcher:
    """Queue of requests, handled on the event loop, and the threads that run their batches."""

    run_tasks: Callable[[Sequence[Task]], list[bytes]]
    """Runs a batch and returns a result for each task."""
    _: KW_ONLY
    threads: int
    """The number of inference threads."""
    queue_chars: int
    """Characters that may be queued or in progress, counting a slice of each request."""
    deadline: float
    """Seconds in which a request has to be finished: the work of all requests together may take
    half of it."""
    metrics: Metrics
    """Where batches and rejected requests are counted."""
    max_batch_chars: int = 65_536
    """Maximum characters of a batch, up to the end of its last text."""

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, "capsar")
        self._workers: dict[asyncio.Task[None] | None, float] = {}  # when each started its batch
        self._queue: deque[_Request] = deque()
        self._pending_chars = 0  # of all requests that are queued or in progress
        self._pending_slices = 0.0  # the first slice of each of them
        self._recent_chars, self._recent_seconds = _INITIAL_CHARS_PER_SECOND, 1.0
        self._is_full = self._rests = False

    def has_room(self, chars: int) -> bool:
        """Return whether so much work can be queued; an empty queue accepts any amount.

        A large request counts as one slice, since it delays others by no more than that; but all
        work has to be finished in time. A request of one slice is refused only by a full queue.
        """
        if not self._pending_chars:
            return True
        if self._pending_slices + min(chars, self._slice_chars) > self.queue_chars:
            self._is_full = True
            return False
        most = max(self.queue_chars, self._chars_per_second * self.threads * self.deadline / 2)
        return chars <= max(self._slice_chars, most - self._pending_chars)

    @property
    def is_full(self) -> bool:
        """Whether a request was rejected, and the queue is still nearly full."""
        self._is_full &= self._pending_slices > _NEARLY_FULL * self.queue_chars
        return self._is_full

    def reject(self) -> int:
        """Count a rejected request; return after how many seconds there may be room again.

        Each round of the event loop interrupts an inference thread, and costs more than a rejection
        in it. So the loop sleeps before the next round, and then handles many requests in it. The
        threads have work until then, since the queue is full.
        """
        self.metrics.shed.inc()
        if not self._rests:
            self._rests = True
            asyncio.get_running_loop().call_soon(self._rest)
        seconds = math.ceil(self._pending_chars / self._chars_per_second / self.threads)
        return min(max(1, seconds), _MAX_RETRY_SECONDS)

    def _rest(self) -> None:
        time.sleep(_REST_SECONDS)
        self._rests = False

    def is_stuck(self, seconds: float) -> bool:
        """Return whether a batch has been running for so long."""
        return time.monotonic() - min(self._workers.values(), default=math.inf) > seconds

    def submit(self, tasks: Sequence[Task]) -> asyncio.Future[list[bytes]]:
        """Queue tasks, and return the future of their results. To drop them, cancel it.

        It fails with a `ConfigError` if the model does not support a task.
        """
        request = _Request(tasks, self._slice_chars)
        self._add_pending(request.chars, request.slice_chars)
        self._queue.append(request)
        request.future.add_done_callback(lambda _: self._release(request))
        self._start_worker()
        return request.future

    def _finish_slice(self, request: _Request) -> None:
        """Set the result of a request, if this was its last slice."""
        request.slices_running -= 1
        is_complete = request.taken == len(request.tasks) and not request.slices_running
        if is_complete and not request.future.done():
            request.future.set_result(request.results)
        self._release(request)

    def _release(self, request: _Request) -> None:
        """Subtract the work of a request that is over, once no slice of it is running."""
        if request.chars and request.future.done() and not request.slices_running:
            self._add_pending(-request.chars, -request.slice_chars)
            self.metrics.dropped.inc(request.future.cancelled())
            request.chars = 0  # it is released only once

    @property
    def _chars_per_second(self) -> float:
        return self._recent_chars / self._recent_seconds

    @property
    def _batch_chars(self) -> float:
        return min(max(self._chars_per_second * _BATCH_SECONDS, _MIN_CHARS), self.max_batch_chars)

    @property
    def _slice_chars(self) -> float:
        return self._batch_chars / _SLICES_PER_BATCH

    def _add_pending(self, chars: int, slice_chars: float) -> None:
        self._pending_chars += chars
        self._pending_slices += slice_chars
        self.metrics.queue_chars.set(self._pending_chars)

    def _start_worker(self) -> None:
        # One more than threads, so that no thread waits for the event loop when it is busy.
        if self._queue and len(self._workers) <= self.threads:
            self._workers[asyncio.create_task(self._run_batches())] = time.monotonic()

    async def _run_batches(self) -> None:
        """Run one batch after the other until the queue is empty."""
        worker = asyncio.current_task()
        try:
            while batch := self._take():
                self._start_worker()  # for the rest of the queue
                self._workers[worker] = time.monotonic()
                await self._run_batch(batch)
        finally:
            del self._workers[worker]

    def _take(self) -> _Batch:
        """Take a slice of each request from the head; unfinished requests go to the end."""
        batch: _Batch = []
        chars, slice_chars = self._batch_chars, self._slice_chars
        while self._queue and chars > 0:
            request = self._queue.popleft()
            if request.future.done():  # it was cancelled, or one of its slices has failed
                continue
            part = request.take(min(chars, slice_chars))
            chars -= sum(task.chars for task in request.tasks[part])
            request.slices_running += 1
            batch.append((request, part))
        self._queue.extend(request for request, _ in batch if request.taken < len(request.tasks))
        return batch

    def _run_timed(self, batch: _Batch) -> tuple[_Batch, list[bytes], float]:
        """Run what is left of a batch that has waited for a thread, and measure the time."""
        left = [(request, part) for request, part in batch if not request.future.done()]
        started = time.monotonic()
        found = self.run_tasks([task for request, part in left for task in request.tasks[part]])
        return left, found, time.monotonic() - started

    async def _run_batch(self, batch: _Batch) -> None:
        """Run a batch, or each request alone if that fails, so that only faulty requests fail."""
        loop = asyncio.get_running_loop()
        try:
            left, found, seconds = await loop.run_in_executor(self._pool, self._run_timed, batch)
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    await self._run_batch([each])
                return
            if not isinstance(error, ConfigError | DataError):
                _LOGGER.error("a batch failed", exc_info=error)
            if not batch[0][0].future.done():
                batch[0][0].future.set_exception(error)
        else:
            chars = sum(task.chars for request, part in left for task in request.tasks[part])
            results = iter(found)
            self.metrics.observe_batch(len(found), chars, seconds)
            self._recent_chars = _DECAY * self._recent_chars + chars
            self._recent_seconds = _DECAY * self._recent_seconds + seconds
            for request, part in left:
                request.results[part] = islice(results, len(request.tasks[part]))
        for request, _ in batch:
            self._finish_slice(request)
