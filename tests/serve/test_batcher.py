"""The micro-batcher: who is answered together, who waits for whom, and what is never done."""

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
from capsar.serve.metrics import Metrics
from capsar.serve.settings import Batches
from capsar.serve.work import Analyze, Classify, Task


class Recorder:
    """Answers each task with its own text, and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.has_begun = threading.Event()

    def __call__(self, tasks: Sequence[Task]) -> list[bytes]:
        self.has_begun.set()
        assert self.may_go.wait(10)
        self.batches.append([task.text for task in tasks])
        if any(task.text == "bad" for task in tasks):
            raise DataError("bad is bad")
        if any(task.text == "broken" for task in tasks):
            raise ZeroDivisionError("our fault")
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
            batches=Batches(chars=chars, texts=texts),
            batch_wait=wait,
            queue_chars=queue,
            metrics=Metrics(),
        )
        try:
            await play(batcher, recorder)
        finally:
            recorder.may_go.set()
            await batcher.close()

    asyncio.run(run())
    return recorder


def ask(batcher: Batcher, *texts: str) -> asyncio.Task[list[bytes]]:
    return asyncio.create_task(batcher.answers_to([Analyze(text) for text in texts]))


async def block(batcher: Batcher, recorder: Recorder) -> asyncio.Task[list[bytes]]:
    """Keep the thread at work, so that what comes next waits."""
    recorder.has_begun.clear()
    recorder.may_go.clear()
    first = ask(batcher, "first")
    await asyncio.to_thread(recorder.has_begun.wait, 10)
    return first


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.text("ab", max_size=300), min_size=1, max_size=12), max_size=12),
    st.integers(1, 2000),
    st.integers(1, 20),
)
def test_everyone_gets_the_answers_to_what_they_asked(
    requests: list[list[str]], chars: int, texts: int
) -> None:
    async def play(batcher: Batcher, _: Recorder) -> None:
        answers = await asyncio.gather(*(ask(batcher, *request) for request in requests))
        assert answers == [[text.encode() for text in request] for request in requests]
        assert batcher.has_room(10_000)

    recorder = with_batcher(play, chars=chars, texts=texts)
    for batch in recorder.batches:
        assert len(batch) <= texts
        assert len(batch) == 1 or sum(len(text) + 32 for text in batch) <= chars


def test_who_asks_at_the_same_time_is_answered_together() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [ask(batcher, str(number)) for number in range(5)]
        await asyncio.sleep(0.01)
        recorder.may_go.set()
        await asyncio.gather(first, *others)

    assert with_batcher(play).batches == [["first"], ["0", "1", "2", "3", "4"]]


def test_who_is_alone_does_not_wait_for_others() -> None:
    async def play(batcher: Batcher, _: Recorder) -> None:
        start = time.perf_counter()
        for _ in range(3):
            await ask(batcher, "alone")
        assert time.perf_counter() - start < 5

    assert len(with_batcher(play, wait=60).batches) == 3


def test_a_batch_waits_only_so_long_for_others() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [ask(batcher, str(number)) for number in range(2)]
        await asyncio.sleep(0.01)
        recorder.may_go.set()
        await asyncio.wait_for(asyncio.gather(first, *others), 5)
        await asyncio.wait_for(ask(batcher, "later"), 5)

    assert len(with_batcher(play, wait=0.3).batches) == 3


def test_only_the_faulty_request_fails() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        good, bad = ask(batcher, "a", "b"), ask(batcher, "c", "bad")
        broken, fine = ask(batcher, "broken"), ask(batcher, "d")
        await asyncio.sleep(0.01)
        recorder.may_go.set()
        assert await first
        assert await good == [b"a", b"b"]
        assert await fine == [b"d"]
        with pytest.raises(DataError, match="bad is bad"):
            await bad
        with pytest.raises(ZeroDivisionError):
            await broken
        assert await ask(batcher, "after") == [b"after"]
        assert batcher.has_room(10_000)

    with_batcher(play)


def test_work_whose_client_has_gone_is_not_done() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        gone, stays = ask(batcher, "gone"), ask(batcher, "stays")
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        recorder.may_go.set()
        assert await stays == [b"stays"]
        await first

    texts = [text for batch in with_batcher(play).batches for text in batch]
    assert texts == ["first", "stays"]


def test_many_texts_do_not_keep_a_single_one_waiting() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        many = ask(batcher, *(f"many {number}" for number in range(40)))
        await asyncio.sleep(0.01)
        single = ask(batcher, "single")
        await asyncio.sleep(0.01)
        recorder.may_go.set()
        await single
        assert len(await many) == 40
        await first

    batches = with_batcher(play).batches
    assert "single" in batches[2]


def test_room_is_counted_in_characters_of_work() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        assert batcher.has_room(10**9)  # nothing waits
        first = await block(batcher, recorder)
        held = sum(Analyze(text).chars for text in ("first", "x" * 500))
        second = ask(batcher, "x" * 500)
        await asyncio.sleep(0.01)
        assert batcher.has_room(1000 - held)
        assert not batcher.has_room(1001 - held)
        assert batcher.retry_after_seconds() == 1
        recorder.may_go.set()
        await asyncio.gather(first, second)
        assert batcher.has_room(10**9)

    with_batcher(play, queue=1000)


def test_an_aspect_is_as_much_work_as_a_text() -> None:
    assert Classify("x" * 100, ("a", "b", "c")).chars == 332
    assert Classify("x" * 100, ()).chars == Analyze("x" * 100).chars == 132


def test_a_thread_at_work_for_too_long_is_noticed() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        await asyncio.sleep(0.05)
        assert batcher.is_stuck(0.01)
        assert not batcher.is_stuck(60)
        recorder.may_go.set()
        await first
        await asyncio.sleep(0.05)
        assert not batcher.is_stuck(0.01)

    with_batcher(play)
