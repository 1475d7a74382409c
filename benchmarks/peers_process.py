"""The end of a conversation with a peer that asks: a process of the peer's own environment."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

    from peers_answering import Found, Place

_LAST_LINES = 15


def quiet_environment() -> dict[str, str]:
    """Return what peers run with: one thread, no hub, nothing of this project's environment."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
    more = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return kept | threads | offline | more


class Peer:
    """A peer that runs and answers.

    Args:
        command: What starts it.
        log: Where whatever it prints goes.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=quiet_environment(),
                text=True,
            )
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def find(self, texts: list[str]) -> list[list[Found]]:
        """Return the aspects it finds."""
        found: list[list[Found]] = self._ask("find", texts)["answers"]
        return found

    def classify(self, texts: list[str], places: list[list[Place]]) -> list[list[str]]:
        """Return what it says of given aspects."""
        told: list[list[str]] = self._ask("classify", texts, places)["answers"]
        return told

    def time(self, texts: list[str], places: list[list[Place]] | None = None) -> dict[str, float]:
        """Return the `seconds` it takes to find aspects, or to classify, and its `peak_mb`."""
        ask = "find" if places is None else "classify"
        return self._ask(ask, texts, places, silent=True)

    def _ask(
        self,
        ask: str,
        texts: list[str],
        places: list[list[Place]] | None = None,
        *,
        silent: bool = False,
    ) -> dict[str, Any]:
        request = {"ask": ask, "texts": texts, "places": places, "silent": silent}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise SystemExit("A peer ended:\n" + "\n".join(last[-_LAST_LINES:]))
        reply: dict[str, Any] = json.loads(line)
        return reply
