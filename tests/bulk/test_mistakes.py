"""Inputs and outputs that users get wrong, and what a job makes of them."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import OPTIONS, assert_exactly_once, read_output, reviews, write

from capsar.bulk import filesystem, worker
from capsar.bulk.job import Job, ScoreOptions
from capsar.bulk.manifest import open_manifest
from capsar.bulk.planning import make_shards
from capsar.bulk.rows import read_text, write_converted
from capsar.bulk.run import EngineOptions, JobStoppedError, estimate, score
from capsar.bulk.worker import Task, Worker, WorkerSetup
from capsar.errors import ArtifactError, ConfigError, DataError

ONE = EngineOptions(workers=1)


def test_output_is_never_input(tmp_path: Path) -> None:
    texts = reviews(30)
    write(tmp_path / "in" / "a.csv", texts)
    options = replace(OPTIONS, keep=("id", "review"))
    for name in ("in/scored", "in/scored", "in/other", "in", "in"):
        summary = score(tmp_path / "in", tmp_path / name, options, engine=ONE)
        assert (summary.rows, summary.unreadable) == (30, [])
        assert_exactly_once(read_output(tmp_path / name), texts) if name != "in" else None
    again = score(tmp_path / "in" / "scored", tmp_path / "twice", options, engine=ONE)
    assert again.rows == 30  # a folder of outputs can be an input if it is named


def test_long_field_of_many_lines_is_one_record(tmp_path: Path) -> None:
    html = '"' + "a,b\n" * 40_000 + '"'
    (tmp_path / "a.csv").write_text(f"review,html\ngood,{html}\nbad,x\n")
    batches = list(read_text(str(tmp_path / "a.csv"), replace(OPTIONS, keep=()), None))
    assert [(row.text, row.error) for b in batches for row in b.rows] == [("good", ""), ("bad", "")]


def test_only_the_line_of_a_quote_that_never_closes_is_lost(tmp_path: Path) -> None:
    lines = ["review", *(f"row {number}" for number in range(300))]
    lines[9] = '"row 8'
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (batch,) = read_text(str(tmp_path / "a.csv"), replace(OPTIONS, keep=()), None)
    assert [row.location for row in batch.rows if row.error] == ["line 10"]
    assert [row.text for row in batch.rows if not row.error] == lines[1:9] + lines[10:]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("repeated", ["review", "id"])
def test_repeated_column_is_refused(tmp_path: Path, name: str, repeated: str) -> None:
    columns = {"review": ["good"], "id": ["1"]}
    table = pa.table([*columns.values(), ["again"]], names=[*columns, repeated])
    if name == "a.csv":
        (tmp_path / name).write_text(f"review,id,{repeated}\ngood,1,again\n")
    else:
        pq.write_table(table, tmp_path / name)
    with pytest.raises(DataError, match=f"several columns '{repeated}'"):
        score(tmp_path / name, tmp_path / "out", OPTIONS, engine=ONE)


def test_names_of_outputs_are_visible_to_readers(tmp_path: Path) -> None:
    path = write(tmp_path / "_a.csv", reviews(5))
    score(path, tmp_path / "out", OPTIONS, engine=ONE)
    assert len(read_output(tmp_path / "out")) == 5


def test_success_is_withdrawn_when_a_file_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", reviews(5))
    out = tmp_path / "out"
    score(tmp_path / "in", out, OPTIONS, engine=ONE)
    assert (out / "_SUCCESS").exists()
    (tmp_path / "in" / "b.parquet").write_bytes(b"torn")
    assert score(tmp_path / "in", out, OPTIONS, engine=ONE).unreadable
    assert not (out / "_SUCCESS").exists()
    assert json.loads((out / "_summary.json").read_text())["unreadable"]


def test_success_of_a_job_with_other_inputs_is_withdrawn(tmp_path: Path) -> None:
    out = tmp_path / "out"
    other = write(tmp_path / "b.csv", reviews(5))

    def finish_other(_: object) -> None:
        (out / "b-0123456789abcdef-000000000000.parquet").write_bytes(b"")
        (out / "_SUCCESS").touch()

    with pytest.raises(JobStoppedError, match="has changed while the job was running"):
        score(other, out, OPTIONS, engine=ONE, on_progress=finish_other)
    assert not (out / "_SUCCESS").exists()


def test_kept_value_that_is_not_utf8_is_null_and_its_row_an_error(tmp_path: Path) -> None:
    ids = pa.Array.from_buffers(pa.string(), 2, pa.array([b"1", b"caf\xe9"]).buffers())
    pq.write_table(pa.table({"id": ids, "review": ["good", "good"]}), tmp_path / "a.parquet")
    summary = score(tmp_path / "a.parquet", tmp_path / "out", OPTIONS, engine=ONE)
    assert summary.errors == {"not UTF-8": 1}
    (path,) = (tmp_path / "out").glob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    assert [row["id"] for row in rows] == ["1", None]
    assert [row["error"] for row in rows] == [None, "not UTF-8: invalid at character 3 of 'id'"]


def test_change_of_a_file_in_memory_is_seen() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe_file("/changes/a.csv", b"review\ngood\n")
    before = filesystem.stat("memory://changes/a.csv")
    store.pipe_file("/changes/a.csv", b"review\npoor\n")
    assert filesystem.stat("memory://changes/a.csv") != before


def test_estimate_counts_rows_of_short_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.parquet", [])
    (folder / "b.csv").write_text("id,review\n")
    with gzip.open(folder / "c.csv.gz", "wt") as stream:
        stream.write("id,review,more\n" + "".join(f"{n},fine,{'x' * 90}\n" for n in range(5000)))
    (folder / "d.parquet").write_bytes(b"torn")
    found = estimate(folder, OPTIONS, engine=ONE)
    assert (found.files, found.rows) == (3, 5000)
    assert found.seconds > 0
    assert "d.parquet" in found.unreadable[0]


@pytest.mark.parametrize("uri", ["foo://bucket/a.csv", "s3a://bucket/a.csv"])
def test_unknown_store_is_named(uri: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"Cannot open '{uri}"):
        score(uri, tmp_path / "out", OPTIONS)


def test_infinite_shards_are_refused() -> None:
    with pytest.raises(ConfigError, match="finite"):
        ScoreOptions(shard_mb=float("inf"))


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    names = ("_error", "_text", "error_")
    texts = reviews(1500)
    columns: dict[str, Any] = {name: list(map(str, range(1500))) for name in names}
    table = pa.table(columns | {"review": texts})
    pq.write_table(table, tmp_path / "a.parquet")
    table.to_pandas().to_csv(tmp_path / "b.csv", index=False)
    options = replace(OPTIONS, keep=names)
    inputs = [tmp_path / "a.parquet", tmp_path / "b.csv"]
    summary = score(inputs, tmp_path / "out", options, engine=ONE)
    assert (summary.rows, summary.rows_with_error, summary.unreadable) == (3000, 0, [])


def test_output_with_a_damaged_footer_is_scored_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(5))
    score(path, tmp_path / "out", OPTIONS, engine=ONE)
    (output,) = (tmp_path / "out").glob("*.parquet")
    content = bytearray(output.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[start : start + 40] = b"\xff" * 40
    output.write_bytes(content)
    score(path, tmp_path / "out", OPTIONS, engine=ONE)
    assert_exactly_once(read_output(tmp_path / "out"), reviews(5))


def test_store_of_converted_files_may_be_away_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.csv", reviews(1500))
    job = open_manifest(Job.make(OPTIONS, "memory://away"), [str(path)]).job
    setup = WorkerSetup(job, "run", 60)
    workers = Worker(setup, lambda _: None)
    groups = workers.run(Task(filesystem.stat(str(path)))).groups
    (planned,) = open_manifest(Job.make(OPTIONS, "memory://away"), [str(path)]).planned
    assert planned.groups == groups
    shard = make_shards(job, planned)[0]
    failures = iter([OSError("timeout")] * 2)
    read = worker.read_parquet

    def read_later(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        yield from read(*arguments)

    monkeypatch.setattr(worker, "read_parquet", read_later)
    monkeypatch.setattr(filesystem, "retry_delays", lambda: iter([0.0] * 5))
    result = workers.run(Task(shard.file, shard))
    assert result.unreadable == ""
    assert result.shard is not None


def test_denied_access_is_reported_at_once() -> None:
    def read() -> None:
        raise OSError("AWS Error ACCESS_DENIED during HeadObject operation")

    with pytest.raises(OSError, match="ACCESS_DENIED"):
        filesystem.retry("s3://bucket/a", read)


def test_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = str(tmp_path / "job.json")
    assert filesystem.create(path, b"first") == b"first"
    assert filesystem.create(path, b"second") == b"first"
    assert [file.name for file in tmp_path.iterdir()] == ["job.json"]


def test_converted_shards_are_not_limited_by_batches(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["good"] * 20_000)
    schema = pa.schema([("id", pa.string())])
    batches = list(read_text(str(path), OPTIONS, schema))
    assert len(batches) > 4
    target = str(tmp_path / "a.parquet")
    assert write_converted(batches, target, 10**9, schema) == [20_000]
    groups = write_converted(batches, target, 150_000, schema)
    assert sum(groups) == 20_000
    assert min(groups[:-1]) > 3000


def test_types_of_kept_columns_may_differ(tmp_path: Path) -> None:
    folder, texts = tmp_path / "in", ["good"]
    folder.mkdir()
    pq.write_table(pa.table({"review": texts, "stars": pa.nulls(1)}), folder / "a.parquet")
    options = replace(OPTIONS, keep=("stars",))
    score(folder, tmp_path / "out", options, engine=ONE)
    pq.write_table(pa.table({"review": texts, "stars": [4.5]}), folder / "b.parquet")
    pq.write_table(pa.table({"review": texts, "stars": [["a", "b"]]}), folder / "c.parquet")
    (folder / "d.csv").write_text("review,stars\ngood,5\n")
    assert score(folder, tmp_path / "out", options, engine=ONE).unreadable == []
    found = [
        pq.read_table(path)["stars"][0].as_py()
        for path in sorted((tmp_path / "out").glob("*.parquet"))
    ]
    assert found == [None, "4.5", '["a", "b"]', "5"]


def test_options_can_be_corrected_when_no_worker_could_start(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", reviews(5))
    with pytest.raises(ArtifactError):
        score(path, tmp_path / "out", replace(OPTIONS, backend="openvino"), engine=ONE)
    assert score(path, tmp_path / "out", OPTIONS, engine=ONE).rows == 5


def test_json_array_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[\n{"review": "good"}\n]')
    with pytest.raises(DataError, match=r"JSON array\. Write one object per line"):
        score(tmp_path / "a.json", tmp_path / "out", OPTIONS, engine=ONE)
    (tmp_path / "b.json").write_text('[\n{"review": "good"}\n]')
    with pytest.raises(DataError, match="JSON array"):
        score(tmp_path, tmp_path / "out", OPTIONS, engine=ONE)


def test_lock_files_of_excel_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "in" / "b.xlsx", reviews(5))
    (tmp_path / "in" / "~$b.xlsx").write_bytes(b"\x05user")
    summary = score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE)
    assert (summary.rows, summary.unreadable) == (5, [])
