"""Run workers as local processes or as Ray actors, with one retry policy.

Only tasks and results pass through Ray. Workers read the input and write the output directly. A
worker receives its next task when it has finished the last one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any

from capsar.bulk import processes
from capsar.bulk.worker import TaskResult, Worker, WorkerSetup
from capsar.errors import ArtifactError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from capsar.bulk.processes import Message, WorkerProcess
    from capsar.bulk.worker import Task

_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to replace a worker, when to isolate the rows of a task, and when to give it up."""

    silent_seconds: float = 300.0
    """How long a worker may report no rows before it is killed."""
    start_seconds: float = 300.0
    """How long a local worker may take to load the model before it is killed."""
    isolate_after: int = 2
    """Crashes after which rows are scored in a subprocess."""
    give_up_after: int = 6
    """Crashes after which a task is reported as unreadable."""
    max_failed_starts: int = 10
    """Workers in a row that may crash during start-up before the job stops."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A running worker."""

    worker: WorkerProcess | _RayWorker
    task: Task | None = None
    rows: int = 0
    """Rows of the task scored so far."""
    is_ready: bool = False
    last_message: float = field(default_factory=time.monotonic)


class Pool:
    """Runs tasks with the workers of an engine. Workers that crash or hang are replaced."""

    def __init__(self, engine: LocalEngine | RayEngine, workers: int, policy: RetryPolicy) -> None:
        self._engine, self._max, self._policy = engine, workers, policy
        self._queue: deque[Task] = deque()
        self._slots: list[_Slot] = []
        self._finished: list[tuple[Task, TaskResult]] = []
        self._failed_starts = 0
        self.num_retries = 0

    @property
    def partial_rows(self) -> int:
        """The number of rows scored in unfinished tasks."""
        return sum(slot.rows for slot in self._slots)

    def submit(self, tasks: Iterable[Task]) -> None:
        """Add tasks, which may be done while results are consumed."""
        self._queue.extend(tasks)

    def run(self) -> Iterator[list[tuple[Task, TaskResult]]]:
        """Yield the tasks that have finished, at least once per second, until none is left.

        Raises:
            ArtifactError: If workers cannot start.
        """
        while self._queue or self._finished or any(slot.task for slot in self._slots):
            self._assign_tasks()
            finished, self._finished = self._finished, []
            yield finished
            if finished:  # tasks that follow from them may have been submitted
                continue
            ready = self._engine.wait([slot.worker.connection for slot in self._slots])
            for slot in [slot for slot in self._slots if slot.worker.connection in ready]:
                self._handle(slot, *slot.worker.receive())
            self._replace_silent()

    def close(self) -> None:
        """Kill all workers."""
        for slot in self._slots:
            slot.worker.close()
        self._engine.close()

    def _assign_tasks(self) -> None:
        """Give tasks to idle workers, and start workers for the others."""
        for slot in self._slots:
            if slot.is_ready and slot.task is None and self._queue:
                slot.task, slot.last_message = self._queue.popleft(), time.monotonic()
                slot.worker.send(slot.task)
        starting = sum(not slot.is_ready for slot in self._slots)
        for _ in range(min(len(self._queue) - starting, self._max - len(self._slots))):
            self._slots.append(_Slot(self._engine.start()))

    def _handle(self, slot: _Slot, kind: str, content: Any) -> None:  # noqa: ANN401
        slot.last_message = time.monotonic()
        if kind == processes.ROWS:
            slot.rows += content
        elif kind == processes.READY:
            slot.is_ready, self._failed_starts = True, 0
        elif kind == processes.DONE and slot.task:
            self._finished.append((slot.task, content))
            slot.task, slot.rows = None, 0
        elif kind == processes.CRASHED:
            self._replace(slot, f"exit code {content}")
        elif kind == processes.FAILED:
            raise ArtifactError(f"A worker cannot start: {content}")

    def _replace_silent(self) -> None:
        for slot in [*self._slots]:
            seconds = self._policy.silent_seconds if slot.is_ready else self._policy.start_seconds
            is_idle = slot.is_ready and slot.task is None
            if not is_idle and slot.last_message < time.monotonic() - seconds:
                self._replace(slot, f"no progress in {seconds:.0f} seconds")

    def _replace(self, slot: _Slot, reason: str) -> None:
        """Kill a worker. Retry its task, or give it up."""
        slot.worker.close()
        self._slots.remove(slot)
        task = slot.task
        if task is None:
            self._failed_starts += not slot.is_ready
            if self._failed_starts >= self._policy.max_failed_starts:
                raise ArtifactError(
                    f"{self._failed_starts} workers in a row crashed before they were ready "
                    f"({reason}). Is capsar installed on every machine?"
                )
            return
        self.num_retries += 1
        crashes = task.crashes + 1
        if crashes < self._policy.give_up_after:
            isolate = crashes >= self._policy.isolate_after
            self._queue.append(replace(task, crashes=crashes, isolate=isolate))
        else:
            reason = f"{task.file.uri}: {crashes} workers crashed on {task.name} ({reason})"
            self._finished.append((task, TaskResult(unreadable=reason)))


class LocalEngine:
    """Workers are processes on this machine."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup

    def start(self) -> WorkerProcess:
        """Start a process."""
        return processes.WorkerProcess("capsar.bulk.worker", self._setup)

    def wait(self, connections: list[Any]) -> list[Any]:
        """Wait for messages, and return the connections that have one."""
        return wait_for(connections, _WAIT_SECONDS)

    def close(self) -> None:
        """Do nothing: all processes are killed."""


_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's default time limits of 30 s are too short for a busy machine.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "240",
    # Ray runs workers at nice 15, so scoring would wait for every other process.
    "RAY_worker_niceness": "0",
    # Idle workers, and metrics for a dashboard that does not run, take CPU time.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_task_events_report_interval_ms": "0",
}


class ShardActor:
    """A Ray actor that runs a worker in a thread. Its methods are called in two other threads."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._connection, theirs = Pipe()
        requests = (theirs, lambda setup, report: Worker(setup, report).run)
        threading.Thread(target=processes.handle_requests, args=requests, daemon=True).start()
        self._connection.send(setup)  # blocks if it is larger than the buffer of the pipe

    def send(self, task: Task) -> None:
        """Send a task to the worker."""
        self._connection.send(task)

    def receive(self) -> Message:
        """Return the next message of the worker."""
        message: Message = self._connection.recv()
        return message


class _RayWorker:
    """A Ray actor with the interface of a `WorkerProcess`."""

    def __init__(self, ray: Any, actor: Any) -> None:  # noqa: ANN401
        self._ray, self._actor = ray, actor
        self.connection = actor.receive.remote()  # the next message

    def send(self, task: Task) -> None:
        """Send a task; if the actor has died, `receive` reports it."""
        self._actor.send.remote(task)

    def receive(self) -> Message:
        """Return the next message, `CRASHED` if the actor or its node is gone."""
        try:
            message: Message = self._ray.get(self.connection)
        except self._ray.exceptions.RayError:
            return processes.CRASHED, "unknown, the actor died"
        self.connection = self._actor.receive.remote()
        return message

    def close(self) -> None:
        """Kill the actor."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)


class RayEngine:
    """Workers are actors of a Ray cluster. One that crashes is replaced on any node."""

    def __init__(self, setup: WorkerSetup, workers: int, address: str | None) -> None:
        """Connect to a cluster, or start one on this machine and stop it at the end."""
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "Scoring on Ray") from error
        self._ray: Any = ray
        self._setup = setup
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            _start_ray(ray, workers, address)
        self._actor = self._ray.remote(num_cpus=1, max_concurrency=2)(ShardActor)

    def start(self) -> _RayWorker:
        """Start an actor."""
        return _RayWorker(self._ray, self._actor.remote(self._setup))

    def wait(self, connections: list[Any]) -> set[Any]:
        """Wait for messages, and return the connections that have one."""
        self._ray.wait(connections, timeout=_WAIT_SECONDS)
        return set(self._ray.wait(connections, num_returns=len(connections), timeout=0)[0])

    def close(self) -> None:
        """Stop Ray if this engine started it."""
        if self._is_ours:
            self._ray.shutdown()


def _start_ray(ray: Any, workers: int, address: str | None) -> None:  # noqa: ANN401
    settings: dict[str, Any] = {"runtime_env": {"env_vars": processes.SINGLE_THREAD}}
    if address is None:
        os.environ |= _RAY_ENVIRONMENT | dict(os.environ)
        settings |= {"num_cpus": workers, "include_dashboard": False}
    where = "on this machine" if address is None else f"at {address!r}"
    for is_last in (False, False, True):
        try:
            ray.init(address=address, logging_level="error", log_to_driver=False, **settings)
        except Exception as error:  # Ray raises bare exceptions
            ray.shutdown()
            if is_last:
                raise ConfigError(f"Cannot connect to Ray {where}: {error}") from error
        else:
            return
