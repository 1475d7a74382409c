"""Run workers as local processes or as Ray actors, and retry shards whose worker crashed.

Only shard names and results pass through Ray. Workers read the input and write the output
directly. A worker receives its next shard when it has finished the last one.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from capsar.bulk.job import Job
from capsar.bulk.output import ShardResult
from capsar.bulk.processes import SINGLE_THREAD, WorkerProcess
from capsar.bulk.shards import Shard
from capsar.bulk.worker import Worker, shard_request
from capsar.errors import ArtifactError, CapsarError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to isolate the rows of a shard that crashes workers, and when to give it up."""

    isolate_after: int = 2
    """Crashes after which rows are scored in a subprocess."""
    give_up_after: int = 6
    """Crashes after which the shard is reported as unreadable."""


RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A shard, and how often its worker has crashed."""

    shard: Shard
    crashes: int = 0

    @property
    def isolate(self) -> bool:
        """Whether to score the rows in a separate process, after repeated crashes."""
        return self.crashes >= RETRY_POLICY.isolate_after

    def after_crash(self) -> _Attempt | ShardResult:
        """Return the next attempt, or the result if there is none."""
        crashes = self.crashes + 1
        if crashes < RETRY_POLICY.give_up_after:
            return replace(self, crashes=crashes)
        reason = f"{self.shard.uri}: {crashes} workers crashed on {self.shard.name}"
        return ShardResult.failed(self.shard, unreadable=reason)


def run_local(job: Job, shards: Sequence[Shard], workers: int) -> Iterator[ShardResult]:
    """Score shards with local processes, and yield each result when it is available.

    A process that crashes is replaced and its shard is retried. All processes end when the caller
    closes the iterator.
    """
    pool = _LocalPool(job, shards)
    threads = [
        threading.Thread(target=pool.work, daemon=True) for _ in range(min(workers, len(shards)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in shards:
            result = pool.results.get()
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        pool.stop()
        for thread in threads:
            thread.join()


class _LocalPool:
    """A queue of shards, and worker processes with one thread each to communicate with them."""

    def __init__(self, job: Job, shards: Sequence[Shard]) -> None:
        self.results: queue.SimpleQueue[ShardResult | Exception] = queue.SimpleQueue()
        self._job = job
        self._queue: queue.SimpleQueue[_Attempt] = queue.SimpleQueue()
        for shard in shards:
            self._queue.put(_Attempt(shard))
        self._processes: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def work(self) -> None:
        """Score shards with one process until the queue is empty."""
        try:
            while True:
                try:
                    attempt = self._queue.get_nowait()
                except queue.Empty:
                    return
                self._score(attempt)
        except Exception as error:  # noqa: BLE001  (raised again in `run_local`)
            self.results.put(error)
        finally:
            self._end_process()

    def stop(self) -> None:
        """Kill all processes."""
        with self._lock:
            self._is_stopped = True
            for process in self._processes.values():
                process.kill()

    def _score(self, attempt: _Attempt) -> None:
        process = self._process()
        if process is None:
            return
        response = process.request(shard_request(attempt.shard, isolate=attempt.isolate))
        if response is not None:
            self.results.put(ShardResult.from_json(response))
            return
        self._end_process()
        if self._is_stopped:
            return
        following = attempt.after_crash()
        if isinstance(following, _Attempt):
            self._queue.put(following)
        else:
            self.results.put(following)

    def _process(self) -> WorkerProcess | None:
        """Return the process of this thread, started if necessary; `None` if the pool stopped."""
        thread = threading.get_ident()
        if thread not in self._processes:
            process = WorkerProcess("capsar.bulk.worker", self._job.to_json())
            with self._lock:
                if self._is_stopped:
                    process.close()
                    return None
                self._processes[thread] = process
        return self._processes[thread]

    def _end_process(self) -> None:
        with self._lock:
            process = self._processes.pop(threading.get_ident(), None)
        if process is not None:
            process.close()


_RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's default time limits of 30 s are too short for a busy machine.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "240",
}
_MAX_START_CRASHES = 20
"""Number of actors in a row that may crash during start-up before the job stops."""


def run_on_ray(
    job: Job, shards: Sequence[Shard], *, workers: tuple[int, int], address: str | None
) -> Iterator[ShardResult]:
    """Score shards with Ray actors, and yield each result when it is available.

    Args:
        job: The job.
        shards: The shards to score.
        workers: Number of actors at the start, and the maximum while shards are waiting.
        address: Address of a running cluster; if `None`, start one on this machine and stop it
            at the end.
    """
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _start_ray(ray, workers[1], address)
    pool = _RayPool(ray, job, shards, workers)
    try:
        for _ in shards:
            yield pool.next_result()
    finally:
        pool.end()
        if is_ours:
            ray.shutdown()


class ShardActor:
    """A Ray actor that holds a worker."""

    def start(self, job: str) -> str:
        """Load the model; return an error message, empty on success."""
        try:
            self._worker = Worker(Job.from_json(job))
        except CapsarError as error:
            return str(error)
        return ""

    def score(self, shard: str, *, isolate: bool) -> str:
        """Score a shard and return its result."""
        return self._worker.score(Shard.from_json(shard), isolate=isolate).to_json()


class _RayPool:
    """A queue of shards, and Ray actors. An actor that crashes is replaced on any node."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401
        job: Job,
        shards: Sequence[Shard],
        workers: tuple[int, int],
    ) -> None:
        self._ray = ray
        self._job = job.to_json()
        self._max_actors = workers[1]
        self._queue = deque(_Attempt(shard) for shard in shards)
        self._actor = ray.remote(ShardActor).options(num_cpus=1, max_restarts=0, max_task_retries=0)
        self._pending: dict[Any, tuple[Any, _Attempt | None]] = {}
        """The actor and its attempt for each pending call; no attempt while the actor starts."""
        self._start_crashes = 0
        for _ in range(min(workers[0], len(shards))):
            self._add_actor()

    def next_result(self) -> ShardResult:
        """Wait for the next result, and keep all actors busy in the meantime.

        Raises:
            ArtifactError: If actors cannot start.
        """
        while True:
            (ready,), _ = self._ray.wait([*self._pending], num_returns=1)
            actor, attempt = self._pending.pop(ready)
            try:
                response = self._ray.get(ready)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                result = self._handle_crash(attempt)
            else:
                result = self._handle_response(actor, attempt, response)
            if result is not None:
                return result

    def end(self) -> None:
        """Kill all actors."""
        for actor, _ in self._pending.values():
            self._ray.kill(actor)
        self._pending.clear()

    def _handle_response(
        self,
        actor: Any,  # noqa: ANN401
        attempt: _Attempt | None,
        response: str,
    ) -> ShardResult | None:
        if attempt is None:
            if response:
                raise ArtifactError(f"A worker cannot start: {response}")
            self._start_crashes = 0
        if self._queue:
            following = self._queue.popleft()
            shard = following.shard.to_json()
            call = actor.score.remote(shard, isolate=following.isolate)
            self._pending[call] = actor, following
        else:
            self._ray.kill(actor)
        self._grow()
        return None if attempt is None else ShardResult.from_json(response)

    def _handle_crash(self, attempt: _Attempt | None) -> ShardResult | None:
        result = None
        if attempt is None:
            self._start_crashes += 1
            if self._start_crashes == _MAX_START_CRASHES:
                raise ArtifactError(
                    f"{_MAX_START_CRASHES} actors in a row crashed before they were ready. Is "
                    "capsar installed on every machine of the cluster?"
                )
        else:
            following = attempt.after_crash()
            if isinstance(following, _Attempt):
                self._queue.append(following)
            else:
                result = following
        if self._queue:
            self._add_actor()
        return result

    def _grow(self) -> None:
        """Add an actor if shards are waiting and every actor is busy with a shard."""
        are_busy = all(attempt is not None for _, attempt in self._pending.values())
        if self._queue and are_busy and len(self._pending) < self._max_actors:
            self._add_actor()

    def _add_actor(self) -> None:
        actor = self._actor.remote()
        self._pending[actor.start.remote(self._job)] = actor, None


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


def _import_ray() -> Any:  # noqa: ANN401
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "Scoring on Ray") from error
    return ray
