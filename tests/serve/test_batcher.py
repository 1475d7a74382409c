"""The micro-batcher: composition of batches, fairness, errors and dropped requests."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsar.errors import DataError
from capsar.serve.batcher import Batcher
from capsar.serve.handlers import Analyze, Classify, Task
from capsar.serve.metrics import Metrics
from capsar.serve.settings import BatchSize


class Recorder:
    """Returns the text of each task, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.has_started = threading.Event()

    def __call__(self, tasks: Sequence[Task]) -> list[bytes]:
        self.has_started.set()
        assert self.may_continue.wait(10)
        self.batches.append([task.text for task in tasks])
        if any(task.text == "bad" for task in tasks):
            raise DataError("bad is bad")
        if any(task.text == "broken" for task in tasks):
            raise ZeroDivisionError("internal")
        return [task.text.encode() for task in tasks]


def with_batcher(
    play: Callable[[Batcher, Recorder], Awaitable[None]],
    *,
    chars: int = 1000,
    texts: int = 8,
    wait: float = 0.002,
    queue: int = 10_000,
) -> Recorder:
    recorder = Recorder()

    async def run() -> None:
        batcher = Batcher(
            recorder,
            batch_size=BatchSize(chars=chars, texts=texts),
            batch_wait=wait,
            queue_chars=queue,
            metrics=Metrics(),
        )
        try:
            await play(batcher, recorder)
        finally:
            recorder.may_continue.set()
            await batcher.close()

    asyncio.run(run())
    return recorder


def send(batcher: Batcher, *texts: str) -> asyncio.Task[list[bytes]]:
    return asyncio.create_task(batcher.run([Analyze(text) for text in texts]))


async def block(batcher: Batcher, recorder: Recorder) -> asyncio.Task[list[bytes]]:
    """Keep the thread busy, so that later requests wait in the queue."""
    recorder.has_started.clear()
    recorder.may_continue.clear()
    first = send(batcher, "first")
    await asyncio.to_thread(recorder.has_started.wait, 10)
    return first


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.text("ab", max_size=300), min_size=1, max_size=12), max_size=12),
    st.integers(1, 2000),
    st.integers(1, 20),
)
def test_every_request_gets_its_own_results(
    requests: list[list[str]], chars: int, texts: int
) -> None:
    async def play(batcher: Batcher, _: Recorder) -> None:
        results = await asyncio.gather(*(send(batcher, *request) for request in requests))
        assert results == [[text.encode() for text in request] for request in requests]
        assert batcher.has_room(10_000)

    recorder = with_batcher(play, chars=chars, texts=texts)
    for batch in recorder.batches:
        assert len(batch) <= texts
        assert len(batch) == 1 or sum(len(text) + 32 for text in batch) <= chars


def test_simultaneous_requests_share_a_batch() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [send(batcher, str(number)) for number in range(5)]
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        await asyncio.gather(first, *others)

    assert with_batcher(play).batches == [["first"], ["0", "1", "2", "3", "4"]]


def test_single_client_does_not_wait() -> None:
    async def play(batcher: Batcher, _: Recorder) -> None:
        start = time.perf_counter()
        for _ in range(3):
            await send(batcher, "alone")
        assert time.perf_counter() - start < 5

    assert len(with_batcher(play, wait=60).batches) == 3


def test_batch_wait_is_limited() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [send(batcher, str(number)) for number in range(2)]
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        await asyncio.wait_for(asyncio.gather(first, *others), 5)
        await asyncio.wait_for(send(batcher, "later"), 5)

    assert len(with_batcher(play, wait=0.3).batches) == 3


def test_only_the_faulty_request_of_a_batch_fails() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        good, bad = send(batcher, "a", "b"), send(batcher, "c", "bad")
        broken, fine = send(batcher, "broken"), send(batcher, "d")
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        assert await first
        assert await good == [b"a", b"b"]
        assert await fine == [b"d"]
        with pytest.raises(DataError, match="bad is bad"):
            await bad
        with pytest.raises(ZeroDivisionError):
            await broken
        assert await send(batcher, "after") == [b"after"]
        assert batcher.has_room(10_000)

    with_batcher(play)


def test_cancelled_requests_are_not_run() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        cancelled, kept = send(batcher, "cancelled"), send(batcher, "kept")
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        assert await kept == [b"kept"]
        await first

    texts = [text for batch in with_batcher(play).batches for text in batch]
    assert texts == ["first", "kept"]


def test_large_request_does_not_block_a_small_one() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        many = send(batcher, *(f"many {number}" for number in range(40)))
        await asyncio.sleep(0.01)
        single = send(batcher, "single")
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        await single
        assert len(await many) == 40
        await first

    batches = with_batcher(play).batches
    assert "single" in batches[2]


def test_queue_is_limited_by_characters_of_work() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        assert batcher.has_room(10**9)  # the queue is empty
        first = await block(batcher, recorder)
        pending = sum(Analyze(text).chars for text in ("first", "x" * 500))
        second = send(batcher, "x" * 500)
        await asyncio.sleep(0.01)
        assert batcher.has_room(1000 - pending)
        assert not batcher.has_room(1001 - pending)
        assert batcher.retry_after_seconds() == 1
        recorder.may_continue.set()
        await asyncio.gather(first, second)
        assert batcher.has_room(10**9)

    with_batcher(play, queue=1000)


def test_cost_of_tasks() -> None:
    assert Classify("x" * 100, ("a", "b", "c")).chars == 332
    assert Classify("x" * 100, ()).chars == Analyze("x" * 100).chars == 132


def test_stuck_batch_is_detected() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        await asyncio.sleep(0.05)
        assert batcher.is_stuck(0.01)
        assert not batcher.is_stuck(60)
        recorder.may_continue.set()
        await first
        await asyncio.sleep(0.05)
        assert not batcher.is_stuck(0.01)

    with_batcher(play)
