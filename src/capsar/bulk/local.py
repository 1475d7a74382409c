"""The engine without Ray: one process a worker, on this machine."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from capsar.bulk.attempts import Attempt
from capsar.bulk.output import Report
from capsar.bulk.process import LineProcess
from capsar.bulk.worker import ask_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from capsar.bulk.fragments import Fragment
    from capsar.bulk.job import Job


def run_local(job: Job, fragments: Sequence[Fragment], workers: int) -> Iterator[Report]:
    """Score fragments with so many processes, and yield a report of each as it comes.

    A process that dies is replaced, and its fragment is scored again. When the caller stops asking,
    all processes end.
    """
    pool = _Pool(job, fragments)
    threads = [
        threading.Thread(target=pool.work, daemon=True) for _ in range(min(workers, len(fragments)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in fragments:
            report = pool.reports.get()
            if isinstance(report, Exception):
                raise report
            yield report
    finally:
        pool.stop()
        for thread in threads:
            thread.join()


class _Pool:
    """Fragments that wait, and the processes that score them, each with a thread that asks it."""

    def __init__(self, job: Job, fragments: Sequence[Fragment]) -> None:
        self.reports: queue.SimpleQueue[Report | Exception] = queue.SimpleQueue()
        self._job = job
        self._waiting: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        for fragment in fragments:
            self._waiting.put(Attempt(fragment))
        self._processes: dict[int, LineProcess] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def work(self) -> None:
        """Have one process score fragments until none waits."""
        try:
            while True:
                try:
                    attempt = self._waiting.get_nowait()
                except queue.Empty:
                    return
                self._score(attempt)
        except Exception as error:  # noqa: BLE001  (raised again where the reports are taken)
            self.reports.put(error)
        finally:
            self._end_process()

    def stop(self) -> None:
        """End all processes, whatever they are at."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes.values():
                process.kill()

    def _score(self, attempt: Attempt) -> None:
        process = self._process()
        if process is None:
            return
        answer = process.ask(ask_worker(attempt.fragment, careful=attempt.is_careful))
        if answer is not None:
            self.reports.put(Report.from_json(answer))
            return
        self._end_process()
        if self._is_stopped:
            return
        again = attempt.next()
        if again is not None:
            self._waiting.put(again)
        else:
            self.reports.put(attempt.given_up())

    def _process(self) -> LineProcess | None:
        """Return this thread's process, a new one if need be; nothing when all have to end."""
        mine = threading.get_ident()
        if mine not in self._processes:
            process = LineProcess("capsar.bulk.worker", self._job.to_json())
            with self._lock:
                if self._is_stopped:
                    process.close()
                    return None
                self._processes[mine] = process
        return self._processes[mine]

    def _end_process(self) -> None:
        with self._lock:
            process = self._processes.pop(threading.get_ident(), None)
        if process is not None:
            process.close()
