"""Requests that cost more than they seem to, arrive together, or are not what they claim."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsar.errors import ConfigError
from capsar.serve.app import create_app
from capsar.serve.batcher import Batcher, Task
from capsar.serve.metrics import Metrics
from capsar.serve.settings import Settings, read_api_keys

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message


async def status_of(app: ASGIApp, path: str, content: object, *headers: tuple[bytes, bytes]) -> int:
    sent: list[Message] = []
    received: asyncio.Queue[Message] = asyncio.Queue()
    body = json.dumps(content, separators=(",", ":")).encode()
    received.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    scope["headers"] = [(b"content-type", b"application/json"), *headers]

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, received.get, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize(
    "text", ["3.5 " * 256, "a.b " * 64, ("food e.g.soup i.e.cold " * 60)[:1400]]
)
def test_explain_costs_the_removals_of_real_sentences(text: str) -> None:
    """A full stop inside a word, or before a lower-case letter, does not end a sentence."""
    plain = text.replace(".", " ")
    assert (
        Task("m", text, (), explains=True).chars > 0.5 * Task("m", plain, (), explains=True).chars
    )


def test_simultaneous_requests_do_not_exceed_the_queue() -> None:
    """Requests whose bodies are complete in the same iteration of the event loop."""
    app = create_app(Settings(models=("fast",), queue_chars=8_192, threads=1))
    content = {"text": ("Great food, terrible service. " * 70)[:2000]}

    async def run() -> Counter[int]:
        return Counter(
            await asyncio.gather(*(status_of(app, "/v1/analyze", content) for _ in range(40)))
        )

    counts = asyncio.run(run())
    assert counts[200] <= 5, counts


async def longest_gap(work: Awaitable[object]) -> float:
    """Return how long the event loop was blocked at most while it did some work."""
    gaps = [0.0]

    async def beat() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.01)
            gaps.append(time.perf_counter() - start)

    beats = asyncio.create_task(beat())
    await asyncio.sleep(0.05)
    await work
    await asyncio.sleep(0.05)
    beats.cancel()
    return max(gaps)


def test_invalid_body_does_not_block_the_event_loop() -> None:
    app = create_app(Settings(models=("fast",), threads=1))
    content = {"requests": [{"text": "", "aspects": [{}] * 64}] * 512}  # 110 kB
    assert asyncio.run(longest_gap(status_of(app, "/v1/classify", content))) < 0.5
    assert asyncio.run(status_of(app, "/v1/classify", content)) == 422


def test_refused_explanations_do_not_block_the_event_loop() -> None:
    """Their long texts are split into sentences before they are refused."""
    app = create_app(Settings(models=("fast",), threads=1))
    content = {"text": "e.g. " * 4000, "aspect": "none"}

    async def run() -> float:
        requests = (status_of(app, "/v1/explain", content) for _ in range(20))
        return await longest_gap(asyncio.gather(*requests))

    assert asyncio.run(run()) < 0.5


def test_hash_of_an_empty_key_is_refused(tmp_path: Path) -> None:
    """`key=$(openssl …)` without openssl writes it, and then nobody needs a key."""
    path = tmp_path / "keys.txt"
    path.write_text(f"{sha256(b'').hexdigest()}  shop\n")
    with pytest.raises(ConfigError):
        read_api_keys(path)


def test_requests_without_a_key_are_refused_with_any_file() -> None:
    owners = {sha256(b"").hexdigest(): "shop", sha256(b"real").hexdigest(): "app"}
    app = create_app(Settings(models=("fast",), api_keys=owners))
    assert asyncio.run(status_of(app, "/v1/analyze", {"text": "Great food."})) == 401


def test_work_of_a_dropped_request_counts_until_it_ends() -> None:
    """Its thread is busy until then: the gauge is not 0 and the queue is not empty."""
    started, may_end = threading.Event(), threading.Event()

    def run_tasks(tasks: Sequence[Task]) -> list[bytes]:
        started.set()
        may_end.wait(10)
        return [b""] * len(tasks)

    async def run() -> None:
        metrics = Metrics()
        batcher = Batcher(run_tasks, threads=1, queue_chars=1000, deadline=1.0, metrics=metrics)
        request = batcher.submit([Task("m", "x" * 500)])
        await asyncio.to_thread(started.wait, 10)
        request.cancel()
        await asyncio.sleep(0.05)
        try:
            assert b"capsar_queue_chars 532.0" in metrics.text()
            assert not batcher.has_room(10_000)
        finally:
            may_end.set()
            await asyncio.sleep(0.05)
        assert b"capsar_queue_chars 0.0" in metrics.text()

    asyncio.run(run())


def test_path_with_an_encoded_line_end_is_not_found() -> None:
    """It passes the checks of content type, length and queue, and is counted as `other`."""
    app = create_app(Settings(models=("fast",)))
    assert asyncio.run(status_of(app, "/v1/analyze\n", {"text": "Great food."})) == 404
