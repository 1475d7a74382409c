"""What bulk scoring once got wrong: lost rows, mixed models, torn reads, hung workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from corpora import OPTIONS, assert_exactly_once, read_output, reviews, write

from capsar.bulk import filesystem
from capsar.bulk.executors import RetryPolicy
from capsar.bulk.job import Job
from capsar.bulk.manifest import open_manifest
from capsar.bulk.planning import make_shards
from capsar.bulk.run import EngineOptions, JobProgress, JobStoppedError, estimate, score
from capsar.bulk.worker import Task, Worker, WorkerSetup
from capsar.errors import DataError

TWO = EngineOptions(workers=2)
COMMAND = [sys.executable, "-m", "capsar", "score"]


def test_unclosed_quote_costs_one_row(tmp_path: Path) -> None:
    lines = [f"{number},{text}" for number, text in enumerate(["The soup was cold."] * 300)]
    lines[10] = '10,"The soup was never closed'
    lines[250] = '250,"quoted, ""properly""\nover two lines"'
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["id,review", *lines]) + "\n")
    summary = score(path, tmp_path / "out", OPTIONS, engine=TWO)
    assert (summary.rows, summary.errors) == (300, {"not CSV": 1})
    assert summary.first_errors[0]["location"] == "line 12"
    found = {row["id"]: row["error"] for row in read_output(tmp_path / "out") if row["id"]}
    assert set(range(1, 300)) - found.keys() == {10}


def test_second_job_with_another_model_is_refused(tmp_path: Path, small_bundle: Path) -> None:
    """Both jobs have read the output folder before either of them writes to it."""
    path = write(tmp_path / "a.csv", reviews(20))
    out = str(tmp_path / "out")
    jobs = [Job.make(replace(OPTIONS, model=model), out) for model in ("fast", str(small_bundle))]
    errors: list[Exception | None] = [None, None]
    barrier = threading.Barrier(2)
    real_create = filesystem.create

    def create_together(uri: str, data: bytes) -> bytes:
        barrier.wait(30)
        return real_create(uri, data)

    def open_one(index: int) -> None:
        try:
            open_manifest(jobs[index], [str(path)])
        except DataError as error:
            errors[index] = error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filesystem, "create", create_together)
        threads = [threading.Thread(target=open_one, args=(index,)) for index in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (refused,) = [error for error in errors if error]
    assert "was started with another model sha256" in str(refused)
    names = {shard.name for job in jobs for p in plan(job, path) for shard in make_shards(job, p)}
    assert len(names) == 2  # output names depend on the job


def plan(job: Job, path: Path) -> list[Any]:
    from capsar.bulk.planning import find_files, plan_files

    return plan_files(job, find_files([str(path)], job.output)[0])


def test_last_of_several_processes_creates_a_file_on_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store has no exclusive creation, but all processes see the same content afterwards."""
    import fsspec

    uri, barrier = "memory://created/job.json", threading.Barrier(4)
    real_read, seen = filesystem.read_bytes, threading.local()
    one_reader = threading.Lock()  # readers of a file in fsspec's memory share its position

    def read_together(uri: str) -> bytes | None:
        with one_reader:
            content = real_read(uri)
        if not getattr(seen, "once", False):
            seen.once = True
            barrier.wait()
        return content

    monkeypatch.setattr(filesystem, "read_bytes", read_together)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(filesystem.create(uri, b"%d" % n)))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    fsspec.filesystem("memory").rm("/created", recursive=True)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "small.csv", "a.xlsx"])
def test_file_that_changes_while_it_is_read_is_not_published(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import capsar.bulk.worker as module

    path = write(tmp_path / name, reviews(20 if name == "small.csv" else 600))
    job = Job.make(OPTIONS, str(tmp_path / "out"))
    manifest = open_manifest(job, [str(path)])
    (planned,) = manifest.planned
    reader = "read_parquet" if name == "a.parquet" else "read_text"
    real = getattr(module, reader)

    def read_and_change(*arguments: Any) -> Any:
        for batch in real(*arguments):
            time.sleep(0.02)  # longer than the resolution of file times
            os.utime(path)
            yield batch

    monkeypatch.setattr(module, reader, read_and_change)
    shard = None if name in ("a.jsonl", "a.xlsx") else make_shards(manifest.job, planned)[0]
    worker = Worker(WorkerSetup(manifest.job, "run", 60), lambda _: None)
    result = worker.run(Task(planned.file, shard))
    assert "has changed since the job was planned" in result.unreadable
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_excel_file_without_openpyxl_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file of a job is checked when it starts; this is a later one."""
    write(tmp_path / "in" / "a.csv", reviews(5))
    write(tmp_path / "in" / "b.xlsx", reviews(5))
    manifest = open_manifest(Job.make(OPTIONS, str(tmp_path / "out")), [str(tmp_path / "in")])
    worker = Worker(WorkerSetup(manifest.job, "run", 60), lambda _: None)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    result = worker.run(Task(manifest.planned[1].file))
    assert "b.xlsx: Reading Excel files needs the extra 'analyst'" in result.unreadable


def test_conversion_reports_that_it_works(tmp_path: Path) -> None:
    """A large file takes longer to convert than a worker may be silent."""
    path = write(tmp_path / "a.csv", reviews(9000))
    manifest = open_manifest(Job.make(OPTIONS, str(tmp_path / "out")), [str(path)])
    reports: list[int] = []
    worker = Worker(WorkerSetup(manifest.job, "run", 60), reports.append)
    groups = worker.run(Task(manifest.planned[0].file)).groups
    assert sum(groups or ()) == 9000
    assert reports == [0, 0, 0]  # one per 4,096 rows


def test_publishing_on_fsspec_is_atomic(tmp_path: Path, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("260k")
    finished = tmp_path / "finished"
    finished.write_bytes(os.urandom(400_000))
    with pytest.raises(OSError, match="No space"):
        filesystem.publish(finished, f"local://{disk}/a.parquet")
    assert list(disk.iterdir()) == []


def test_damaged_output_is_scored_again(tmp_path: Path) -> None:
    texts = reviews(2000)
    write(tmp_path / "a.parquet", texts)
    score(tmp_path / "a.parquet", tmp_path / "out", OPTIONS, engine=TWO)
    first, second, *_ = sorted((tmp_path / "out").glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-20])
    second.write_bytes(b"")
    summary = score(tmp_path / "a.parquet", tmp_path / "out", OPTIONS, engine=TWO)
    assert summary.shards - summary.shards_skipped == 2
    assert_exactly_once(read_output(tmp_path / "out"), texts)


def test_kept_columns_of_different_types_become_strings(tmp_path: Path) -> None:
    texts = reviews(60)
    folder = tmp_path / "in"
    write(folder / "a.parquet", texts[:20])
    strings = pa.table({"id": [str(number) for number in range(20, 40)], "review": texts[20:40]})
    pq.write_table(strings, folder / "b.parquet")
    write(folder / "c.csv", texts[40:], 40)
    score(folder, tmp_path / "out", OPTIONS, engine=TWO)
    table = pds.dataset(tmp_path / "out", format="parquet").to_table()
    assert table.schema.field("id").type == pa.string()
    assert sorted(map(int, table.column("id").to_pylist())) == list(range(60))
    assert len(pd.read_parquet(tmp_path / "out")) == 60


def test_one_type_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", reviews(20))
    score(tmp_path / "in", tmp_path / "out", OPTIONS)
    write(tmp_path / "in" / "b.csv", reviews(5), 20)  # a later file gets the type of the output
    score(tmp_path / "in", tmp_path / "out", OPTIONS)
    table = pds.dataset(tmp_path / "out", format="parquet").to_table()
    assert table.schema.field("id").type == pa.int64()
    assert sorted(table.column("id").to_pylist()) == list(range(25))


def test_unexpected_error_has_its_own_exit_code() -> None:
    code = "import capsar.bulk.run as r; r.score = 1; from capsar.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "score", "a.csv", "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 70
    assert "TypeError" in done.stderr


@pytest.mark.slow
def test_equal_jobs_at_the_same_time_both_succeed(tmp_path: Path) -> None:
    texts = reviews(4000)
    write(tmp_path / "a.csv", texts)
    options = ("--model", "fast", "--text-column", "review", "--keep", "id", "--workers", "1")
    command = [*COMMAND, str(tmp_path / "a.csv"), str(tmp_path / "out"), *options]
    jobs = []
    for _ in range(2):
        jobs.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        time.sleep(2)
    for job in jobs:
        _, printed = job.communicate(timeout=300)
        assert job.returncode == 0, printed
    assert_exactly_once(read_output(tmp_path / "out"), texts)
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize("keeps_hanging", [False, True])
def test_hung_worker_is_replaced(tmp_path: Path, keeps_hanging: bool) -> None:
    texts = reviews(400)
    write(tmp_path / "a.parquet", texts)
    policy = RetryPolicy(silent_seconds=8, start_seconds=8, give_up_after=2)
    stopped: list[int] = []

    def stop_worker(_: JobProgress) -> None:
        for child in psutil.Process().children():
            is_worker = "capsar.bulk.worker" in " ".join(child.cmdline())
            if is_worker and child.pid not in stopped and (keeps_hanging or not stopped):
                child.send_signal(signal.SIGSTOP)
                stopped.append(child.pid)

    engine = EngineOptions(workers=1, retry=policy)
    options = replace(OPTIONS, shard_mb=1)
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    start = time.monotonic()
    if keeps_hanging:
        policy = replace(policy, silent_seconds=3, start_seconds=3, max_failed_starts=2)
        engine = replace(engine, retry=policy)
        with pytest.raises(Exception, match="no progress in 3 seconds"):
            score(path, out, options, engine=engine, on_progress=stop_worker)
    else:
        score(path, out, options, engine=engine, on_progress=stop_worker)
        assert_exactly_once(read_output(out), texts)
    assert stopped
    assert time.monotonic() - start < 60


def test_scratch_of_killed_runs_is_removed_and_of_others_kept(tmp_path: Path) -> None:
    import platform

    path = write(tmp_path / "a.csv", reviews(20))
    scratch = tmp_path / "out" / "_job" / "scratch"
    dead = scratch / f"{platform.node()}-999999999-aa"
    alive = scratch / f"{platform.node()}-{os.getppid()}-bb"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "x.parquet").write_bytes(b"half")
    score(path, tmp_path / "out", OPTIONS, engine=TWO)
    assert [folder.name for folder in scratch.iterdir()] == [alive.name]


def test_finished_job_is_not_touched(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(2000))
    first = score(path, tmp_path / "out", OPTIONS, engine=TWO)
    assert first.shards > 1
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    again = score(path, tmp_path / "out", OPTIONS, engine=TWO)
    assert (again.shards_skipped, again.rows) == (first.shards, 2000)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")} == before
    assert not list((tmp_path / "out" / "_job").glob("converted/*"))


def test_new_files_of_a_folder_are_added(tmp_path: Path) -> None:
    texts = reviews(900)
    write(tmp_path / "in" / "a.csv", texts[:300])
    out = tmp_path / "out"
    score(tmp_path / "in", out, OPTIONS, engine=TWO)
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}
    write(tmp_path / "in" / "b.jsonl", texts[300:600], 300)
    write(tmp_path / "in" / "c.csv", texts[600:], 600)
    summary = score(tmp_path / "in", out, OPTIONS, engine=TWO)
    assert (summary.rows, summary.shards_skipped) == (900, len(before))
    assert before.items() <= {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}.items()
    assert_exactly_once(read_output(out), texts)
    one = sorted(out.glob("*.parquet"))[0]
    one.unlink()  # its text file has to be converted again
    assert score(tmp_path / "in", out, OPTIONS, engine=TWO).rows == 900
    assert_exactly_once(read_output(out), texts)


def test_unknown_output_that_appears_meanwhile_prevents_success(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(50))
    out = tmp_path / "out"

    def add(_: JobProgress) -> None:
        (out / "foreign.parquet").write_bytes(b"x")

    with pytest.raises(JobStoppedError, match=r"has changed while.*'foreign\.parquet'"):
        score(path, out, OPTIONS, engine=TWO, on_progress=add)
    assert not (out / "_SUCCESS").exists()


def test_small_file_uses_all_workers_and_prints_progress(tmp_path: Path) -> None:
    texts = [" ".join(reviews(40, seed)) for seed in range(400)]
    path = write(tmp_path / "a.csv", texts)
    assert path.stat().st_size < 1_000_000
    options = ("--model", "base", "--text-column", "review", "--workers", "2")
    job = subprocess.Popen(
        [*COMMAND, str(path), str(tmp_path / "out"), *options], stderr=subprocess.PIPE, text=True
    )
    assert job.stderr is not None
    start = time.monotonic()
    line = job.stderr.readline()
    assert time.monotonic() - start < 30  # 5 seconds on a machine that does nothing else
    assert "rows ·" in line
    assert "left · 0 errors · 2 workers" in line
    while len(workers := [c for c in psutil.Process(job.pid).children() if c.cpu_times().user]) < 2:
        assert job.poll() is None
        time.sleep(0.1)
    assert len(workers) == 2
    job.terminate()
    job.communicate()
    (converted,) = (tmp_path / "out" / "_job").glob("converted/*.parquet")
    assert pq.read_metadata(converted).num_row_groups > 8


def test_estimate_writes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", reviews(500))
    write(tmp_path / "in" / "b.parquet", reviews(300))
    found = estimate(tmp_path / "in", OPTIONS, engine=TWO)
    assert found.files == 2
    assert 0.6 < found.rows / 800 < 1.4
    assert found.core_hours == pytest.approx(2 * found.seconds / 3600)
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "in"), str(tmp_path / "out"), "--dry-run", "--model", "fast",
         "--text-column", "review"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "2 files, about " in done.stdout
    assert "core-hours" in done.stdout
    assert not (tmp_path / "out").exists()


def test_progress_counts_rows_of_unfinished_shards(tmp_path: Path) -> None:
    texts = [" ".join(reviews(40, seed)) for seed in range(40)]
    path = write(tmp_path / "a.parquet", texts)
    seen: list[JobProgress] = []
    options = replace(OPTIONS, model="base", shard_mb=8)
    summary = score(path, tmp_path / "out", options, engine=TWO, on_progress=seen.append)
    assert summary.rows == 40
    assert seen[-1].rows == 40
    assert [p.rows for p in seen] == sorted(p.rows for p in seen)
    assert any(0 < p.rows < 40 and p.shards_done == 0 for p in seen)
    assert json.loads((tmp_path / "out" / "_summary.json").read_text())["shards_retried"] == 0
