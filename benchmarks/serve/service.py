"""Run a service in its own process, with simple clients for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsar.serve.settings import Settings

JSON = {"content-type": "application/json"}
_CODE = """
from capsar.serve.server import run
from capsar.serve.settings import Settings

if __name__ == "__main__":
    run({settings!r})
"""


class Running:
    """A running service, and clients for it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.port = 0

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        """Return the log."""
        return self._log.read_text(encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        """Return the parsed lines of the log."""
        return [json.loads(line) for line in self.log().splitlines()]

    def request(
        self,
        path: str,
        content: object = None,
        *,
        body: bytes | None = None,
        method: str = "",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request on a new connection; return status, headers and body."""
        if content is not None:
            body = json.dumps(content).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"),
                path,
                body,
                (JSON if body is not None else {}) | (headers or {}),
            )
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, *parts: bytes, pause: float = 0.0) -> bytes:
        """Send raw bytes, and return everything received until the connection is closed."""
        with self.connect() as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause)
            except (ConnectionResetError, BrokenPipeError):
                pass  # earlier data can still be read
            return read_all(connection)

    def memory_mb(self) -> float:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found
        return int(found[1]) / 1024

    def is_ready(self) -> bool:
        """Return whether the service answers."""
        try:
            return self.request("/readyz")[0] == HTTPStatus.OK
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_all(connection: socket.socket) -> bytes:
    chunks = []
    try:
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    except ConnectionResetError:
        pass
    return b"".join(chunks)


@contextmanager
def running(settings: Settings, folder: Path, *, prefix: tuple[str, ...] = ()) -> Iterator[Running]:
    """Start a service on a free port, wait until it is ready, and stop it at the end."""
    log = folder / f"serve-{time.monotonic_ns()}.log"
    script = folder / f"{log.stem}.py"
    script.write_text(_CODE.format(settings=settings))
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*prefix, sys.executable, str(script)],
            stderr=stream,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    with stopped_at_the_end(process, log) as service:
        yield service


@contextmanager
def stopped_at_the_end(process: subprocess.Popen[bytes], log: Path) -> Iterator[Running]:
    """Wait until a service that was started is ready, and stop it at the end."""
    service = Running(process, log)
    try:
        wait_until(lambda: '"ready"' in service.log() or process.poll() is not None, 60)
        found = re.search(r"http://[^:]+:(\d+)/", service.log())
        assert found, service.log()
        service.port = int(found[1])
        wait_until(service.is_ready, 60)
        yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)
