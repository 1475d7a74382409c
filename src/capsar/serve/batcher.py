"""Queue of requests and the threads that run them in batches.

A batch has a slice of each waiting request, so that small requests do not wait for large ones.
Batches and slices are sized by time, with the measured speed of the model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsar.errors import CapsarError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.schema import AspectSpan
    from capsar.serve.metrics import Metrics
    from capsar.themes.schema import Themes

CHARS_PER_TEXT = 32
"""Fixed cost of a text, in characters."""
_SENTENCE_ENDS = re.compile(r"[.!?\n]")
_MAX_EXPLAIN_CHARS = 40_000
"""The cost of leaving out the words of the longest possible sentence."""
_LOGGER = logging.getLogger(__name__)
_INITIAL_CHARS_PER_SECOND = 50_000.0
"""Assumed speed of a thread until the first batch has been timed."""
_BATCH_SECONDS = 0.25
_MIN_BATCH_CHARS = 8_192
_SLICES_PER_BATCH = 4
_MAX_RETRY_SECONDS = 30
_NEARLY_FULL = 0.9


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
    """Path of the item in its request, such as `requests[3].`."""

    @property
    def chars(self) -> int:
        """The cost in characters; some encoders read the text once per aspect."""
        if self.explains:  # a sentence is read once more per word, and these are cheaper together
            longest = max(map(len, _SENTENCE_ENDS.split(self.text)))
            removals = min(64, longest // 5) * longest // 2
            return CHARS_PER_TEXT + len(self.text) + min(removals, _MAX_EXPLAIN_CHARS)
        chars = len(self.text) * max(1, len(self.aspects or ()))
        return CHARS_PER_TEXT + chars + self.theme_chars


class _Request:
    """The tasks of one request in the queue, and their results so far."""

    __slots__ = ("chars", "future", "is_dropped", "num_done", "results", "taken", "tasks")

    def __init__(self, tasks: Sequence[Task], future: asyncio.Future[list[bytes]]) -> None:
        self.tasks = tasks
        self.future = future
        self.chars = sum(task.chars for task in tasks)
        self.results = [b""] * len(tasks)
        self.taken = 0
        self.num_done = 0
        self.is_dropped = False

    def take(self, chars: float) -> range:
        """Take the next tasks up to so many characters, at least one; return their indices."""
        start = self.taken
        while self.taken < len(self.tasks) and (self.taken == start or chars > 0):
            chars -= self.tasks[self.taken].chars
            self.taken += 1
        return range(start, self.taken)

    def deliver(self, error: Exception | None) -> None:
        """Give the results or an error to the waiting caller, from an inference thread."""
        self.future.get_loop().call_soon_threadsafe(self._set, error)

    def _set(self, error: Exception | None) -> None:
        if self.future.done():  # the client has disconnected
            return
        if error is None:
            self.future.set_result(self.results)
        else:
            self.future.set_exception(error)


_Batch = list[tuple[_Request, range]]


class Batcher:
    """Queue of requests and the threads that run them; call its methods from the event loop.

    Args:
        run_tasks: Runs a batch and returns a result for each task.
        threads: The number of inference threads.
        queue_chars: Characters that may be queued or in progress, counting a slice of each request.
        deadline: Seconds in which a request has to be finished: the work of all requests together
            may take half of it.
        metrics: Where batches are counted.
        max_batch_chars: Maximum characters of a batch, up to the end of its last text.
    """

    def __init__(
        self,
        run_tasks: Callable[[Sequence[Task]], list[bytes]],
        *,
        threads: int,
        queue_chars: int,
        deadline: float,
        metrics: Metrics,
        max_batch_chars: int = 65_536,
    ) -> None:
        self._run_tasks = run_tasks
        self._queue_chars = queue_chars
        self._deadline = deadline
        self._metrics = metrics
        self._max_batch_chars = max_batch_chars
        self._changed = threading.Condition()  # guards all attributes below
        self._queue: deque[_Request] = deque()
        self._pending_chars = 0  # of all requests without a result
        self._pending_slices = 0.0  # the first slice of each of them
        self._chars_per_second = _INITIAL_CHARS_PER_SECOND
        self._is_full = False
        self._is_closing = False
        self._busy_since: dict[threading.Thread, float] = {}
        self._threads = [
            threading.Thread(target=self._run_batches, name=f"capsar-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def has_room(self, chars: int) -> bool:
        """Return whether so much work can be queued; an empty queue accepts any amount.

        A large request counts as one slice, since it delays others by no more than that.
        """
        if not self._pending_chars:
            return True
        if self._pending_slices + min(chars, self._slice_chars) > self._queue_chars:
            self._is_full = True
            return False
        in_time = self._chars_per_second * len(self._threads) * self._deadline / 2
        return self._pending_chars + chars <= max(self._queue_chars, in_time)

    @property
    def is_full(self) -> bool:
        """Whether a request was rejected, and the queue is still nearly full."""
        self._is_full &= self._pending_slices > _NEARLY_FULL * self._queue_chars
        return self._is_full

    def retry_after_seconds(self) -> int:
        """Return when there will be room again, estimated from the recent speed."""
        seconds = math.ceil(self._pending_chars / self._chars_per_second / len(self._threads))
        return min(max(1, seconds), _MAX_RETRY_SECONDS)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether a thread has ended, or one batch has been running for so long."""
        started = min(self._busy_since.copy().values(), default=math.inf)
        is_alive = all(thread.is_alive() for thread in self._threads)
        return not is_alive or time.monotonic() - started > seconds

    async def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """Queue tasks and return their results; drop them if the caller is cancelled.

        Raises:
            CapsarError: If one of the tasks fails.
        """
        if not tasks:
            return []
        request = _Request(tasks, asyncio.get_running_loop().create_future())
        slice_chars = min(request.chars, self._slice_chars)
        self._add_pending(request.chars, slice_chars)
        try:
            with self._changed:
                self._queue.append(request)
                self._changed.notify()
            return await request.future
        finally:
            request.is_dropped = True  # has no effect on a finished request
            self._add_pending(-request.chars, -slice_chars)

    async def close(self) -> None:
        """Finish the queued requests and end the threads."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    @property
    def _batch_chars(self) -> float:
        in_time = self._chars_per_second * _BATCH_SECONDS
        return min(max(in_time, _MIN_BATCH_CHARS), self._max_batch_chars)

    @property
    def _slice_chars(self) -> float:
        return self._batch_chars / _SLICES_PER_BATCH

    def _add_pending(self, chars: int, slice_chars: float) -> None:
        self._pending_chars += chars
        self._pending_slices += slice_chars
        self._metrics.queue_chars.set(self._pending_chars)

    def _run_batches(self) -> None:
        while batch := self._next_batch():
            tasks = [request.tasks[index] for request, indices in batch for index in indices]
            chars = sum(task.chars for task in tasks)
            started = time.monotonic()
            self._busy_since[threading.current_thread()] = started
            self._run_batch(batch)
            seconds = time.monotonic() - started
            del self._busy_since[threading.current_thread()]
            self._metrics.observe_batch(len(tasks), chars, seconds)
            if seconds > 0:
                self._chars_per_second += 0.2 * (chars / seconds - self._chars_per_second)

    def _next_batch(self) -> _Batch:
        """Wait for requests and return the next batch; empty when the batcher is closed."""
        batch: _Batch = []
        with self._changed:
            while not batch:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return []
                batch = self._take()
            if self._queue:
                self._changed.notify()
        return batch

    def _take(self) -> _Batch:
        """Take a slice of each request from the head; unfinished requests go to the end."""
        batch: _Batch = []
        unfinished: list[_Request] = []
        chars, slice_chars = self._batch_chars, self._slice_chars
        while self._queue and chars > 0:
            request = self._queue.popleft()
            if request.is_dropped:
                self._metrics.dropped.inc()
                continue
            indices = request.take(min(chars, slice_chars))
            chars -= sum(request.tasks[index].chars for index in indices)
            batch.append((request, indices))
            if request.taken < len(request.tasks):
                unfinished.append(request)
        self._queue.extend(unfinished)
        return batch

    def _run_batch(self, batch: _Batch) -> None:
        """Run a batch, or each request alone if that fails, so that only faulty requests fail."""
        tasks = [request.tasks[index] for request, indices in batch for index in indices]
        try:
            results = iter(self._run_tasks(tasks))
        except Exception as error:
            if len(batch) > 1:
                for part in batch:
                    self._run_batch([part])
                return
            if not isinstance(error, CapsarError):
                _LOGGER.error("a batch failed", exc_info=error)
            request = batch[0][0]
            request.is_dropped = True
            request.deliver(error)
            return
        for request, indices in batch:
            for index in indices:
                request.results[index] = next(results)
            with self._changed:
                request.num_done += len(indices)
                is_done = request.num_done == len(request.tasks)
            if is_done:
                request.deliver(None)
