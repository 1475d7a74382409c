"""Run workers as local processes or as Ray actors, with one retry policy.

Only tasks and results pass through Ray. Workers read the input and write the output directly. A
worker receives its next task when it has finished the last one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any

from capsar.bulk.processes import CRASHED, DONE, FAILED, READY, ROWS, SINGLE_THREAD, WorkerProcess
from capsar.bulk.worker import TaskResult, Worker, WorkerSetup
from capsar.errors import ArtifactError, CapsarError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsar.bulk.processes import Message
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


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """Something that happened to a task; nothing if there is none."""

    task: Task | None = None
    rows: int = 0
    """Rows of the task scored so far."""
    result: TaskResult | None = None
    """The result of a task that is finished."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A running worker."""

    handle: Any
    task: Task | None = None
    rows: int = 0
    """Rows of the task scored so far."""
    is_ready: bool = False
    last_message: float = field(default_factory=time.monotonic)


class Pool:
    """Runs tasks with the workers of an engine. Workers that crash or hang are replaced."""

    def __init__(self, engine: LocalEngine | RayEngine, workers: int, policy: RetryPolicy) -> None:
        self._engine: Any = engine
        self._max, self._policy = workers, policy
        self._queue: deque[Task] = deque()
        self._slots: list[_Slot] = []
        self._failed_starts = 0
        self.num_retries = 0

    def submit(self, task: Task) -> None:
        """Add a task, which may be done while results are consumed."""
        self._queue.append(task)

    def run(self) -> Iterator[PoolEvent]:
        """Yield what happens to the tasks, at least one event every second.

        Raises:
            ArtifactError: If workers cannot start.
        """
        try:
            while self._queue or any(slot.task for slot in self._slots):
                self._start_workers()
                yield PoolEvent()
                for slot, (kind, content) in self._engine.receive([*self._slots], _WAIT_SECONDS):
                    slot.last_message = time.monotonic()
                    if kind == ROWS:
                        slot.rows += content
                        yield PoolEvent(slot.task, slot.rows)
                    else:
                        yield from self._handle(slot, kind, content)
                yield from self._replace_silent()
        finally:
            for slot in self._slots:
                slot.handle.close()
            self._engine.close()

    def _start_workers(self) -> None:
        starting = sum(not slot.is_ready for slot in self._slots)
        for slot in self._slots:
            if slot.is_ready and slot.task is None and self._queue:
                slot.task = self._queue.popleft()
                slot.last_message = time.monotonic()
                slot.handle.send(slot.task)
        while len(self._queue) > starting and len(self._slots) < self._max:
            self._slots.append(_Slot(self._engine.start()))
            starting += 1

    def _handle(self, slot: _Slot, kind: str, content: Any) -> Iterator[PoolEvent]:  # noqa: ANN401
        if kind == READY:
            slot.is_ready = True
            self._failed_starts = 0
        elif kind == FAILED:
            raise ArtifactError(f"A worker cannot start: {content}")
        elif kind == DONE and slot.task:
            task, slot.task, slot.rows = slot.task, None, 0
            yield PoolEvent(task, result=content)
        elif kind == CRASHED:
            yield from self._replace(slot, f"exit code {content}")

    def _replace_silent(self) -> Iterator[PoolEvent]:
        for slot in [*self._slots]:
            is_waited_for = slot.task or (not slot.is_ready and self._engine.has_start_deadline)
            seconds = self._policy.silent_seconds if slot.is_ready else self._policy.start_seconds
            if is_waited_for and slot.last_message < time.monotonic() - seconds:
                slot.handle.close()
                reason = f"no progress in {seconds:.0f} seconds"
                yield from self._replace(slot, reason)

    def _replace(self, slot: _Slot, reason: str) -> Iterator[PoolEvent]:
        """Forget a worker. Retry its task, or give it up."""
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
            yield PoolEvent(task, 0)
        else:
            reason = f"{task.file.uri}: {crashes} workers crashed on {task.name} ({reason})"
            yield PoolEvent(task, result=TaskResult(unreadable=reason))


class LocalEngine:
    """Workers are processes on this machine."""

    has_start_deadline = True
    """Whether a worker that does not start in time is replaced."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup

    def start(self) -> WorkerProcess:
        """Start a process."""
        return WorkerProcess("capsar.bulk.worker", self._setup)

    def receive(self, slots: list[_Slot], seconds: float) -> Iterator[tuple[_Slot, Message]]:
        """Yield a message of each process that has sent one."""
        ready = wait_for([slot.handle.connection for slot in slots], seconds)
        for slot in slots:
            if slot.handle.connection in ready:
                yield slot, slot.handle.receive()

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
    """A Ray actor that holds a worker. Its methods run in two threads."""

    def __init__(self) -> None:
        self._rows: deque[int] = deque()

    def start(self, setup: WorkerSetup) -> Message:
        """Load the model."""
        try:
            self._worker = Worker(setup, self._rows.append)
        except CapsarError as error:
            return FAILED, str(error)
        return READY, None

    def run(self, task: Task) -> Message:
        """Run a task."""
        self._rows.clear()  # of the last task
        return DONE, self._worker.run(task)

    def progress(self) -> list[int]:
        """Return the numbers of rows that were reported since the last call."""
        return [self._rows.popleft() for _ in range(len(self._rows))]


@dataclass(slots=True, eq=False)
class _ActorHandle:
    """A Ray actor, its pending call, and its pending request for progress."""

    actor: Any
    call: Any
    progress: Any = None

    def send(self, task: Task) -> None:
        """Call the actor with a task."""
        self.call = self.actor.run.remote(task)
        self.progress = self.actor.progress.remote()

    def close(self) -> None:
        """Kill the actor."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(self.actor)


class RayEngine:
    """Workers are actors of a Ray cluster. One that crashes is replaced on any node."""

    has_start_deadline = False  # a cluster may take long to grow

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
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        self._actor = self._ray.remote(ShardActor).options(**options)

    def start(self) -> _ActorHandle:
        """Start an actor."""
        actor = self._actor.remote()
        return _ActorHandle(actor, actor.start.remote(self._setup))

    def receive(self, slots: list[_Slot], seconds: float) -> Iterator[tuple[_Slot, Message]]:
        """Yield the result of each finished call, and the progress of the others."""
        waiting = [slot for slot in slots if slot.handle.call is not None]
        if waiting:
            self._ray.wait([slot.handle.call for slot in waiting], timeout=seconds)
        for slot in waiting:
            handle = slot.handle
            if handle.progress is not None and self._is_done(handle.progress):
                for rows in self._get(handle.progress, []):
                    yield slot, (ROWS, rows)
                handle.progress = handle.actor.progress.remote()
            if self._is_done(handle.call):
                call, handle.call = handle.call, None
                yield slot, self._get(call, (CRASHED, "the actor died"))

    def close(self) -> None:
        """Stop Ray if this engine started it."""
        if self._is_ours:
            self._ray.shutdown()

    def _is_done(self, call: Any) -> bool:  # noqa: ANN401
        return bool(self._ray.wait([call], timeout=0)[0])

    def _get(self, call: Any, default: Any) -> Any:  # noqa: ANN401
        """Return the value of a finished call; the default if the actor or its node is gone."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayError:
            return default


def _start_ray(ray: Any, workers: int, address: str | None) -> None:  # noqa: ANN401
    settings: dict[str, Any] = {
        "logging_level": "error",
        "log_to_driver": False,
        "runtime_env": {"env_vars": SINGLE_THREAD},
    }
    if address is None:
        for name, value in _RAY_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        settings |= {"num_cpus": workers, "include_dashboard": False}
    where = "on this machine" if address is None else f"at {address!r}"
    for is_last in (False, False, True):
        try:
            ray.init(address=address, **settings)
        except Exception as error:  # Ray raises bare exceptions
            ray.shutdown()
            if is_last:
                raise ConfigError(f"Cannot connect to Ray {where}: {error}") from error
        else:
            return
