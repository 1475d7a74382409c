"""How a service ends, and what it survives: signals under load, killed workers, overload."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from running import JSON, Running, running, wait_until

from capsar.serve.settings import Limits, Settings, Times

BODY = json.dumps({"text": "The soup was cold but the staff were lovely. " * 18}).encode()


class Load:
    """Clients that ask again and again on connections that they keep."""

    def __init__(self, service: Running, clients: int, *, keeps_on: bool = False) -> None:
        self._service = service
        self._keeps_on = keeps_on
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=30)
        while not self.is_over.is_set():
            try:
                connection.connect() if connection.sock is None else None
            except ConnectionRefusedError:
                self.counts["refused"] += 1
                if not self._keeps_on:
                    return
                time.sleep(0.05)
                continue
            try:
                start = time.monotonic()
                connection.request("POST", "/v1/analyze", BODY, JSON)
                response = connection.getresponse()
                response.read()
            except (http.client.HTTPException, OSError):
                # It was sent on a connection that the service had accepted.
                self.counts["lost"] += 1
                connection.close()
                continue
            self.counts[str(response.status)] += 1
            if response.status == 503:
                assert int(response.headers["retry-after"]) >= 1
                time.sleep(0.05)
            else:
                self.seconds.append(time.monotonic() - start)
        connection.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_is_lost_when_the_service_ends(tmp_path: Path, workers: int) -> None:
    with running(Settings(port=0, workers=workers), tmp_path) as service:
        load = Load(service, 12)
        time.sleep(1)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert time.monotonic() - start < 15
        load.end()
    assert load.counts["200"] > 20
    assert load.counts["lost"] == 0, load.counts
    assert load.counts["refused"] == 12
    assert service.process.returncode in (0, -signal.SIGTERM)
    assert '"level": "error"' not in service.log()


def test_the_grace_time_is_kept_whoever_is_still_there(tmp_path: Path) -> None:
    settings = Settings(port=0, times=Times(grace=1.0, body=60.0))
    with running(settings, tmp_path) as service, service.connect() as slow:
        slow.sendall(b"POST /v1/analyze HTTP/1.1\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert 0.5 < time.monotonic() - start < 5
        assert "1 requests are lost" in service.log()


def test_a_killed_worker_is_replaced_and_the_service_goes_on(tmp_path: Path) -> None:
    with running(Settings(port=0, workers=2), tmp_path) as service:
        wait_until(lambda: service.log().count('"ready"') == 2, 60)
        load = Load(service, 4, keeps_on=True)
        time.sleep(0.5)
        victim, other = service.workers()
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.3)
        answered = load.counts["200"]
        wait_until(lambda: load.counts["200"] > answered + 5, 20)
        wait_until(lambda: service.log().count('"ready"') == 3, 60)
        assert other in service.workers()
        assert victim not in service.workers()
        load.end()
        assert load.counts["lost"] <= 4  # what it was working on
        assert load.counts["refused"] == 0
        counted = service.ask("/metrics")[2].decode()
        found = re.search(
            r'^capsar_requests_total\{route="/v1/analyze",status="200"\} (\S+)$', counted, re.M
        )
        assert found
        assert float(found[1]) >= load.counts["200"] - 4  # of both workers, and of the dead one
        assert re.search(r"^capsar_queue_chars 0\.0$", counted, re.MULTILINE)


def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    with running(Settings(port=0, workers=2), tmp_path) as service:
        wait_until(lambda: service.log().count('"ready"') == 2, 60)
        workers = service.workers()
        assert len(workers) == 2
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)


def test_workers_that_cannot_start_end_the_service(tmp_path: Path) -> None:
    """Here because the model is taken away between the check and the workers' start."""
    from capsar.serve.supervisor import supervise

    code = f"""
import socket
from {supervise.__module__} import supervise

def work(listener):
    raise SystemExit(3)

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        supervise(work, listener, workers=2, grace=1.0)
"""
    import subprocess
    import sys

    script = tmp_path / "failing.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "workers die as soon as they are started" in done.stderr


def test_overload_is_shed_and_what_is_let_in_is_answered(tmp_path: Path) -> None:
    """Five times the clients that the queue has room for: answers go on coming, and in time."""
    settings = Settings(port=0, limits=Limits(queue_chars=8 * len(BODY)))
    with running(settings, tmp_path) as service:
        normal = Load(service, 6)
        time.sleep(2)
        normal.end()
        load = Load(service, 40)
        time.sleep(3)
        load.end()
        assert set(load.counts) == {"200", "503"}, load.counts
        assert load.counts["200"] / 3 > 0.4 * normal.counts["200"] / 2
        assert max(load.seconds) < 5
        assert service.ask("/v1/analyze", body=BODY)[0] == 200  # and it is over at once
