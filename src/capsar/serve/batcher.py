"""The micro-batcher: what several clients ask at the same time is worked on together.

One thread works; the event loop hands it jobs and gets answers back. What waits is bounded by the
characters of work in it, and is dropped when its client has gone or its time is up.
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

    from capsar.serve.metrics import Metrics
    from capsar.serve.settings import Batches
    from capsar.serve.work import Task

_LOGGER = logging.getLogger(__name__)
_FIRST_RATE = 50_000.0
"""Characters a second, until the first batch has shown what they are."""
_LONGEST_RETRY_SECONDS = 30


class Job:
    """The tasks of one request, on their way through the queue."""

    __slots__ = ("answers", "arrived", "chars", "done", "is_dropped", "taken", "tasks")

    def __init__(self, tasks: Sequence[Task], done: asyncio.Future[list[bytes]]) -> None:
        self.tasks = tasks
        self.chars = sum(task.chars for task in tasks)
        self.done = done
        self.arrived = time.monotonic()
        self.answers: list[bytes] = []
        self.taken = 0
        self.is_dropped = False

    def take(self, chars: int, texts: int) -> Sequence[Task]:
        """Take the next tasks that fit; none if not even one does."""
        start = self.taken
        for task in self.tasks[start : start + texts]:
            chars -= task.chars
            if chars < 0:
                break
            self.taken += 1
        return self.tasks[start : self.taken]

    def take_one(self) -> Sequence[Task]:
        """Take the next task, whatever its size."""
        self.taken += 1
        return self.tasks[self.taken - 1 : self.taken]

    @property
    def has_more(self) -> bool:
        """Whether tasks are left to take."""
        return self.taken < len(self.tasks)


class Batcher:
    """A queue of jobs and the thread that works on it. All but the thread is the event loop's."""

    def __init__(
        self,
        answer: Callable[[Sequence[Task]], list[bytes]],
        *,
        batches: Batches,
        batch_wait: float,
        queue_chars: int,
        metrics: Metrics,
    ) -> None:
        self._answer = answer
        self._batches = batches
        self._batch_wait = batch_wait
        self._queue_chars = queue_chars
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._held_chars = 0  # of every job that is not answered yet
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()  # guards what stands below it, and the queue
        self._waiting_chars = 0
        self._is_closing = False
        self._last_jobs = 0
        self._chars_per_second = _FIRST_RATE
        self._busy_since = math.inf
        self._thread = threading.Thread(target=self._run, name="capsar-batcher", daemon=True)
        self._thread.start()

    def has_room(self, chars: int) -> bool:
        """Tell whether so much more work may be taken on; where nothing waits it always may."""
        return not self._held_chars or self._held_chars + chars <= self._queue_chars

    def retry_after_seconds(self) -> int:
        """Return when there will be room again, at the speed of late."""
        seconds = math.ceil(self._held_chars / self._chars_per_second)
        return min(max(1, seconds), _LONGEST_RETRY_SECONDS)

    def is_stuck(self, seconds: float) -> bool:
        """Tell whether the thread has ended, or worked on one batch for longer than this."""
        return not self._thread.is_alive() or time.monotonic() - self._busy_since > seconds

    async def answers_to(self, tasks: Sequence[Task]) -> list[bytes]:
        """Queue tasks and return their answers. If the caller is cancelled, they are dropped.

        Raises:
            CapsarError: If one of them cannot be answered.
        """
        if not tasks:
            return []
        job = Job(tasks, self._loop.create_future())
        self._hold(job.chars)
        try:
            with self._changed:
                self._queue.append(job)
                self._waiting_chars += job.chars
                self._changed.notify()
            return await job.done
        finally:
            job.is_dropped = True  # where it has been answered, this changes nothing
            self._hold(-job.chars)

    async def close(self) -> None:
        """Finish what is queued, and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _hold(self, chars: int) -> None:
        self._held_chars += chars
        self._metrics.queue_chars.set(self._held_chars)

    def _run(self) -> None:
        while batch := self._next_batch():
            self._busy_since = time.monotonic()
            finished = self._work(batch)
            seconds = time.monotonic() - self._busy_since
            self._busy_since = math.inf
            tasks = [task for _, some in batch for task in some]
            chars = sum(task.chars for task in tasks)
            self._metrics.batch(len(tasks), chars, seconds)
            if seconds > 0:
                self._chars_per_second += 0.2 * (chars / seconds - self._chars_per_second)
            self._loop.call_soon_threadsafe(_deliver, finished)

    def _next_batch(self) -> list[tuple[Job, Sequence[Task]]]:
        """Wait for work and take as much as a batch may hold; nothing when it is time to end."""
        batch: list[tuple[Job, Sequence[Task]]] = []
        while not batch:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return []
                # A client that is alone does not wait for others.
                if len(self._queue) > 1 or self._last_jobs > 1:
                    wait = self._queue[0].arrived + self._batch_wait - time.monotonic()
                    self._changed.wait_for(self._is_full, timeout=max(0.0, wait))
                batch = self._take()
        self._last_jobs = len(batch)
        return batch

    def _is_full(self) -> bool:
        return self._waiting_chars >= self._batches.chars or self._is_closing

    def _take(self) -> list[tuple[Job, Sequence[Task]]]:
        """Take tasks from the head of the queue; a job that is not done goes to its end.

        So a client with few texts never waits for all of another's many.
        """
        batch: list[tuple[Job, Sequence[Task]]] = []
        chars, texts = self._batches.chars, self._batches.texts
        unfinished: list[Job] = []
        while self._queue and texts:
            job = self._queue[0]
            if job.is_dropped:
                self._waiting_chars -= sum(task.chars for task in job.tasks[job.taken :])
                self._metrics.dropped.inc()
                self._queue.popleft()
                continue
            tasks = job.take(chars, texts) or (() if batch else job.take_one())
            if not tasks:
                break
            taken = sum(task.chars for task in tasks)
            self._waiting_chars -= taken
            chars, texts = chars - taken, texts - len(tasks)
            batch.append((job, tasks))
            self._queue.popleft()
            if job.has_more:
                unfinished.append(job)
        self._queue.extend(unfinished)
        return batch

    def _work(self, batch: list[tuple[Job, Sequence[Task]]]) -> list[tuple[Job, Exception | None]]:
        """Answer a batch; if that fails, each job of it alone, so that only the faulty one fails.

        Returns:
            The jobs that are done, each with what went wrong.
        """
        finished: list[tuple[Job, Exception | None]] = []
        try:
            answers = iter(self._answer([task for _, tasks in batch for task in tasks]))
        except Exception as error:
            if len(batch) > 1:
                return [done for part in batch for done in self._work([part])]
            if not isinstance(error, CapsarError):
                _LOGGER.error("a batch failed", exc_info=error)
            job = batch[0][0]
            job.is_dropped = True
            return [(job, error)]
        for job, tasks in batch:
            job.answers += [next(answers) for _ in tasks]
            if len(job.answers) == len(job.tasks):
                finished.append((job, None))
        return finished


def _deliver(finished: list[tuple[Job, Exception | None]]) -> None:
    for job, error in finished:
        if job.done.done():  # its client has gone
            continue
        if error is None:
            job.done.set_result(job.answers)
        else:
            job.done.set_exception(error)
