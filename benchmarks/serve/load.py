"""Load on a service: `wrk`, threads that count every request, and schemathesis."""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serve.service import JSON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serve.service import Running

_NOUNS = ("soup", "waiter", "battery", "screen", "room", "pool", "keyboard", "dessert", "view")
_OPINIONS = ("cold", "superb", "rude", "bright", "tiny", "as described", "worth it", "a let-down")
_ENDS = ("and nobody minded", "as far as we could tell", "which surprised us", "though it was late")
_LUA = """
local bodies = {%s}
local number, counts = 0, {}
local delay_ms = %d
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args) good, busy, unmarked, other = 0, 0, 0, 0 end
function request()
  number = number + 1
  return wrk.format(nil, "/v1/analyze", nil, bodies[number %% #bodies + 1])
end
if delay_ms > 0 then
  function delay() return math.random(0, 2 * delay_ms) end
end
function response(status, headers, body)
  if status == 200 then good = good + 1
  elseif status == 503 then
    if headers["retry-after"] then busy = busy + 1 else unmarked = unmarked + 1 end
  else other = other + 1 end
end
function done(summary, latency, requests)
  local sums = {good = 0, busy = 0, unmarked = 0, other = 0}
  for _, thread in ipairs(threads) do
    for name in pairs(sums) do sums[name] = sums[name] + thread:get(name) end
  end
  local errors = summary.errors.connect + summary.errors.read
    + summary.errors.write + summary.errors.timeout
  io.write(string.format(
    "RESULT %%d %%d %%d %%d %%d %%f %%f %%f %%f\\n",
    sums.good, sums.busy, sums.unmarked, sums.other, errors, summary.duration / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6, latency:percentile(99.9) / 1e6))
end
"""


def reviews(number: int, chars: int = 800) -> list[str]:
    """Generate reviews of about so many characters."""
    generator = random.Random(0)
    made = []
    for _ in range(number):
        text = ""
        while len(text) < chars - 40:
            noun, opinion, end = map(generator.choice, (_NOUNS, _OPINIONS, _ENDS))
            text += f"The {noun} was {opinion}, {end}. "
        made.append(text.strip())
    return made


@dataclass(frozen=True)
class LoadResult:
    """The counts and latencies that `wrk` measured."""

    good: int
    busy: int
    unmarked: int
    """Responses with status 503 but without `Retry-After`."""
    other: int
    errors: int
    seconds: float
    p50: float
    p99: float
    p999: float

    @property
    def good_per_second(self) -> float:
        """Successful responses per second."""
        return self.good / self.seconds

    @property
    def per_second(self) -> float:
        """Responses per second, including rejections."""
        return (self.good + self.busy + self.unmarked + self.other) / self.seconds


def wrk(service: Running, connections: int, seconds: float, *, delay_ms: int = 0) -> LoadResult:
    """Send requests on so many connections, each after a random delay of this mean."""
    bodies = ", ".join(f"[==[{json.dumps({'text': text})}]==]" for text in reviews(64))
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA % (bodies, delay_ms))
        script.flush()
        done = subprocess.run(
            [
                *("wrk", "--threads=1", f"--connections={connections}", "--timeout=30s"),
                *(f"--duration={max(1, round(seconds))}s", f"--script={script.name}", service.url),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    found = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"wrk printed no result:\n{done.stdout}{done.stderr}")
    values = found[1].split()
    return LoadResult(*map(int, values[:5]), *map(float, values[5:]))


class Clients:
    """Threads that send requests on persistent connections and count every response."""

    def __init__(
        self,
        service: Running,
        number: int,
        *,
        reconnects: bool = False,
        pause: float = 0.05,
        texts: Sequence[str] = (),
    ) -> None:
        self._service = service
        self._reconnects = reconnects
        self._pause = pause
        self._bodies = [json.dumps({"text": text}).encode() for text in texts or reviews(8)]
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.completed_at: list[float] = []
        self._is_stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send_requests) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each thread finish its current request."""
        self._is_stopped.set()
        for thread in self._threads:
            thread.join()

    def _send_requests(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=60)
        number = 0
        while not self._is_stopped.is_set():
            if connection.sock is None:
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    self.counts["refused"] += 1
                    if not self._reconnects:
                        return
                    time.sleep(self._pause)
                    continue
            number += 1
            start = time.monotonic()
            try:
                body = self._bodies[number % len(self._bodies)]
                connection.request("POST", "/v1/analyze", body, JSON)
                response = connection.getresponse()
                response.read()
            except (http.client.HTTPException, OSError):
                # The connection had been accepted.
                self.counts["lost"] += 1
                connection.close()
                continue
            self._count(response, time.monotonic() - start)
        connection.close()

    def _count(self, response: http.client.HTTPResponse, seconds: float) -> None:
        self.counts[str(response.status)] += 1
        if response.status == http.client.OK:
            self.seconds.append(seconds)
            self.completed_at.append(time.monotonic())
            return
        if response.status == http.client.SERVICE_UNAVAILABLE and (
            int(response.headers.get("retry-after", 0)) < 1
        ):
            self.counts["unmarked"] += 1
        time.sleep(self._pause)


CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


_FUZZ_CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "413", "415", "422"]
"""
"""An invalid body that is also too large may be rejected as too large."""


def fuzz(url: str, seconds: int) -> tuple[int, str]:
    """Run schemathesis; return the number of requests, and its output if it found a failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(_FUZZ_CONFIG)
        config.flush()
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"),
                f"--config-file={config.name}",
                "run",
                f"{url}/v1/openapi.json",
                f"--checks={','.join(CHECKS)}",
                "--phases=examples,coverage,fuzzing",
                f"--max-time={seconds}",
                "--request-timeout=30",
                "--generation-database=none",
                "--warnings=off",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    found = re.search(r"([\d,]+) generated", output)
    number = int(found[1].replace(",", "")) if found else 0
    return number, "" if done.returncode == 0 else output
