"""Shutdown under load, killed workers, and overload."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from capsar.serve.server import accept_all, block_new_connections
from capsar.serve.settings import Limits, Settings, Timeouts
from serve.load import Clients, reviews
from serve.service import read_all, running, wait_until


@pytest.mark.parametrize("workers", [1, 2])
def test_shutdown_loses_no_request(tmp_path: Path, workers: int) -> None:
    with running(Settings(port=0, model="fast", workers=workers), tmp_path) as service:
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
    assert service.process.returncode == 0
    assert '"level": "error"' not in service.log()


def test_clients_connecting_during_shutdown_are_served_or_refused(tmp_path: Path) -> None:
    """No client in the backlog of the closed socket gets a reset instead of a response."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with running(Settings(port=0, model="fast"), tmp_path) as service, ExitStack() as opened:
        connections = []
        service.process.send_signal(signal.SIGTERM)
        with suppress(ConnectionRefusedError):
            while True:
                connections.append(opened.enter_context(service.connect()))
                connections[-1].sendall(request)
        responses = [read_all(connection) for connection in connections]
        assert len(responses) > 10
        assert [response for response in responses if b"200 OK" not in response] == []


@pytest.mark.skipif(sys.platform != "linux", reason="packet filters need Linux")
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_new_connections_are_blocked_and_open_ones_kept(
    family: socket.AddressFamily, host: str
) -> None:
    listener = socket.create_server((host, 0), family=family)
    address = listener.getsockname()[:2]
    with socket.create_connection(address) as waiting:
        block_new_connections(listener)
        with pytest.raises(TimeoutError):
            socket.create_connection(address, timeout=0.3)
        (accepted,) = accept_all(listener)
        with accepted:
            waiting.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_grace_period_is_enforced(tmp_path: Path) -> None:
    settings = Settings(port=0, model="fast", timeouts=Timeouts(grace=1.0, body=60.0))
    with running(settings, tmp_path) as service, service.connect() as slow:
        slow.sendall(b"POST /v1/analyze HTTP/1.1\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        service.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        service.process.wait(30)
        assert 0.5 < time.monotonic() - start < 15
        assert "1 requests lost" in service.log()


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    with running(Settings(port=0, model="fast", workers=2), tmp_path) as service:
        wait_until(lambda: service.log().count('"ready"') == 2, 60)
        load = Clients(service, 4, reconnects=True)
        time.sleep(0.5)
        victim, other = service.workers()
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.3)
        before = load.counts["200"]
        wait_until(lambda: load.counts["200"] > before + 5, 20)
        wait_until(lambda: service.log().count('"ready"') == 3, 60)
        assert other in service.workers()
        assert victim not in service.workers()
        load.stop()
        assert load.counts["lost"] <= 4  # the requests in progress on the killed worker
        assert load.counts["refused"] == 0
        counted = service.request("/metrics")[2].decode()
        found = re.search(
            r'^capsar_requests_total\{route="/v1/analyze",status="200"\} (\S+)$', counted, re.M
        )
        assert found
        assert float(found[1]) >= load.counts["200"] - 4  # of both workers and the killed one
        assert re.search(r"^capsar_queue_chars 0\.0$", counted, re.MULTILINE)


def test_workers_exit_with_their_parent(tmp_path: Path) -> None:
    with running(Settings(port=0, model="fast", workers=2), tmp_path) as service:
        wait_until(lambda: service.log().count('"ready"') == 2, 60)
        workers = service.workers()
        assert len(workers) == 2
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)


def test_service_exits_if_workers_cannot_start(tmp_path: Path) -> None:
    from capsar.serve.server import supervise

    code = f"""
import socket
from {supervise.__module__} import supervise

def run_worker(listener):
    raise SystemExit(3)

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        supervise(run_worker, listener, workers=2, grace=1.0)
"""
    import subprocess

    script = tmp_path / "failing.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "workers crash as soon as they are started" in done.stderr


def test_overload_is_shed_and_accepted_requests_succeed(tmp_path: Path) -> None:
    """Five times as many clients as the queue has room for."""
    settings = Settings(port=0, model="fast", limits=Limits(queue_chars=8 * 800))
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
