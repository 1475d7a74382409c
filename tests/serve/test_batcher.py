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
from capsar.serve.batcher import Batcher, Task
from capsar.serve.metrics import Metrics


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
    queue: int = 10_000,
    threads: int = 1,
) -> Recorder:
    recorder = Recorder()

    async def run() -> None:
        batcher = Batcher(
            recorder,
            threads=threads,
            queue_chars=queue,
            deadline=0.001,  # the queue is limited by its characters alone
            max_batch_chars=chars,
            metrics=Metrics(),
        )
        try:
            await play(batcher, recorder)
        finally:
            recorder.may_continue.set()

    asyncio.run(run())
    return recorder


def send(batcher: Batcher, *texts: str) -> asyncio.Future[list[bytes]]:
    return batcher.submit([Task("base", text) for text in texts])


async def block(batcher: Batcher, recorder: Recorder) -> asyncio.Future[list[bytes]]:
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
    st.integers(1, 3),
)
def test_every_request_gets_its_own_results(
    requests: list[list[str]], chars: int, threads: int
) -> None:
    async def play(batcher: Batcher, _: Recorder) -> None:
        results = await asyncio.gather(*(send(batcher, *request) for request in requests))
        assert results == [[text.encode() for text in request] for request in requests]
        assert batcher.has_room(10_000)

    recorder = with_batcher(play, chars=chars, threads=threads)
    for batch in recorder.batches:
        assert sum(len(text) + 32 for text in batch[:-1]) < chars


def test_simultaneous_requests_share_a_batch() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [send(batcher, str(number)) for number in range(5)]
        await asyncio.sleep(0.01)
        recorder.may_continue.set()
        await asyncio.gather(first, *others)

    assert with_batcher(play).batches == [["first"], ["0", "1", "2", "3", "4"]]


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


def test_results_do_not_wait_for_the_reruns_of_a_failed_batch() -> None:
    """After a failed batch, each request runs alone; the last one waits for the first result."""
    first_is_done = threading.Event()

    def run(tasks: Sequence[Task]) -> list[bytes]:
        texts = [task.text for task in tasks]
        if "bad" in texts:
            raise DataError("bad is bad")
        assert texts != ["last"] or first_is_done.wait(5)
        return [text.encode() for text in texts]

    async def play() -> None:
        batcher = Batcher(run, threads=1, queue_chars=1000, deadline=1, metrics=Metrics())
        first, bad, last = (send(batcher, text) for text in ("first", "bad", "last"))
        first.add_done_callback(lambda _: first_is_done.set())
        assert await last == [b"last"]
        assert await first == [b"first"]
        with pytest.raises(DataError):
            await bad

    asyncio.run(play())


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
        assert b"capsar_dropped_total 1.0" in batcher.metrics.text()

    texts = [text for batch in with_batcher(play).batches for text in batch]
    assert texts == ["first", "kept"]


def test_large_request_takes_a_slice_of_each_batch() -> None:
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
    # A slice is a quarter of a batch of 1,000 characters: seven texts of 38 or 39. The first slice
    # waits for the thread already when the second request comes.
    assert batches[1] == [f"many {number}" for number in range(7)]
    assert batches[2] == [*(f"many {number}" for number in range(7, 14)), "single"]
    assert all(len(batch) <= 7 for batch in batches[3:])


def test_threads_share_the_slices_of_a_request() -> None:
    """Both threads run at the same time: the recorder waits for the second batch."""
    both = threading.Barrier(2, timeout=10)

    def run(tasks: Sequence[Task]) -> list[bytes]:
        both.wait()
        return [task.text.encode() for task in tasks]

    async def play() -> None:
        batcher = Batcher(
            run, threads=2, queue_chars=1000, deadline=1, metrics=Metrics(), max_batch_chars=4
        )
        texts = ["a", "b", "c", "d"]
        assert await send(batcher, *texts) == [text.encode() for text in texts]

    asyncio.run(play())


def test_request_whose_slices_all_fail_is_not_dropped_and_does_not_count() -> None:
    """Both slices fail at the same time; the third must not run, and the thread must live on."""
    both = threading.Barrier(2, timeout=10)
    metrics = Metrics()

    def run(tasks: Sequence[Task]) -> list[bytes]:
        if tasks[0].text == "bad":
            both.wait()
            raise DataError("bad is bad")
        return [task.text.encode() for task in tasks]

    async def play() -> None:
        batcher = Batcher(
            run, threads=2, queue_chars=1000, deadline=1, metrics=metrics, max_batch_chars=4
        )
        before = batcher._chars_per_second
        with pytest.raises(DataError, match="bad is bad"):
            await send(batcher, "bad", "bad", "bad", "bad")
        await asyncio.sleep(0.05)
        assert batcher._chars_per_second == before
        assert await asyncio.gather(*(send(batcher, text) for text in "abc")) == [
            [b"a"],
            [b"b"],
            [b"c"],
        ]

    asyncio.run(play())
    assert b"capsar_dropped_total 0.0" in metrics.text()


def test_speed_is_the_average_over_the_time_of_batches() -> None:
    """A batch that costs nothing, such as a text of spaces, does not change it much."""

    def run(tasks: Sequence[Task]) -> list[bytes]:
        time.sleep(0 if tasks[0].text.isspace() else 0.1)
        return [b""] * len(tasks)

    async def play() -> None:
        batcher = Batcher(run, threads=1, queue_chars=1000, deadline=1, metrics=Metrics())
        for _ in range(10):
            await send(batcher, "x" * 1000)
        assert 1_000 < batcher._chars_per_second < 11_000
        await send(batcher, " " * 5_000)
        assert batcher._chars_per_second < 30_000

    asyncio.run(play())


def test_small_request_is_accepted_until_the_queue_is_full() -> None:
    """Large requests that use up all the time do not keep out small ones."""

    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        large = send(batcher, *["x" * 68] * 20)
        await asyncio.sleep(0.01)
        assert not batcher.has_room(251)
        assert batcher.has_room(250)  # a slice
        recorder.may_continue.set()
        await asyncio.gather(first, large)

    with_batcher(play, queue=1000)


def test_large_request_counts_as_one_slice() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        batcher.deadline = 1000.0  # all of it can be finished in time
        large = send(batcher, *["x" * 68] * 9)
        await asyncio.sleep(0.01)
        assert batcher.has_room(900)
        assert not batcher.has_room(10**9)  # but not in half of the deadline
        recorder.may_continue.set()
        await asyncio.gather(first, large)

    with_batcher(play, queue=1000)


def test_queue_is_limited_by_characters_of_work() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        assert batcher.has_room(10**9)  # the queue is empty
        first = await block(batcher, recorder)
        pending = sum(Task("base", text).chars for text in ("first", "x" * 500))
        second = send(batcher, "x" * 500)
        await asyncio.sleep(0.01)
        assert batcher.has_room(1000 - pending)
        assert not batcher.is_full
        assert not batcher.has_room(1001 - pending)
        assert not batcher.is_full  # other requests may be smaller
        assert batcher.reject() == 1
        recorder.may_continue.set()
        await asyncio.gather(first, second)
        assert batcher.has_room(10**9)

    with_batcher(play, queue=1000)


def test_queue_stays_full_until_a_tenth_of_it_is_done() -> None:
    async def play(batcher: Batcher, recorder: Recorder) -> None:
        first = await block(batcher, recorder)
        others = [send(batcher, "x" * 68) for _ in range(9)]
        await asyncio.sleep(0.01)
        assert not batcher.is_full
        assert not batcher.has_room(100)
        assert batcher.is_full
        recorder.may_continue.set()
        await asyncio.gather(first, *others)
        assert not batcher.is_full

    with_batcher(play, queue=1000)


def test_cost_of_tasks() -> None:
    assert Task("base", "x" * 100, ("a", "b", "c")).chars == 332
    assert Task("base", "x" * 100, ()).chars == Task("base", "x" * 100).chars == 132
    assert Task("base", "x" * 100, explains=True).chars == 132 + 20 * 100 // 2
    two = "x" * 99 + ". " + "Y" * 19
    assert Task("base", two, explains=True).chars == 152 + 20 * 100 // 2
    one = "x" * 99 + "." + "y" * 20  # no sentence ends inside a word
    assert Task("base", one, explains=True).chars == 152 + 24 * 120 // 2
    assert Task("base", "x" * 20_000, explains=True).chars == 20_032 + 40_000


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


def test_event_loop_rests_once_between_rounds_of_rejections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests: list[float] = []
    sleep = time.sleep

    def rest(seconds: float) -> None:
        rests.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", rest)

    async def play(batcher: Batcher, _: Recorder) -> None:
        for _ in range(3):
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                assert batcher.reject() == 1
            await asyncio.sleep(0)  # a round of the event loop

    with_batcher(play)
    assert rests == [0.005] * 3
