"""The service under load, on one core, with its clients on another.

`python benchmarks/serve/main.py PART|all MODEL [SCALE]` measures one part or all, with durations
multiplied by SCALE, and adds the metrics to `results/serve-MODEL.json`.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from capsar.serve.settings import Settings
from measure import write_result
from serve.load import Clients, fuzz, reviews, wrk
from serve.service import Running, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER_CORE, CLIENT_CORE = 0, 1
CONNECTIONS = 32
OVERLOAD = 10
TURNS = 3
OVERLOAD_TURNS = 5
CHARS = 800
BATCHES = (1, 8, 64)
_BARE = """
import sys, time
from capsar import load
from serve.load import reviews
analyzer, texts = load(sys.argv[1]), reviews(64)
analyzer.analyze(texts)
for size in map(int, sys.argv[3:]):
    start, number = time.process_time(), 0
    while time.process_time() - start < float(sys.argv[2]):
        first = number % (len(texts) - size + 1)
        number += len(analyzer.analyze(texts[first : first + size]))
    print(size, number / (time.process_time() - start))
"""


@contextmanager
def pinned(settings: Settings) -> Iterator[Running]:
    """Run a service on its own core."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(settings, Path(scratch), prefix=("taskset", "-c", str(SERVER_CORE))) as service,
    ):
        wrk(service, CONNECTIONS, 2)  # warm up
        yield service


def bare_analyzer(model: str, seconds: float) -> dict[int, float]:
    """Return the texts per CPU second of the Analyzer alone, by batch size."""
    words = [sys.executable, "-c", _BARE, model, str(seconds), *map(str, BATCHES)]
    done = subprocess.run(
        ["taskset", "-c", str(SERVER_CORE), *words],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    pairs = (line.split() for line in done.stdout.splitlines())
    return {int(size): float(speed) for size, speed in pairs}


def one_thread(model: str) -> Settings:
    """Return the settings of a service with one inference thread."""
    return Settings(port=0, models=(model,), threads=1)


def measure_speed(model: str, scale: float) -> dict[str, float]:
    """Measure 32 connections, and CPU time relative to the Analyzer at its best batch size."""
    ratios, results, single = [], [], []
    with pinned(one_thread(model)) as service:
        for _ in range(TURNS):
            bare = bare_analyzer(model, 10 * scale)
            texts, seconds = _texts_done(service), service.cpu_seconds()
            batched = wrk(service, CONNECTIONS, 20 * scale)
            time.sleep(5)  # the last batch ends, of which wrk counts no response
            done = _texts_done(service) - texts
            ratios.append(done / (service.cpu_seconds() - seconds) / max(bare.values()))
            single.append(wrk(service, 1, 5 * scale).p50)
            results.append(batched)
            if batched.errors + batched.other + batched.busy:
                raise SystemExit(f"Some requests failed: {batched}")
    return {
        "service_over_analyzer": statistics.median(ratios),
        "texts_per_s": statistics.median(one.good_per_second for one in results),
        "p50_ms": 1000 * statistics.median(one.p50 for one in results),
        "p99_ms": 1000 * statistics.median(one.p99 for one in results),
        "p999_ms": 1000 * statistics.median(one.p999 for one in results),
        "one_client_p50_ms": 1000 * statistics.median(single),
    }


def _texts_done(service: Running) -> float:
    """Return the number of texts of all batches so far."""
    content = service.request("/metrics")[2].decode()
    (line,) = re.findall(r"^capsar_batch_texts_sum (\S+)$", content, re.MULTILINE)
    return float(line)


def measure_overload(model: str, scale: float) -> dict[str, float]:
    """Measure the capacity and ten times as much in turn, so that both are of the same minutes."""
    with pinned(one_thread(model)) as service:
        turns = [_overload(service, scale) for _ in range(OVERLOAD_TURNS)]
    found = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    for name, combine in (("wrong_responses", sum), ("memory_ratio", max), ("recovery_s", max)):
        found[f"overload_{name}"] = combine(turn[f"overload_{name}"] for turn in turns)
    return found | {
        "overload_turns": len(turns),
        "goodput_ratio_min": min(turn["goodput_ratio"] for turn in turns),
        "goodput_ratio_max": max(turn["goodput_ratio"] for turn in turns),
    }


def _overload(service: Running, scale: float) -> dict[str, float]:
    """Measure the capacity, ten times as much, and the recovery."""
    normal = wrk(service, CONNECTIONS, 15 * scale)
    alone = wrk(service, 1, 3)
    delay_ms = 100
    # As many as wait in the queue, and those that retry after a rejection and the delay.
    waiting = Settings().queue_chars / CHARS
    retrying = 1.1 * OVERLOAD * normal.good_per_second * delay_ms / 1000
    connections = min(900, round(waiting + retrying))
    before = service.memory_mb()
    probes = Clients(service, 8)
    load = wrk(service, connections, 30 * scale, delay_ms=delay_ms)
    end = time.monotonic()
    probes.stop()
    memory = service.memory_mb()
    recovered = _recovery(service, 3 * alone.p50 + 0.005) - end
    accepted = statistics.quantiles(probes.seconds, n=100)[98]
    wrong = load.other + load.errors + load.unmarked + probes.counts["unmarked"]
    wrong += sum(probes.counts.values()) - probes.counts["200"] - probes.counts["503"]
    good = load.good + probes.counts["200"]
    return {
        "overload_offered_over_peak": load.per_second / normal.good_per_second,
        "goodput_ratio": good / load.seconds / normal.good_per_second,
        "overload_p99_ms": 1000 * accepted,
        "overload_p99_over_normal": accepted / normal.p99,
        "overload_wrong_responses": wrong,
        "overload_memory_ratio": memory / before,
        "overload_recovery_s": max(0.0, recovered),
    }


def _recovery(service: Running, seconds: float) -> float:
    """Return when ten responses in a row were this fast again."""
    text = {"text": reviews(1)[0]}
    began, row = time.monotonic(), 0
    give_up = began + 30
    while row < 10 and time.monotonic() < give_up:
        start = time.monotonic()
        is_good = service.request("/v1/analyze", text)[0] == 200
        if is_good and time.monotonic() - start < seconds + 0.01:  # includes a new connection
            row += 1
        else:
            began, row = time.monotonic(), 0
    return began


def measure_shutdown(model: str, scale: float) -> dict[str, float]:
    """Send SIGTERM under load, repeatedly."""
    lost, completed, slowest = 0, 0, 0.0
    times = max(1, round(10 * scale))
    for number in range(times):
        settings = replace(one_thread(model), threads=1 + number % 2)
        with pinned(settings) as service:
            clients = Clients(service, 16)
            time.sleep(1.5)
            service.process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            service.process.wait(60)
            slowest = max(slowest, time.monotonic() - start)
            clients.stop()
            lost += clients.counts["lost"]
            completed += clients.counts["200"]
    return {
        "sigterm_times": times,
        "sigterm_completed": completed,
        "sigterm_lost": lost,
        "sigterm_slowest_s": slowest,
    }


def measure_large(model: str, scale: float) -> dict[str, float]:
    """Measure eight clients of one text each, alone and beside requests of 100 texts."""
    texts = [text[:580] for text in reviews(100)]
    with pinned(one_thread(model)) as service:
        alone = Clients(service, 8, pause=0)
        time.sleep(30 * scale)
        alone.stop()
        small = Clients(service, 8, pause=0)
        end, statuses = time.monotonic() + 60 * scale, []
        while time.monotonic() < end:
            statuses.append(service.request("/v1/analyze", {"texts": texts})[0])
        small.stop()
    p99 = [statistics.quantiles(found.seconds, n=100)[98] for found in (alone, small)]
    return {
        "large_requests": len(statuses),
        "large_refused": sum(status != 200 for status in statuses),
        "small_refused": sum(small.counts.values()) - small.counts["200"],
        "small_completed": small.counts["200"],
        "small_p99_ratio": p99[1] / p99[0],
    }


def measure_batches(model: str, scale: float) -> dict[str, float]:
    """Measure the CPU time per text of requests of several texts, relative to single texts."""
    texts = [text[:540] for text in reviews(108)]
    costs: dict[int, list[float]] = {size: [] for size in (1, 2, 4, 8, 16, 27, 54, 108)}
    with pinned(one_thread(model)) as service:
        for _ in range(max(1, round(5 * scale))):
            for size, found in costs.items():
                before = service.cpu_seconds()
                for start in range(0, len(texts), size):
                    content = {"texts": texts[start : start + size]}
                    status, _, _ = service.request("/v1/analyze", content)
                    if status != 200:
                        raise SystemExit(f"A request of {size} texts got the status {status}")
                found.append((service.cpu_seconds() - before) / len(texts))
    single = statistics.median(costs[1])
    ratios = {size: statistics.median(found) / single for size, found in costs.items()}
    return {f"batch_cost_{size}": ratio for size, ratio in ratios.items()} | {
        "batch_cost_max": max(ratios.values())
    }


def measure_soak(model: str, scale: float) -> dict[str, float]:
    """Measure the growth of memory during half an hour of load, after a warm-up of many texts."""
    with pinned(one_thread(model)) as service:
        warm, errors, completed, sizes = 0, 0, 0, []
        cold = service.memory_mb()
        while warm < 3000 * scale:
            warm += wrk(service, 16, 30 * scale).good
        sizes.append(service.memory_mb())
        for _ in range(10):
            load = wrk(service, 16, 180 * scale)
            errors += load.errors + load.other + load.busy
            completed += load.good
            sizes.append(service.memory_mb())
    return {
        "soak_minutes": 30 * scale,
        "soak_completed": completed,
        "soak_errors": errors,
        "soak_warm_after": warm,
        "soak_memory_last_third": sum(sizes[-3:]) / sum(sizes[1:4]),
        "soak_memory_growth_from_cold": sizes[-1] / cold - 1,
        "soak_memory_mb": sizes[-1],
    }


def measure_fuzzing(model: str, scale: float) -> dict[str, float]:
    """Run schemathesis for ten minutes."""
    with pinned(one_thread(model)) as service:
        number, wrong = fuzz(service.url, round(600 * scale))
        if wrong:
            raise SystemExit(wrong)
        faults = sum(record["level"] == "error" for record in service.records())
    return {"fuzz_requests": number, "fuzz_faults": faults, "fuzz_seconds": 600 * scale}


PARTS: dict[str, Callable[[str, float], dict[str, float]]] = {
    "speed": measure_speed,
    "overload": measure_overload,
    "shutdown": measure_shutdown,
    "large": measure_large,
    "batches": measure_batches,
    "soak": measure_soak,
    "fuzzing": measure_fuzzing,
}


def main(part: str = "all", model: str = "fast", scale: str = "1") -> None:
    os.sched_setaffinity(0, {CLIENT_CORE})
    for name in PARTS if part == "all" else [part]:
        metrics = PARTS[name](model, float(scale))
        write_result(f"serve-{model}", metrics, ("fastapi", "uvicorn", "onnxruntime"), part=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
