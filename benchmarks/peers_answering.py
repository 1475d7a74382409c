"""The end of a conversation that is inside a peer's environment: JSON lines in, JSON lines out.

Standard library alone, so that it runs in any environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

Place = tuple[int, int]
Found = tuple[int, int, str]
"""Where an aspect begins and ends, and what is felt about it."""


class Model(Protocol):
    """What every peer is asked for."""

    def find(self, texts: list[str]) -> list[list[Found]]:
        """Return the aspects of each text, nobody having named them."""

    def classify(self, texts: list[str], places: list[list[Place]]) -> list[list[str]]:
        """Return what is felt about the aspects at given places of each text."""


def answer_requests(model: Model) -> None:
    """Answer until the questions end; whatever a library prints goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(model, json.loads(line))), file=replies, flush=True)


def _answer(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request; the seconds are those of the model alone, without this conversation."""
    answers: object
    start = time.perf_counter()
    if request["ask"] == "find":
        answers = model.find(request["texts"])
    else:
        answers = model.classify(request["texts"], request["places"])
    seconds = time.perf_counter() - start
    told = {} if request["silent"] else {"answers": answers}
    return told | {"seconds": seconds, "peak_mb": peak_memory_mb()}


def peak_memory_mb() -> float:
    """Return the largest resident size this process has had so far (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
