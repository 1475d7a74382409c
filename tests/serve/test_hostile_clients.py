"""Clients that mean harm or know no better: each gets a refusal, none a 500, a hang or a crash."""

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

from capsar.serve.settings import Limits, Settings, Times
from running import Running, read_all, running, wait_until

TEXT = b'{"text": "Great food, terrible service."}'
LONG = json.dumps({"text": "cold soup " * 1900}).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of little patience."""
    settings = Settings(
        port=0,
        model="fast",
        limits=Limits(queue_chars=20_000, connections=40),
        times=Times(headers=1.0, body=1.5, idle=2.0, linger=1.0),
    )
    with running(settings, tmp_path_factory.mktemp("hostile")) as found:
        yield found
        assert found.process.poll() is None
        assert '"level": "error"' not in found.log()


@pytest.fixture(autouse=True)
def still_answers(service: Running) -> Iterator[None]:
    yield
    assert service.ask("/v1/analyze", body=TEXT)[0] == 200
    counted = service.ask("/metrics")[2].decode()
    assert not re.search(r'status="50[^34]"', counted)


def post(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = (b"POST /v1/analyze HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers)
    return b"\r\n".join((*lines, b"Content-Length: %d" % size, b"", body))


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3})", answer)
    return int(found[1]) if found else 0


def one_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
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
def test_json_that_is_none_or_not_what_was_asked_for(service: Running, body: bytes) -> None:
    got, _, answer = service.ask("/v1/analyze", body=body)
    assert got == 422
    assert len(answer) < 2000
    assert json.loads(answer)["error"] == "not_understood"


def test_hostile_texts_are_texts(service: Running) -> None:
    texts = ["<script>alert(1)</script>", "\u202eevil\u2066", "\x00\x07", "é" * 2000, "𝕏" * 999]
    for text in texts:
        got, _, body = service.ask("/v1/analyze", {"text": text})
        assert got == 200
        assert json.loads(body)["text"] == text


def test_a_body_beyond_the_limit_is_refused_before_it_comes(service: Running) -> None:
    start = time.monotonic()
    with service.connect() as connection:
        connection.sendall(post(b"", length=100_000_000))  # and not a byte of it
        assert one_answer(connection)[0] == 413
        assert read_all(connection) == b""  # and the connection ends
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    ("path", "chunked", "expected"),
    [(b"/v1/analyze", False, 413), (b"/v1/analyze", True, 413), (b"/healthz", False, 405)],
)
def test_a_body_of_100_mb_is_refused_and_not_kept(
    service: Running, path: bytes, chunked: bool, expected: int
) -> None:
    before = service.memory_mb()
    block = b"x" * 1_000_000
    head = post(b"", length=100_000_000).replace(b"/v1/analyze", path)
    if chunked:
        head = head.replace(b"Content-Length: 100000000", b"Transfer-Encoding: chunked")
        block = b"%x\r\n%s\r\n" % (len(block), block)
    answer = service.raw(head, *[block] * 100)
    assert status(answer) == expected
    assert service.memory_mb() - before < 20


def test_a_client_that_waits_to_be_told_to_go_on_is_told(service: Running) -> None:
    with service.connect() as connection:
        connection.sendall(post(b"", b"Expect: 100-continue", CLOSE, length=len(TEXT)))
        assert b"100 Continue" in connection.recv(1000)
        connection.sendall(TEXT)
        assert status(read_all(connection)) == 200
    assert status(service.raw(post(b"", b"Expect: 100-continue", length=10**8))) == 413


def test_slow_headers_end_in_time(service: Running) -> None:
    start = time.monotonic()
    answer = service.raw(b"POST /v1/analyze HTTP/1.1\r\n", *[b"X: y\r\n"] * 10, pause=0.3)
    assert status(answer) == 408
    assert time.monotonic() - start < 15


def test_a_client_that_says_nothing_is_sent_away(service: Running) -> None:
    start = time.monotonic()
    assert service.raw() == b""
    assert 0.9 < time.monotonic() - start < 15


def test_a_slow_body_ends_in_time(service: Running) -> None:
    start = time.monotonic()
    answer = service.raw(post(b"", length=1000), *[b"x"] * 12, pause=0.3)
    assert status(answer) == 408
    assert time.monotonic() - start < 15


def test_slow_clients_do_not_keep_others_out(service: Running) -> None:
    """A body that was announced and does not come takes no room from anybody."""
    with ThreadPoolExecutor(20) as pool:
        held = [pool.submit(service.raw, post(b"", length=19_000)) for _ in range(20)]
        time.sleep(0.2)
        assert service.ask("/v1/analyze", body=TEXT)[0] == 200
        assert {status(one.result()) for one in held} == {408}


@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"y" * 200_000 + b"\r\n\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n",
        b"".join(b"X%d: y\r\n" % number for number in range(150)) + b"\r\n",
        b"X-Endless: " + b"y" * 400_000,
    ],
    ids=["long", "many", "some too many", "endless"],
)
def test_huge_headers_are_refused(service: Running, head: bytes) -> None:
    assert status(service.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + head)) == 431


def test_a_huge_address_is_refused(service: Running) -> None:
    assert status(service.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")) == 431


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
def test_what_is_not_http_is_refused(service: Running, sent: bytes) -> None:
    assert 400 <= status(service.raw(sent)) < 500


@pytest.mark.parametrize("head", [b"Upgrade: websocket", b"Upgrade: h2c", b"Upgrade: nonsense"])
def test_an_upgrade_is_not_offered(service: Running, head: bytes) -> None:
    sent = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n" + head + b"\r\n\r\n"
    assert status(service.raw(sent)) == 200
    assert status(service.raw(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")) in (400, 404, 405)


def test_requests_sent_without_waiting_are_answered_in_turn(service: Running) -> None:
    texts = [f"Cold soup number {number}." for number in range(30)]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    sent = [post(body) for body in bodies[:-1]] + [post(bodies[-1], CLOSE)]
    answers = service.raw(b"".join(sent))
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200"] * 30
    assert re.findall(rb'"text": "(Cold soup number \d+\.)"', answers) == [
        text.encode() for text in texts
    ]


@contextmanager
def busy(service: Running) -> Iterator[None]:
    """Keep the service at work on texts that fill its queue."""
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            service.ask("/v1/analyze", body=LONG)

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            yield
        finally:
            is_over.set()
    for one in asking:
        one.result()


def test_who_goes_away_is_not_worked_for(service: Running) -> None:
    def dropped() -> float:
        counted = service.ask("/metrics")[2].decode()
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
    pytest.fail("work was done for clients that had gone")


def test_a_full_queue_is_told_before_the_body_is_sent(service: Running) -> None:
    with busy(service):
        for _ in range(300):
            with service.connect() as connection:
                connection.sendall(post(b"", length=5000))
                connection.settimeout(0.05)
                try:
                    got, headers, answer = one_answer(connection)
                except TimeoutError:
                    continue  # there was room just then
            assert got == 503
            assert int(headers["retry-after"]) >= 1
            assert json.loads(answer)["error"] == "busy"
            return
    pytest.fail("the queue was never full")


def test_too_many_connections_are_refused(service: Running) -> None:
    for _ in range(10):  # idle ones are soon sent away
        idle = [service.connect() for _ in range(45)]
        answer = service.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        for connection in idle:
            connection.close()
        if status(answer) == 503:
            assert b"retry-after: 1" in answer
            break
    else:
        pytest.fail("nobody was refused")
    wait_until(lambda: service.ask("/healthz")[0] == 200, 5)


def test_who_does_not_read_is_cut_off(service: Running) -> None:
    def is_cut_off() -> bool:
        try:
            connection.send(b"x")
        except (ConnectionResetError, BrokenPipeError):
            return True
        time.sleep(0.2)
        return False

    body = json.dumps({"text": "a b " * 2400}).encode()
    asked = post(body).replace(b"/v1/analyze", b"/v1/explain")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(asked * 30)  # answers that no buffer of the system can hold
        wait_until(is_cut_off, 60)
