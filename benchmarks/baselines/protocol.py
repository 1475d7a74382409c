"""Run a baseline as a process in its own environment, with JSON lines in and out.

Uses the standard library only, because both ends of the pipe import it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol, Self

Span = tuple[int, int]
Prediction = tuple[int, int, str]
"""Start, end and polarity of an aspect."""
_LOG_LINES = 15


class Model(Protocol):
    """A model inside its environment."""

    def extract(self, texts: list[str]) -> list[list[Prediction]]:
        """Return the aspects of each text with their polarity."""

    def classify(self, texts: list[str], spans: list[list[Span]]) -> list[list[str]]:
        """Return the polarity of the given aspects of each text."""


def serve(model: Model) -> None:
    """Handle requests until stdin ends; everything that libraries print goes to stderr."""
    responses = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=responses, flush=True)
    for line in sys.stdin:
        print(json.dumps(_handle(model, json.loads(line))), file=responses, flush=True)


def _handle(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """Return the predictions, and the time of the model without the transfer."""
    predictions: object
    start = time.perf_counter()
    if request["spans"] is None:
        predictions = model.extract(request["texts"])
    else:
        predictions = model.classify(request["texts"], request["spans"])
    seconds = time.perf_counter() - start
    response = {"predictions": predictions} if request["wants_predictions"] else {}
    return response | {"seconds": seconds, "peak_mb": _peak_memory_mb()}


def _peak_memory_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def process_environment() -> dict[str, str]:
    """Return environment variables for one thread, no hub, and no packages of this project."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    more = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return kept | threads | offline | more


class BaselineProcess:
    """A running baseline.

    Args:
        command: The command that starts it.
        log: A file for its stderr.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=process_environment(),
                text=True,
            )
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def extract(self, texts: list[str]) -> list[list[Prediction]]:
        """Return the extracted aspects."""
        predictions: list[list[Prediction]] = self._request(texts, None)["predictions"]
        return predictions

    def classify(self, texts: list[str], spans: list[list[Span]]) -> list[list[str]]:
        """Return the polarity of given aspects."""
        predictions: list[list[str]] = self._request(texts, spans)["predictions"]
        return predictions

    def time(self, texts: list[str], spans: list[list[Span]] | None = None) -> dict[str, float]:
        """Return the `seconds` of extraction, or of classification, and the `peak_mb`."""
        return self._request(texts, spans, wants_predictions=False)

    def _request(
        self, texts: list[str], spans: list[list[Span]] | None, *, wants_predictions: bool = True
    ) -> dict[str, Any]:
        request = {"texts": texts, "spans": spans, "wants_predictions": wants_predictions}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise SystemExit("A baseline exited:\n" + "\n".join(lines[-_LOG_LINES:]))
        response: dict[str, Any] = json.loads(line)
        return response
