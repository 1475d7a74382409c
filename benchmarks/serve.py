"""The service under load, one core for it and one for its clients: benchmarks/results/serve.json.

`python benchmarks/serve.py all MODEL` does every part, `python benchmarks/serve.py PART MODEL
[SCALE]` one, all times multiplied by SCALE, and puts its figures beside those of the others.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.serve.settings import Batches, Settings
from fuzzing import fuzz
from load import Clients, reviews, wrk
from measure import RESULTS, write_result
from running import Running, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVER_CORE, CLIENT_CORE = 0, 1
CONNECTIONS = 32
OVERLOAD = 10
TURNS = 3
CHARS = 800
_BARE = """
import sys, time
from capsar import load
from load import reviews
analyzer, texts = load(sys.argv[1]), reviews(64)
analyzer.analyze(texts)
start, number = time.perf_counter(), 0
while time.perf_counter() - start < float(sys.argv[2]):
    number += len(analyzer.analyze(texts))
print(number / (time.perf_counter() - start))
"""


@contextmanager
def pinned(settings: Settings) -> Iterator[Running]:
    """A service on a core of its own."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(settings, Path(scratch), prefix=("taskset", "-c", str(SERVER_CORE))) as service,
    ):
        wrk(service, CONNECTIONS, 2)  # warming up
        yield service


def bare_analyzer(model: str, seconds: float) -> float:
    """Return the texts a second of the Analyzer alone, on the service's core."""
    done = subprocess.run(
        ["taskset", "-c", str(SERVER_CORE), sys.executable, "-c", _BARE, model, str(seconds)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout)


def measure_speed(model: str, scale: float) -> dict[str, float]:
    """HTTP at 32 connections against the Analyzer alone, and batching against none, in turn."""
    one_by_one = Settings(port=0, model=model, batches=Batches(texts=1))
    settings = Settings(port=0, model=model)
    ratios, gains, rates, lone = [], [], [], []
    with pinned(settings) as service, pinned(one_by_one) as unbatched:
        for _ in range(TURNS):
            bare = bare_analyzer(model, 20 * scale)
            told = wrk(service, CONNECTIONS, 20 * scale)
            without = wrk(unbatched, CONNECTIONS, 20 * scale)
            lone.append(wrk(service, 1, 5 * scale).p50)
            rates.append(told)
            ratios.append(told.good_per_second / bare)
            gains.append(told.good_per_second / without.good_per_second)
            if told.errors + told.other + told.busy + without.errors + without.other:
                raise SystemExit(f"not every request was answered: {told}, {without}")
    return {
        "service_over_analyzer": statistics.median(ratios),
        "batching_over_none": statistics.median(gains),
        "texts_per_s": statistics.median(told.good_per_second for told in rates),
        "p50_ms": 1000 * statistics.median(told.p50 for told in rates),
        "p99_ms": 1000 * statistics.median(told.p99 for told in rates),
        "p999_ms": 1000 * statistics.median(told.p999 for told in rates),
        "one_client_p50_ms": 1000 * statistics.median(lone),
    }


def measure_overload(model: str, scale: float) -> dict[str, float]:
    """Ten times the capacity for a minute, and what comes after."""
    with pinned(Settings(port=0, model=model)) as service:
        normal = wrk(service, CONNECTIONS, 20 * scale)
        alone = wrk(service, 1, 3)
        delay_ms = 100
        # As many as wait in the queue, and those that are refused and ask again after the delay.
        waiting = Settings().limits.queue_chars / CHARS
        asking = 1.2 * OVERLOAD * normal.good_per_second * delay_ms / 1000
        connections = min(900, round(waiting + asking))
        before = service.memory_mb()
        probes = Clients(service, 8)
        told = wrk(service, connections, 60 * scale, delay_ms=delay_ms)
        over = time.monotonic()
        probes.end()
        memory = service.memory_mb()
        recovered = _recovery(service, 3 * alone.p50 + 0.005) - over
        accepted = statistics.quantiles(probes.seconds, n=100)[98]
        wrong = told.other + told.errors + told.unmarked + probes.counts["unmarked"]
        wrong += sum(probes.counts.values()) - probes.counts["200"] - probes.counts["503"]
        good = told.good + probes.counts["200"]
        return {
            "overload_offered_over_peak": told.per_second / normal.good_per_second,
            "goodput_ratio": good / told.seconds / normal.good_per_second,
            "overload_p99_ms": 1000 * accepted,
            "overload_p99_over_normal": accepted / normal.p99,
            "overload_wrong_answers": wrong,
            "overload_memory_ratio": memory / before,
            "overload_recovery_s": max(0.0, recovered),
        }


def _recovery(service: Running, seconds: float) -> float:
    """Return when answers began to come this fast again, ten of them in a row."""
    text = {"text": reviews(1)[0]}
    began, row = time.monotonic(), 0
    give_up = began + 30
    while row < 10 and time.monotonic() < give_up:
        start = time.monotonic()
        is_good = service.ask("/v1/analyze", text)[0] == 200
        if is_good and time.monotonic() - start < seconds + 0.01:  # a connection of its own
            row += 1
        else:
            began, row = time.monotonic(), 0
    return began


def measure_ending(model: str, scale: float) -> dict[str, float]:
    """SIGTERM under load, again and again."""
    lost, answered, slowest = 0, 0, 0.0
    times = max(1, round(20 * scale))
    for number in range(times):
        settings = Settings(port=0, model=model, workers=1 + number % 2)
        with pinned(settings) as service:
            clients = Clients(service, 16)
            time.sleep(1.5)
            service.process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            service.process.wait(60)
            slowest = max(slowest, time.monotonic() - start)
            clients.end()
            lost += clients.counts["lost"]
            answered += clients.counts["200"]
    return {
        "sigterm_times": times,
        "sigterm_answered": answered,
        "sigterm_lost": lost,
        "sigterm_slowest_s": slowest,
    }


def measure_killing(model: str, scale: float) -> dict[str, float]:
    """`kill -9` of one of two workers: how long nobody is answered, and how many are lost."""
    with pinned(Settings(port=0, model=model, workers=2)) as service:
        wait_until(lambda: service.log().count('"ready"') == 2, 120)
        clients = Clients(service, 8, keeps_on=True)
        time.sleep(5 * scale)
        os.kill(service.workers()[0], signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: service.log().count('"ready"') == 3, 120)
        replaced = time.monotonic() - killed
        time.sleep(5 * scale)
        clients.end()
    times = sorted(clients.answered_at)
    gaps = [after - before for before, after in pairwise(times)]
    return {
        "kill_lost": clients.counts["lost"],
        "kill_refused": clients.counts["refused"],
        "kill_longest_gap_s": max(gaps),
        "kill_replaced_s": replaced,
    }


def measure_soak(model: str, scale: float) -> dict[str, float]:
    """Half an hour of load, once a service is warm: memory at its end against its beginning.

    It is warm when it has met batches of all shapes: after so many texts, however fast they go.
    """
    with pinned(Settings(port=0, model=model)) as service:
        warm, errors, answered, sizes = 0, 0, 0, []
        cold = service.memory_mb()
        while warm < 3000 * scale:
            warm += wrk(service, 16, 30 * scale).good
        sizes.append(service.memory_mb())
        for _ in range(10):
            told = wrk(service, 16, 180 * scale)
            errors += told.errors + told.other + told.busy
            answered += told.good
            sizes.append(service.memory_mb())
    return {
        "soak_minutes": 30 * scale,
        "soak_answered": answered,
        "soak_errors": errors,
        "soak_warm_after": warm,
        "soak_memory_growth": sizes[-1] / sizes[0] - 1,
        "soak_memory_growth_second_half": sizes[-1] / sizes[5] - 1,
        "soak_memory_growth_from_cold": sizes[-1] / cold - 1,
        "soak_memory_mb": sizes[-1],
    }


def measure_fuzzing(model: str, scale: float) -> dict[str, float]:
    """Schemathesis for ten minutes."""
    with pinned(Settings(port=0, model=model)) as service:
        number, wrong = fuzz(service.url, round(600 * scale))
        if wrong:
            raise SystemExit(wrong)
        faults = sum(record["level"] == "error" for record in service.records())
    return {"fuzz_requests": number, "fuzz_faults": faults, "fuzz_seconds": 600 * scale}


PARTS: dict[str, Callable[[str, float], dict[str, float]]] = {
    "speed": measure_speed,
    "overload": measure_overload,
    "ending": measure_ending,
    "killing": measure_killing,
    "soak": measure_soak,
    "fuzzing": measure_fuzzing,
}


def main(part: str = "all", model: str = "fast", scale: str = "1") -> None:
    """Measure, and put what was found beside what the other parts have found."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    path = RESULTS / "serve.json"
    for name in PARTS if part == "all" else [part]:
        found = PARTS[name](model, float(scale))
        known = json.loads(path.read_text())["metrics"] if path.exists() else {}
        write_result("serve", known | found, ("fastapi", "uvicorn", "onnxruntime"))


if __name__ == "__main__":
    main(*sys.argv[1:])
