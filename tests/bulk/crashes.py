"""Crashes of workers, drivers and nodes at random moments, and a check of the output."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bulk.corpus import MODEL, check

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = {"local": "capsar.bulk.worker", "ray": "ShardActor"}
"""A part of the command line of worker processes."""
SHARD_MB = 0.03


def command(source: Path, output: Path, engine: str) -> list[str]:
    words = [sys.executable, "-m", "capsar", "score", source, output, "--model", MODEL]
    words += ["--text-column", "review"]
    words += ["--keep", "id", "--shard-mb", SHARD_MB, "--engine", engine, "--workers", 2]
    return [str(word) for word in words]


def finished(output: Path) -> set[str]:
    return {path.name for path in output.glob("*.parquet")}


@contextlib.contextmanager
def job(source: Path, output: Path, engine: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job as a process, and terminate it at the end."""
    driver = subprocess.Popen(
        command(source, output, engine), stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield driver
    finally:
        if driver.poll() is None:
            driver.terminate()
            driver.wait(60)


def wait_for(output: Path, number: int, driver: subprocess.Popen[bytes]) -> None:
    """Wait until so many shards are finished, and a random time longer."""
    while len(finished(output)) < number and driver.poll() is None:
        time.sleep(0.02)
    time.sleep(random.random() * 0.5)


def workers_of(driver: subprocess.Popen[bytes], engine: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may have ended
            if WORKER[engine] in " ".join(process.cmdline()):
                found.append(process)
    return found


def crash_worker(
    source: Path, output: Path, engine: str, at: int, rows: int, expected: object
) -> dict[str, float]:
    """Kill one worker when `at` shards are finished; the job must finish."""
    with job(source, output, engine) as driver:
        wait_for(output, at, driver)
        while not (victims := workers_of(driver, engine)) and driver.poll() is None:
            time.sleep(0.02)  # it has not started yet
        if victims:
            random.choice(victims).kill()
        if driver.wait(600) != 0:
            raise SystemExit(f"The job ended with {driver.returncode}")
    return check(str(output), rows, expected)


def crash_driver(
    source: Path, output: Path, engine: str, at: int, rows: int, expected: object
) -> dict[str, float]:
    """Kill the driver when `at` shards are finished, and run the job again."""
    with job(source, output, engine) as driver:
        wait_for(output, at, driver)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait(60)
    before = finished(output)
    with job(source, output, engine) as driver:
        if driver.wait(600) != 0:
            raise SystemExit(f"The job ended with {driver.returncode}")
    # A worker may have finished its shard after the listing, so more may be skipped.
    skipped = json.loads((output / "_summary.json").read_text())["shards_skipped"]
    return check(str(output), rows, expected) | {"not_skipped": max(0, len(before) - skipped)}


def crash_node(
    source: Path, output: Path, _: str, at: int, rows: int, expected: object
) -> dict[str, float]:
    """Kill one of two nodes when `at` shards are finished; the job must finish."""
    arguments = [sys.executable, __file__, str(source), str(output), str(at)]
    subprocess.run(arguments, check=True, timeout=900)
    return check(str(output), rows, expected)


def run_on_two_nodes(source: str, output: str, at: int) -> None:
    """Score on a simulated cluster of two nodes, one of which is killed."""
    from ray.cluster_utils import Cluster

    from capsar.bulk.job import ScoreOptions
    from capsar.bulk.run import EngineOptions, score

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def kill_node() -> None:
        while len(finished(Path(output))) < at:
            time.sleep(0.02)
        time.sleep(random.random() * 0.5)
        cluster.remove_node(second, allow_graceful=False)

    threading.Thread(target=kill_node, daemon=True).start()
    options = ScoreOptions(model=MODEL, text_column="review", keep=("id",), shard_mb=SHARD_MB)
    engine = EngineOptions("ray", 2, cluster.address)
    score(source, output, options, engine=engine)
    cluster.shutdown()


if __name__ == "__main__":
    run_on_two_nodes(sys.argv[1], sys.argv[2], int(sys.argv[3]))
