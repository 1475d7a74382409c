"""What every benchmark shares: fresh processes, turns, peak memory, and the form of a result."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def peak_memory_mb() -> float:
    """Return the largest resident size this process has had so far (Linux)."""
    return _status_mb("VmHWM")


def resident_memory_mb() -> float:
    """Return the resident size of this process now (Linux)."""
    return _status_mb("VmRSS")


def _status_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def run_fresh(script: str, *arguments: object) -> dict[str, float]:
    """Run `script` with a subcommand in a fresh process, and return the JSON object it prints."""
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def in_turn(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Time every call once in each turn."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:  # the first is for warming up
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(above: list[float], below: list[float]) -> float:
    """Return the median over the turns of how much longer one took than the other."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def write_result(
    name: str,
    metrics: dict[str, float],
    packages: tuple[str, ...] = (),
    *,
    part: str | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write `results/NAME.json` with what is needed to judge and repeat the figures.

    Args:
        name: Of the result.
        metrics: The figures.
        packages: Whose versions matter.
        part: Of a benchmark that is run part by part: the figures of other parts stay, and each
            part has its own command and commit.
        facts: What else is needed to judge the figures.
    """
    folder = Path(__file__).parent.parent
    commit = subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "-C", folder, "status", "--porcelain", "--", "src", "benchmarks/*.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commit += "-dirty" if changed else ""
    command = f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip()
    result: dict[str, Any] = {
        "name": name,
        "command": command,
        "commit": commit,
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in ("numpy", *packages)},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        **(facts or {}),
        "metrics": {key: round(value, 4) for key, value in metrics.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    if part is not None:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        result["parts"] = before.get("parts", {}) | {part: {"command": command, "commit": commit}}
        result["metrics"] = before.get("metrics", {}) | result["metrics"]
        result["command"] = f"python benchmarks/{Path(sys.argv[0]).name} PART, for each of parts"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
