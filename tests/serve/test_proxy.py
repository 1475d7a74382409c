"""The proxy of `deploy/`, a real nginx, protects the service from slow, large and many requests."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from capsar.serve.settings import Settings
from serve.service import Running, running, wait_until

pytestmark = pytest.mark.integration

CONFIG = Path(__file__).parents[2] / "deploy" / "nginx.conf"
TEXT = b'{"text": "Great food, terrible service."}'


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service behind nginx with shorter timeouts; `port` is the proxy's."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    folder = tmp_path_factory.mktemp("proxy")
    with running(Settings(port=0, models=("fast",)), folder) as service, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        config = CONFIG.read_text()
        for old, new in (
            ("capsar:8000", f"127.0.0.1:{service.port}"),
            ("listen 8080", f"listen 127.0.0.1:{port}"),
            ("/tmp/", f"{folder}/"),
            ("_timeout 10s", "_timeout 1s"),
            ("keepalive_timeout 30s", "keepalive_timeout 2s"),
        ):
            assert old in config
            config = config.replace(old, new)
        path = folder / "nginx.conf"
        path.write_text(config)
        process = subprocess.Popen([program, "-c", path, "-p", folder, "-g", "daemon off;"])
        front = Running(process, folder / "none")
        front.port = port
        try:
            wait_until(front.is_ready, 20)
            yield front
        finally:
            process.terminate()
            process.wait()


@pytest.fixture(autouse=True)
def still_works(proxy: Running) -> Iterator[None]:
    yield
    assert proxy.request("/v1/analyze", body=TEXT)[0] == 200


def post(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = (b"POST /v1/analyze HTTP/1.1", b"Host: x", b"Content-Type: application/json")
    return b"\r\n".join((*lines, b"Content-Length: %d" % size, b"", body))


def status(response: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3})", response)
    return int(found[1]) if found else 0


def test_requests_pass_the_proxy(proxy: Running) -> None:
    got, headers, body = proxy.request("/v1/analyze", body=TEXT)
    assert got == 200
    assert json.loads(body)["aspects"]
    assert headers["x-request-id"]
    assert proxy.request("/")[0] == 200
    for path in ("/metrics", "/metrics/", "/metrics%0A", "//metrics"):
        assert proxy.request(path)[0] == 404


def test_slow_headers_time_out(proxy: Running) -> None:
    start = time.monotonic()
    response = proxy.raw(b"POST /v1/analyze HTTP/1.1\r\n", *[b"X: y\r\n"] * 10, pause=0.3)
    assert status(response) in (0, 408)
    assert time.monotonic() - start < 15


def test_silent_client_is_disconnected(proxy: Running) -> None:
    start = time.monotonic()
    assert proxy.raw() == b""
    assert 0.9 < time.monotonic() - start < 15


def test_slow_body_times_out(proxy: Running) -> None:
    start = time.monotonic()
    assert status(proxy.raw(post(b"", length=1000), b"x")) in (0, 408)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"y" * 200_000 + b"\r\n\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n",
        b"X-Endless: " + b"y" * 400_000,
    ],
    ids=["long", "many", "endless"],
)
def test_too_large_headers_are_rejected(proxy: Running, head: bytes) -> None:
    assert status(proxy.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head)) in (400, 431)


def test_too_long_url_is_rejected(proxy: Running) -> None:
    assert status(proxy.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")) == 414


def test_too_large_body_is_rejected(proxy: Running) -> None:
    assert status(proxy.raw(post(b"x" * 10_000, length=100_000_000))) == 413


def test_too_many_connections_are_rejected(proxy: Running) -> None:
    """Of one client, a hundred requests at a time are passed on."""
    slow = [proxy.connect() for _ in range(110)]
    for connection in slow:
        connection.sendall(post(b"", length=10))
    time.sleep(0.3)  # until the other process of nginx has counted its connections
    response = proxy.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    for connection in slow:
        connection.close()
    assert status(response) == 503
    wait_until(lambda: proxy.request("/healthz")[0] == 200, 15)


def test_client_that_does_not_read_is_disconnected(proxy: Running) -> None:
    def is_disconnected() -> bool:
        try:
            connection.send(b"x")
        except (ConnectionResetError, BrokenPipeError):
            return True
        time.sleep(0.2)
        return False

    body = json.dumps({"text": "a b " * 2400}).encode()
    request = post(body).replace(b"/v1/analyze", b"/v1/explain")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", proxy.port))
        connection.sendall(request * 30)  # the responses exceed all buffers of the system
        wait_until(is_disconnected, 60)
