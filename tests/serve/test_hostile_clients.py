"""Malicious and broken clients get an error response; none causes a 500, a hang or a crash."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from capsar.serve.settings import Settings
from serve.service import Running, read_all, running

TEXT = b'{"text": "Great food, terrible service."}'
LONG = json.dumps({"text": "cold soup " * 1900}).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with short timeouts."""
    settings = Settings(port=0, models=("fast",), queue_chars=20_000, body_timeout=1.5)
    with running(settings, tmp_path_factory.mktemp("hostile")) as found:
        yield found
        assert found.process.poll() is None
        assert '"level": "error"' not in found.log()


@pytest.fixture(autouse=True)
def service_still_works(service: Running) -> Iterator[None]:
    yield
    assert service.request("/v1/analyze", body=TEXT)[0] == 200
    counted = service.request("/metrics")[2].decode()
    assert not re.search(r'_total{[^}]*status="50[^34]"} [^0]', counted)


def post(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = (b"POST /v1/analyze HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers)
    return b"\r\n".join((*lines, b"Content-Length: %d" % size, b"", body))


def status(response: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3})", response)
    return int(found[1]) if found else 0


def read_response(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read()


CLOSE = b"Connection: close"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"text": "\xff\xc0\xaf"}',
        rb'{"text": "\ud800"}',
        rb'{"text": "\udc00\ud800"}',
        b'{"text": NaN}',
        b'{"text": Infinity}',
        b'{"text": 1e999999}',
        b'{"text": ' + b"9" * 100_000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"text": "a", "text": 7}',
        b'{"texts": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"text": "' + b"\\u0000" * 10 + b'", "x": 1}',
        "{'text': 'single'}".encode("utf-16"),
        b"null",
        b'"text"',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_invalid_json_is_rejected(service: Running, body: bytes) -> None:
    got, _, content = service.request("/v1/analyze", body=body)
    assert (got, json.loads(content)["error"]) in ((400, "bad_request"), (422, "invalid_request"))
    assert len(content) < 2000


def test_hostile_texts_are_analyzed(service: Running) -> None:
    texts = ["<script>alert(1)</script>", "\u202eevil\u2066", "\x00\x07", "é" * 2000, "𝕏" * 999]
    for text in texts:
        got, _, body = service.request("/v1/analyze", {"text": text})
        assert got == 200
        assert json.loads(body)["text"] == text


def answer(service: Running, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes and read one response."""
    with service.connect() as connection:
        for part in parts:
            connection.sendall(part)
        return read_response(connection)


def test_length_with_thousands_of_zeros_is_read(service: Running) -> None:
    zeros = b"0" * 5000
    sent = post(TEXT).replace(b"Content-Length: ", b"Content-Length: " + zeros)
    assert answer(service, sent)[0] == 200


def test_too_large_body_is_rejected_before_it_is_sent(service: Running) -> None:
    assert answer(service, post(b"", length=100_000_000))[0] == 413  # no byte of it is sent


@pytest.mark.parametrize(
    ("path", "chunked", "expected"),
    [(b"/v1/analyze", False, 413), (b"/v1/analyze", True, 413), (b"/healthz", False, 405)],
)
def test_body_of_100_mb_is_rejected_and_not_stored(
    service: Running, path: bytes, chunked: bool, expected: int
) -> None:
    before = service.memory_mb()
    block = b"x" * 1_000_000
    head = post(b"", length=100_000_000).replace(b"/v1/analyze", path)
    if chunked:
        head = head.replace(b"Content-Length: 100000000", b"Transfer-Encoding: chunked")
        block = b"%x\r\n%s\r\n" % (len(block), block)
    assert answer(service, head, *[block] * 100)[0] == expected
    assert service.memory_mb() - before < 20


def test_expect_100_continue(service: Running) -> None:
    with service.connect() as connection:
        connection.sendall(post(b"", b"Expect: 100-continue", CLOSE, length=len(TEXT)))
        assert b"100 Continue" in connection.recv(1000)
        connection.sendall(TEXT)
        assert status(read_all(connection)) == 200
    assert answer(service, post(b"", b"Expect: 100-continue", length=10**8))[0] == 413


def test_slow_body_times_out(service: Running) -> None:
    start = time.monotonic()
    response = service.raw(post(b"", length=1000), *[b"x"] * 12, pause=0.3)
    assert status(response) == 408
    assert time.monotonic() - start < 15


def test_slow_clients_do_not_block_others(service: Running) -> None:
    """A body that is announced but not sent takes no room in the queue."""
    with ThreadPoolExecutor(20) as pool:
        slow = [pool.submit(service.raw, post(b"", length=19_000)) for _ in range(20)]
        time.sleep(0.2)
        assert service.request("/v1/analyze", body=TEXT)[0] == 200
        assert {status(each.result()) for each in slow} == {408}


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/analyze HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/analyze HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /v1/analyze HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/analyze HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n folded\n\n",
    ],
)
def test_invalid_http_is_rejected(service: Running, sent: bytes) -> None:
    response = service.raw(sent)
    assert 400 <= status(response) < 500
    assert b"content-security-policy: default-src 'none'" in response
    assert b"x-content-type-options: nosniff" in response


@pytest.mark.parametrize("head", [b"Upgrade: websocket", b"Upgrade: h2c", b"Upgrade: nonsense"])
def test_upgrade_is_ignored(service: Running, head: bytes) -> None:
    sent = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n" + head + b"\r\n\r\n"
    assert answer(service, sent)[0] == 200
    assert answer(service, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")[0] in (400, 404, 405)


def test_pipelined_requests_are_handled_in_order(service: Running) -> None:
    texts = [f"Cold soup number {number}." for number in range(30)]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    sent = [post(body) for body in bodies[:-1]] + [post(bodies[-1], CLOSE)]
    responses = service.raw(b"".join(sent))
    assert re.findall(rb"HTTP/1\.1 (\d+)", responses) == [b"200"] * 30
    assert re.findall(rb'"text": "(Cold soup number \d+\.)"', responses) == [
        text.encode() for text in texts
    ]


@contextmanager
def busy(service: Running) -> Iterator[None]:
    """Fill the queue of the service with long texts; each counts as a slice of 2,048 or more."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            service.request("/v1/analyze", body=LONG)

    with ThreadPoolExecutor(16) as pool:
        clients = [pool.submit(send) for _ in range(16)]
        try:
            yield
        finally:
            is_over.set()
    for client in clients:
        client.result()


def test_requests_of_disconnected_clients_are_dropped(service: Running) -> None:
    def dropped() -> float:
        counted = service.request("/metrics")[2].decode()
        found = re.search(r"^capsar_dropped_total (\S+)$", counted, re.MULTILINE)
        assert found
        return float(found[1])

    before = dropped()
    with busy(service):
        for _ in range(300):
            with service.connect() as connection:
                connection.sendall(post(TEXT))
                time.sleep(0.005)
            if dropped() > before:
                return
    pytest.fail("no request of a disconnected client was dropped")


def test_full_queue_is_reported_before_the_body_is_sent(service: Running) -> None:
    with busy(service):
        for _ in range(60):
            with service.connect() as connection:
                connection.sendall(post(b"", length=5000))
                connection.settimeout(0.5)
                try:
                    got, headers, content = read_response(connection)
                except TimeoutError:
                    continue  # the queue had room
            assert got == 503
            assert int(headers["retry-after"]) >= 1
            assert json.loads(content)["error"] == "busy"
            return
    pytest.fail("the queue was never full")
