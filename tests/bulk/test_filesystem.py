"""Local files and fsspec file systems."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest
from corpora import OPTIONS, assert_exactly_once, reviews, write

from capsar.bulk import filesystem
from capsar.bulk.job import Job
from capsar.bulk.manifest import open_manifest
from capsar.bulk.output import read_result
from capsar.bulk.planning import make_shards, needs_conversion
from capsar.bulk.worker import Task, Worker, WorkerSetup
from capsar.errors import DataError


def test_uris_are_normalized_and_joined() -> None:
    assert filesystem.normalize("s3://bucket/folder/?region=x") == "s3://bucket/folder?region=x"
    assert filesystem.join("s3://bucket/a?region=x", "b", "c") == "s3://bucket/a/b/c?region=x"
    assert filesystem.base_name("s3://bucket/a.csv?region=x") == "a.csv"
    assert filesystem.normalize("file:///a/b/../c") == filesystem.normalize("/a/c") == "/a/c"
    assert filesystem.is_local("a?b.csv")
    assert filesystem.join("/what?", "a") == "/what?/a"


def test_files_are_found_in_folders_and_by_pattern(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "deep/c.csv", "_no/d.csv", ".no.csv", "x.jsonl"):
        write(tmp_path / name, ["x"])

    def names(uri: Path) -> list[str]:
        found = filesystem.list_inputs(str(uri))
        return [Path(file.uri).relative_to(tmp_path).as_posix() for file in found]

    assert names(tmp_path) == ["a.csv", "b.csv", "deep/c.csv", "x.jsonl"]
    assert names(tmp_path / "*.csv") == ["a.csv", "b.csv"]
    assert names(tmp_path / "a.csv") == ["a.csv"]
    for nothing in ("nothing", "*.parquet", "_no/deeper"):
        with pytest.raises(DataError, match=r"There (is no file|are no files)"):
            names(tmp_path / nothing)


def test_unavailable_storage_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("capsar.bulk.filesystem.time.sleep", delays.append)
    calls = iter([OSError("down"), OSError("down"), "up"])

    def call() -> str:
        outcome = next(calls)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    assert filesystem.retry("s3://bucket", call) == "up"
    assert delays == [0.5, 1.0]
    calls = iter([OSError("bad disk")])
    with pytest.raises(OSError, match="bad disk"):
        filesystem.retry("/local", call)
    assert 300 <= sum(filesystem.retry_delays()) < 320


def test_job_on_an_fsspec_file_system(tmp_path: Path) -> None:
    """Use one process, because the memory file system exists in this process only."""
    memory = fsspec.filesystem("memory")
    texts = reviews(300)
    memory.pipe_file("/in/a.jsonl", write(tmp_path / "a.jsonl", texts).read_bytes())
    job = Job.make(OPTIONS, "memory://out")
    manifest = open_manifest(job, ["memory://in"])
    worker = Worker(WorkerSetup(manifest.job, "run", 60), lambda _: None)
    (planned,) = manifest.planned
    assert needs_conversion(planned, OPTIONS)
    assert worker.run(Task(planned.file)).groups is not None
    (planned,) = open_manifest(job, ["memory://in"]).planned
    shards = make_shards(manifest.job, planned)
    assert len(shards) > 1
    for shard in shards:
        result = worker.run(Task(planned.file, shard)).shard
        assert result == read_result(filesystem.join(job.output, shard.name))
    assert open_manifest(job, ["memory://in"]).finished.keys() == {s.name for s in shards}
    rows = []
    for name in filesystem.list_names("memory://out"):
        with filesystem.open_input(filesystem.join("memory://out", name)) as stream:
            rows += pq.read_table(stream).to_pylist()
    rows = [row | {"id": int(row["id"])} for row in rows]
    assert_exactly_once(sorted(rows, key=lambda row: row["id"]), texts)
    memory.rm("/out", recursive=True)
    memory.rm("/in", recursive=True)
