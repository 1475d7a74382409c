"""The log of a run, for machines and for TensorBoard."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

    from capsar.training.checkpoint import Progress
    from capsar.training.loop import StepInfo


class RunLog:
    """`log.jsonl` for machines and TensorBoard's events: one entry an epoch.

    Both are written from the history that checkpoints hold, so that a killed run loses nothing.
    """

    def __init__(self, folder: Path, progress: Progress, *, enabled: bool) -> None:
        self._path = folder / "log.jsonl"
        self._progress = progress
        self._events: Any = None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            events = folder / "events"
            shutil.rmtree(events, ignore_errors=True)
            self._events = SummaryWriter(str(events))
            for entry in progress.history:
                self._add(entry)
            self._write_lines()

    def write(self, info: StepInfo) -> None:
        """Enter an epoch once it has ended."""
        if self._events is not None and info.ends_epoch:
            self._add(self._progress.history[-1])
            self._write_lines()

    def close(self) -> None:
        """End the log."""
        if self._events is not None:
            self._events.close()

    def _add(self, entry: dict[str, float]) -> None:
        for name in entry.keys() - {"epoch"}:
            self._events.add_scalar(name, entry[name], int(entry["epoch"]))
        self._events.flush()

    def _write_lines(self) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in self._progress.history)
        scratch = self._path.with_suffix(".tmp")
        try:
            scratch.write_text(lines, encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(self._path)!r}: {error}") from error
