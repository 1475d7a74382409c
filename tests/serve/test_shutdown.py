"""Shutdown under load, overload, and large requests beside small ones."""

from __future__ import annotations

import http.client
import json
import signal
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capsar.serve.settings import Settings
from serve.load import Clients, reviews
from serve.service import JSON, Running, running


@pytest.mark.parametrize("threads", [1, 2])
def test_shutdown_loses_no_request(tmp_path: Path, threads: int) -> None:
    with running(Settings(port=0, models=("fast",), threads=threads), tmp_path) as service:
        load = Clients(service, 12)
        time.sleep(1)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert time.monotonic() - start < 15
        load.stop()
    assert load.counts["200"] > 12
    assert load.counts["lost"] == 0, load.counts
    assert load.counts["refused"] == 12
    assert service.process.returncode == -signal.SIGTERM
    assert '"level": "error"' not in service.log()


def test_shutdown_loses_no_request_on_a_new_connection(tmp_path: Path) -> None:
    """Clients that connect for each request, until a connection is refused."""
    counts: Counter[str] = Counter()

    def send(service: Running) -> None:
        body = json.dumps({"text": "Great food."}).encode()
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
            try:
                connection.connect()
            except (ConnectionRefusedError, TimeoutError):
                return
            try:
                connection.request("POST", "/v1/analyze", body, JSON)
                counts[str(connection.getresponse().status)] += 1
            except (http.client.HTTPException, OSError):
                counts["lost"] += 1
            connection.close()

    with running(Settings(port=0, models=("fast",)), tmp_path) as service:
        with ThreadPoolExecutor(40) as pool:
            for _ in range(40):
                pool.submit(send, service)
            time.sleep(1.5)
            service.process.send_signal(signal.SIGTERM)
        service.process.wait(30)
    assert counts["200"] > 100, counts
    assert counts["lost"] <= 1, counts


def test_grace_period_ends_requests_that_are_running(tmp_path: Path) -> None:
    """Explanations that take longer than the grace period are answered with an error."""
    settings = Settings(port=0, grace=1.0, threads=1, queue_chars=10**6)
    content = {"text": "the soup was cold and " * 900}
    with running(settings, tmp_path) as service, ThreadPoolExecutor(12) as pool:
        responses = [pool.submit(service.request, "/v1/explain", content) for _ in range(12)]
        time.sleep(1)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert time.monotonic() - start < 4
        assert {response.result()[0] for response in responses} <= {200, 500}
        assert responses[-1].result()[0] == 500


def test_grace_period_is_enforced(tmp_path: Path) -> None:
    settings = Settings(port=0, models=("fast",), grace=1.0, body_timeout=60.0)
    with running(settings, tmp_path) as service, service.connect() as slow:
        slow.sendall(b"POST /v1/analyze HTTP/1.1\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert 0.5 < time.monotonic() - start < 15


def test_overload_is_shed_and_accepted_requests_succeed(tmp_path: Path) -> None:
    """Five times as many clients as the queue has room for."""
    settings = Settings(port=0, models=("fast",), queue_chars=8 * 800)
    with running(settings, tmp_path) as service:
        normal = Clients(service, 6)
        time.sleep(2)
        normal.stop()
        load = Clients(service, 40)
        time.sleep(3)
        load.stop()
        assert set(load.counts) == {"200", "503"}, load.counts
        assert load.counts["200"] / 3 > 0.25 * normal.counts["200"] / 2
        assert max(load.seconds) < 10
        assert (
            service.request("/v1/analyze", {"text": reviews(1)[0]})[0] == 200
        )  # recovered immediately


def test_large_requests_and_small_clients_are_all_answered(tmp_path: Path) -> None:
    """A request of 100 texts is neither refused nor blocks small ones (defect S2)."""
    texts = [text[:580] for text in reviews(100)]
    with running(Settings(port=0, models=("fast",)), tmp_path) as service:
        alone = Clients(service, 8, pause=0)
        time.sleep(2)
        alone.stop()
        small = Clients(service, 8, pause=0)
        statuses = [service.request("/v1/analyze", {"texts": texts})[0] for _ in range(5)]
        small.stop()
    assert statuses == [200] * 5
    assert set(small.counts) == {"200"}, small.counts
    assert statistics.median(small.seconds) < 4 * statistics.median(alone.seconds) + 0.05
