"""Logs: one JSON object a line, or words where a person reads along; never a text."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": record.process,
        }
        content |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[1]:
            content["exception"] = told_of(record.exc_info[1])
        return json.dumps(content)


class Words(logging.Formatter):
    """A record as a line that people read."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        facts = getattr(record, "facts", {})
        line = " ".join(
            [record.getMessage(), *(f"{name}={value}" for name, value in facts.items())]
        )
        if record.exc_info and record.exc_info[1]:
            line += "\n" + "\n".join(told_of(record.exc_info[1]))
        return f"{datetime.fromtimestamp(record.created, UTC):%H:%M:%S} {line}"


def told_of(error: BaseException) -> list[str]:
    """Return where an error came from. Its message is left out: it may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    told = [*places, type(error).__qualname__]
    cause = error.__cause__ or error.__context__
    return [*told_of(cause), *told] if cause else told


def start_logging(level: str) -> None:
    """Send all logs to standard error: words to a terminal, JSON lines to anything else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Words() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Of what uvicorn tells, only what is wrong; starting and ending we say ourselves.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
