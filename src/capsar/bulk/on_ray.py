"""The engine on Ray: fragments are rows of a dataset, and actors that hold the model map them.

Ray Data gives the pool of actors (it grows and shrinks within its range), back-pressure and
retries. It moves names of fragments and reports, never reviews: those go from the input straight
to whoever scores them, and from there straight to the output.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from capsar.bulk.fragments import Fragment
from capsar.bulk.job import Job
from capsar.bulk.output import Report
from capsar.bulk.worker import Worker
from capsar.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_BLOCKS = 10_000
"""Ray keeps some state for each block; with more fragments than this a block holds several."""
_RETRIES = 3
"""Deaths that a block survives before its fragments are scored carefully."""
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run_on_ray(
    job: Job, fragments: Sequence[Fragment], *, workers: tuple[int, int], address: str | None
) -> Iterator[Report]:
    """Score fragments with actors of a Ray cluster, and yield a report of each as it comes.

    Args:
        job: What to do.
        fragments: What to do it with.
        workers: How many actors at least and at most, one processor each.
        address: Of a running cluster; without it one is started here, and ended at the end.
    """
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _start(ray, workers, address)
    try:
        missing = {fragment.name: fragment for fragment in fragments}
        for is_careful in (False, True):
            for report in _map(ray, job, list(missing.values()), workers, is_careful=is_careful):
                del missing[report.name]
                yield report
            if not missing:
                return
        for fragment in missing.values():
            report = Report(fragment.name, fragment.address, fragment.size)
            yield replace(report, unreadable=f"{fragment.address}: workers died of it")
    finally:
        if is_ours:
            ray.shutdown()


class FragmentScorer:
    """What an actor holds and does."""

    def __init__(self, job: str, *, is_careful: bool) -> None:
        self._worker = Worker(Job.from_json(job))
        self._is_careful = is_careful

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Score the fragments of a batch, and return their reports."""
        reports = [
            self._worker.score(Fragment.from_json(text), careful=self._is_careful).to_json()
            for text in batch["fragment"]
        ]
        return {"report": reports}


def _map(
    ray: Any,  # noqa: ANN401
    job: Job,
    fragments: list[Fragment],
    workers: tuple[int, int],
    *,
    is_careful: bool,
) -> Iterator[Report]:
    """Map fragments to reports. Those that killed too many actors have none."""
    context = ray.data.DataContext.get_current().copy()
    context.max_errored_blocks = -1
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    blocks = min(len(fragments), _MOST_BLOCKS)
    least, most = min(workers[0], blocks), min(workers[1], blocks)
    with ray.data.DataContext.current(context):
        dataset = ray.data.from_items(
            [{"fragment": fragment.to_json()} for fragment in fragments],
            override_num_blocks=blocks,
        )
        reports = dataset.map_batches(
            FragmentScorer,
            fn_constructor_args=(job.to_json(),),
            fn_constructor_kwargs={"is_careful": is_careful},
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(
                min_size=least, max_size=most, max_tasks_in_flight_per_actor=2
            ),
            num_cpus=1,
            ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": _RETRIES},
        )
        for batch in reports.iter_batches(batch_size=None, prefetch_batches=0):
            for text in batch["report"]:
                yield Report.from_json(text)


def _start(ray: Any, workers: tuple[int, int], address: str | None) -> None:  # noqa: ANN401
    settings: dict[str, Any] = {
        "logging_level": "error",
        "log_to_driver": False,
        "runtime_env": {"env_vars": _THREADS},
    }
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Two more than the actors take: what Ray Data does itself wants processors too, and
        # waits for ever where actors hold them all.
        settings |= {"num_cpus": workers[1] + 2, "include_dashboard": False}
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if address is None else f"at {address!r}"
        raise ConfigError(f"Cannot reach Ray {where}: {error}") from error


def _import_ray() -> Any:  # noqa: ANN401
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("ray", "Scoring on Ray") from error
    return ray
