"""The engine on Ray: actors that hold the model, one processor each, on any machine of a cluster.

What goes through Ray are names of fragments and reports, never reviews: those go from the input
straight to whoever scores them, and from there straight to the output. An actor is given its next
fragment when it has reported the last, so there is never more under way than there are actors.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

from capsar.bulk.attempts import Attempt
from capsar.bulk.fragments import Fragment
from capsar.bulk.job import Job
from capsar.bulk.output import Report
from capsar.bulk.worker import Worker
from capsar.errors import ArtifactError, CapsarError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_RAY_HERE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own patience with its parts is 30 s, too little for a busy machine.
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "240",
}
_MOST_DEATHS_AT_START = 20
"""So many actors in a row may die before they are ready; then something is wrong with all."""


def run_on_ray(
    job: Job, fragments: Sequence[Fragment], *, workers: tuple[int, int], address: str | None
) -> Iterator[Report]:
    """Score fragments with actors of a Ray cluster, and yield a report of each as it comes.

    Args:
        job: What to do.
        fragments: What to do it with.
        workers: How many actors to begin with, and how many to grow to while fragments wait.
        address: Of a running cluster; without it one is started here, and ended at the end.
    """
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _start(ray, workers[1], address)
    pool = _Pool(ray, job, fragments, workers)
    try:
        for _ in fragments:
            yield pool.next_report()
    finally:
        pool.end()
        if is_ours:
            ray.shutdown()


class FragmentScorer:
    """What an actor holds and does."""

    def begin(self, job: str) -> str:
        """Load the model; return what is wrong, if something is."""
        try:
            self._worker = Worker(Job.from_json(job))
        except CapsarError as error:
            return str(error)
        return ""

    def score(self, fragment: str, *, careful: bool) -> str:
        """Score a fragment and return the report."""
        return self._worker.score(Fragment.from_json(fragment), careful=careful).to_json()


class _Pool:
    """Actors, and what each of them is at. One that dies is replaced by a new one, anywhere."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401
        job: Job,
        fragments: Sequence[Fragment],
        workers: tuple[int, int],
    ) -> None:
        self._ray = ray
        self._job = job.to_json()
        self._most = workers[1]
        self._waiting = deque(Attempt(fragment) for fragment in fragments)
        self._actor = ray.remote(FragmentScorer).options(
            num_cpus=1, max_restarts=0, max_task_retries=0
        )
        self._at: dict[Any, tuple[Any, Attempt | None]] = {}
        """For each answer that is awaited: the actor, and its fragment; none while it begins."""
        self._deaths_at_start = 0
        for _ in range(min(workers[0], len(fragments))):
            self._add_actor()

    def next_report(self) -> Report:
        """Wait for the next report, and keep all actors busy meanwhile.

        Raises:
            ArtifactError: If actors cannot begin.
        """
        while True:
            (ready,), _ = self._ray.wait([*self._at], num_returns=1)
            actor, attempt = self._at.pop(ready)
            try:
                answer = self._ray.get(ready)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                report = self._after_death(attempt)
            else:
                report = self._after_answer(actor, attempt, answer)
            if report is not None:
                return report

    def end(self) -> None:
        """End all actors, whatever they are at."""
        for actor, _ in self._at.values():
            self._ray.kill(actor)
        self._at.clear()

    def _after_answer(self, actor: Any, attempt: Attempt | None, answer: str) -> Report | None:  # noqa: ANN401
        if attempt is None:
            if answer:
                raise ArtifactError(f"A worker cannot begin: {answer}")
            self._deaths_at_start = 0
        if self._waiting:
            following = self._waiting.popleft()
            fragment = following.fragment.to_json()
            asked = actor.score.remote(fragment, careful=following.is_careful)
            self._at[asked] = actor, following
        else:
            self._ray.kill(actor)
        self._grow()
        return None if attempt is None else Report.from_json(answer)

    def _after_death(self, attempt: Attempt | None) -> Report | None:
        given_up = None
        if attempt is None:
            self._deaths_at_start += 1
            if self._deaths_at_start == _MOST_DEATHS_AT_START:
                raise ArtifactError(
                    f"{_MOST_DEATHS_AT_START} actors in a row died before they were ready. Is "
                    "capsar installed on every machine of the cluster?"
                )
        elif (again := attempt.next()) is not None:
            self._waiting.append(again)
        else:
            given_up = attempt.given_up()
        if self._waiting:
            self._add_actor()
        return given_up

    def _grow(self) -> None:
        """Ask for one actor more while fragments wait and every actor that was asked for works."""
        are_all_at_work = all(attempt is not None for _, attempt in self._at.values())
        if self._waiting and are_all_at_work and len(self._at) < self._most:
            self._add_actor()

    def _add_actor(self) -> None:
        actor = self._actor.remote()
        self._at[actor.begin.remote(self._job)] = actor, None


def _start(ray: Any, workers: int, address: str | None) -> None:  # noqa: ANN401
    settings: dict[str, Any] = {
        "logging_level": "error",
        "log_to_driver": False,
        "runtime_env": {"env_vars": _THREADS},
    }
    if address is None:
        for name, value in _RAY_HERE.items():
            os.environ.setdefault(name, value)
        settings |= {"num_cpus": workers, "include_dashboard": False}
    where = "on this machine" if address is None else f"at {address!r}"
    for last in (False, False, True):
        try:
            ray.init(address=address, **settings)
        except Exception as error:  # Ray raises bare ones
            ray.shutdown()
            if last:
                raise ConfigError(f"Cannot reach Ray {where}: {error}") from error
        else:
            return


def _import_ray() -> Any:  # noqa: ANN401
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "Scoring on Ray") from error
    return ray
