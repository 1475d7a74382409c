"""What a service tells Prometheus about itself: the sums over all of its workers."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder where workers of one service write their figures."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64)
_CHARS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class Metrics:
    """The figures of one worker, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "capsar_requests",
            "Requests answered.",
            ("route", "status"),
            registry=self._registry,
        )
        self.latency = Histogram(
            "capsar_request_seconds",
            "From a request's headers to the end of its answer; refused ones are not in it.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.shed = Counter(
            "capsar_shed",
            "Requests refused because the queue was full.",
            registry=self._registry,
        )
        self.dropped = Counter(
            "capsar_dropped",
            "Queued requests whose client had gone or whose time was up: no work was done.",
            registry=self._registry,
        )
        self.queue_chars = Gauge(
            "capsar_queue_chars",
            "Characters that wait or are being worked on.",
            multiprocess_mode="livesum",
            registry=self._registry,
        )
        self._batch_texts = Histogram(
            "capsar_batch_texts", "Texts of a batch.", buckets=_TEXTS, registry=self._registry
        )
        self._batch_chars = Histogram(
            "capsar_batch_chars", "Characters of a batch.", buckets=_CHARS, registry=self._registry
        )
        self._batch_seconds = Histogram(
            "capsar_batch_seconds",
            "Time to answer a batch.",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def batch(self, texts: int, chars: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_texts.observe(texts)
        self._batch_chars.observe(chars)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them, those of the other workers included."""
        registry = self._registry
        if MULTIPROCESS_FOLDER in os.environ:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def forget_dead_workers() -> None:
    """Drop what workers that were killed had last said of their queues."""
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    if folder is None:
        return
    for path in Path(folder).glob("gauge_live*_*.db"):
        pid = int(path.stem.rpartition("_")[2])
        if not _is_alive(pid):
            multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
