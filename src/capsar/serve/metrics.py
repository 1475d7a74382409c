"""Logs and Prometheus metrics of the service; neither contains any analyzed text."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
_CHARS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class LogFormatter(logging.Formatter):
    """Formats a record as one JSON object per line, or as text for terminals."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, followed by its traceback if it is text."""
        event, fields = record.getMessage(), getattr(record, "fields", {})
        error = describe_error(record.exc_info[1]) if record.exc_info and record.exc_info[1] else []
        time = datetime.fromtimestamp(record.created, UTC)
        if not self._as_json:
            words = [event, *(f"{key}={value}" for key, value in fields.items())]
            return "\n".join([f"{time:%H:%M:%S} {' '.join(words)}", *error])
        content: dict[str, object] = {"time": time.isoformat(timespec="milliseconds")}
        content |= {"level": record.levelname.lower(), "event": event, "pid": record.process}
        return json.dumps(content | fields | ({"exception": error} if error else {}))


def describe_error(error: BaseException) -> list[str]:
    """Return the traceback and type of an error, without its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    lines.append(type(error).__qualname__)
    cause = error.__cause__ or error.__context__
    return [*describe_error(cause), *lines] if cause else lines


def start_logging(level: str) -> None:
    """Log to standard error: text if it is a terminal, otherwise one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(as_json=not sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Only errors of uvicorn; `server` logs startup and shutdown itself.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class Metrics:
    """Metrics of a service, in their own registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter("capsar_requests", "Responses sent.", ("route", "status"))
        help_text = "Time from the headers of a request to the end of its response, without errors."
        self.latency = histogram("capsar_request_seconds", help_text, ("route",), buckets=_SECONDS)
        self.shed = counter("capsar_shed", "Requests rejected because the queue was full.")
        self.dropped = counter("capsar_dropped", "Requests ended by a disconnect or the deadline.")
        help_text = "Characters of work that are queued or in progress."
        self.queue_chars = Gauge("capsar_queue_chars", help_text, registry=registry)
        self._batch = (
            histogram("capsar_batch_texts", "Texts per batch.", buckets=_TEXTS),
            histogram("capsar_batch_chars", "Characters of work per batch.", buckets=_CHARS),
            histogram("capsar_batch_seconds", "Time to run a batch.", buckets=_SECONDS),
        )

    def observe_batch(self, texts: int, chars: int, seconds: float) -> None:
        """Record a batch."""
        for metric, value in zip(self._batch, (texts, chars, seconds), strict=True):
            metric.observe(value)

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self._registry)
