"""Speed, peak memory and time to the first result, on one core, in turn."""

from __future__ import annotations

import statistics
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from baselines.protocol import process_environment
from measure import median_ratio

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from baselines.protocol import BaselineProcess
    from baselines.quality import EvaluationSet
    from baselines.systems import System

REFERENCE = "setfit"
OURS = ("base", "fast", "restaurant")
Response = dict[str, float]


def measure_speed(systems: list[System], test: EvaluationSet, turns: int) -> dict[str, float]:
    """Measure extraction and classification of all systems in turn.

    Peak memory is that after extraction, or after classification for systems without extraction.
    """
    texts, spans = test.texts, test.spans
    metrics: dict[str, float] = {"sentences": len(texts), "turns": turns}
    with ExitStack() as stack:
        processes = {system.name: stack.enter_context(system.start()) for system in systems}
        extracting = {system.name: processes[system.name] for system in systems if system.extracts}
        extracted = _in_turn(extracting, lambda process: process.time(texts), turns)
        given = _in_turn(processes, lambda process: process.time(texts, spans), turns)
    for kind, responses in (("given_", given), ("", extracted)):
        seconds = {name: [one["seconds"] for one in own] for name, own in responses.items()}
        for name, own in responses.items():
            metrics[f"{name}_peak_mb"] = own[-1]["peak_mb"]
            rate = len(texts) / statistics.median(seconds[name])
            metrics[f"{name}_{kind}sentences_per_s"] = rate
        for name in (name for name in OURS if name in seconds):
            key = f"{name}_over_{REFERENCE}_{kind}".rstrip("_")
            metrics[key] = median_ratio(seconds[REFERENCE], seconds[name])
    return metrics


def _in_turn(
    processes: dict[str, BaselineProcess], call: Callable[[BaselineProcess], Response], turns: int
) -> dict[str, list[Response]]:
    """Call each process once per turn, after one turn to warm up."""
    responses: dict[str, list[Response]] = {name: [] for name in processes}
    for _ in range(turns + 1):
        for name, process in processes.items():
            responses[name].append(call(process))
    return {name: own[1:] for name, own in responses.items()}


def measure_cold_start(systems: list[System], work: Path, turns: int) -> dict[str, float]:
    """Time each program in fresh processes, in turn, after one run to fill the disk cache."""
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for turn in range(turns + 1):
        for system in systems:
            elapsed = _seconds_to_first_line(system, work)
            if turn:
                seconds[system.name].append(elapsed)
    return {f"{name}_cold_start_s": statistics.median(own) for name, own in seconds.items()}


def _seconds_to_first_line(system: System, work: Path) -> float:
    program = work / f"program-{system.name}.py"
    program.write_text(system.program, encoding="utf-8")
    start = time.perf_counter()
    with subprocess.Popen(
        [system.installed.python, "-u", str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=process_environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        elapsed = time.perf_counter() - start
        process.stdout.read()
    if process.returncode or not first:
        raise SystemExit(f"The program of {system.name} failed: {program}")
    return elapsed
