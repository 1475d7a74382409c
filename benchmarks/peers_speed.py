"""How fast, how large in memory, and how long until the first answer: one core, in turn."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from measure import ratio
from peers_process import quiet_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peers_process import Peer
    from peers_quality import Questions
    from peers_systems import System

PEER = "setfit"
OURS = ("base", "fast", "restaurant")
Reply = dict[str, float]


def use_one_core() -> None:
    """Keep this process, and all that it starts, on the last core that it may use."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure_speed(systems: list[System], questions: Questions, turns: int) -> dict[str, float]:
    """Let all systems run, and ask one after the other, turn after turn.

    First aspects are found, then they are given. Peak memory is that of the first of these that a
    system can do.
    """
    texts, places = questions.texts, questions.places
    metrics: dict[str, float] = {"sentences": len(texts), "turns": turns}
    with ExitStack() as stack:
        peers = {system.name: stack.enter_context(system.start()) for system in systems}
        finding = {system.name: peers[system.name] for system in systems if system.finds}
        found = _in_turn(finding, lambda peer: peer.time(texts), turns)
        given = _in_turn(peers, lambda peer: peer.time(texts, places), turns)
    for kind, replies in (("given_", given), ("", found)):
        seconds = {name: [one["seconds"] for one in own] for name, own in replies.items()}
        for name, own in replies.items():
            metrics[f"{name}_peak_mb"] = own[-1]["peak_mb"]
            rate = len(texts) / statistics.median(seconds[name])
            metrics[f"{name}_{kind}sentences_per_s"] = rate
        for name in (name for name in OURS if name in seconds):
            key = f"{name}_over_{PEER}_{kind}".rstrip("_")
            metrics[key] = ratio(seconds[PEER], seconds[name])
    return metrics


def _in_turn(
    peers: dict[str, Peer], ask: Callable[[Peer], Reply], turns: int
) -> dict[str, list[Reply]]:
    """Ask each peer once in each turn, and leave out the first turn, which is for warming up."""
    replies: dict[str, list[Reply]] = {name: [] for name in peers}
    for _ in range(turns + 1):
        for name, peer in peers.items():
            replies[name].append(ask(peer))
    return {name: own[1:] for name, own in replies.items()}


def measure_cold_start(systems: list[System], work: Path, turns: int) -> dict[str, float]:
    """Run each user's program in fresh processes, in turn; the first fills the disk's cache."""
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    for turn in range(turns + 1):
        for system in systems:
            taken = _seconds_to_first_line(system, work)
            if turn:
                seconds[system.name].append(taken)
    return {f"{name}_cold_start_s": statistics.median(own) for name, own in seconds.items()}


def _seconds_to_first_line(system: System, work: Path) -> float:
    program = work / f"program-{system.name}.py"
    program.write_text(system.program, encoding="utf-8")
    start = time.perf_counter()
    with subprocess.Popen(
        [system.installed.python, "-u", str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=quiet_environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        taken = time.perf_counter() - start
        process.stdout.read()
    if process.returncode or not first:
        raise SystemExit(f"The program of {system.name} failed: {program}")
    return taken
