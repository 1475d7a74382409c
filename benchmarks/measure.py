"""Shared by all benchmarks: fresh processes, interleaved timing, memory, sizes, result files."""

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

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"


def peak_memory_mb(process: int | str = "self") -> float:
    """Return the peak resident size of a process so far (Linux); 0 if it has ended."""
    return _status_mb("VmHWM", process)


def resident_memory_mb(process: int | str = "self") -> float:
    """Return the current resident size of a process (Linux); 0 if it has ended."""
    return _status_mb("VmRSS", process)


def _status_mb(name: str, process: int | str) -> float:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    lines = [line for line in status.splitlines() if line.startswith(name)]
    return int(lines[0].split()[1]) / 1024 if lines else 0.0


def folder_mb(folder: Path) -> float:
    """Return the size of a folder on disk."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout, including the bundled models."""
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def run_fresh(script: str, *arguments: object) -> dict[str, float]:
    """Run a script in a fresh process and return the JSON object that it prints."""
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def time_in_turn(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Time every call once per turn, after one turn to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def median_ratio(above: list[float], below: list[float]) -> float:
    """Return the median over turns of the ratio of two times."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def write_result(
    name: str,
    metrics: dict[str, float],
    packages: tuple[str, ...] = (),
    *,
    part: str | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Write `results/NAME.json` with the metrics and what is needed to reproduce them.

    Args:
        name: Of the result.
        metrics: The measured values.
        packages: Packages whose versions are recorded.
        part: The part of a benchmark that is run in parts: metrics of other parts are kept, and
            each part has its own command, commit and versions.
        facts: Other facts about the run.
    """
    sources = ["--", "src", "benchmarks", ":!benchmarks/results"]
    commit = _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--short", *sources) else "")
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    command = f"python {script} {' '.join(sys.argv[1:])}".strip()
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
    path = RESULTS / f"{name}.json"
    if part is not None:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        own = {"command": command, "commit": commit, "versions": result["versions"]}
        result["parts"] = before.get("parts", {}) | {part: own}
        result["versions"] = before.get("versions", {}) | result["versions"]
        result["metrics"] = before.get("metrics", {}) | result["metrics"]
        result["command"] = f"python {script} PART, for each of parts"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), *arguments], text=True).strip()
