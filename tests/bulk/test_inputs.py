"""Inputs that lost, doubled or changed rows: links, outputs, empty row groups, types."""

from __future__ import annotations

import datetime as dt
import gzip
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from corpora import OPTIONS, assert_exactly_once, read_output, reviews, write

from capsar.bulk.executors import ShardActor
from capsar.bulk.job import Job
from capsar.bulk.rows import read_text
from capsar.bulk.run import EngineOptions, estimate, score
from capsar.bulk.worker import WorkerSetup
from capsar.errors import DataError

ONE = EngineOptions(workers=1)


def _write_groups(path: Path, texts: list[str], groups: list[int]) -> None:
    table, position = pa.table({"id": range(len(texts)), "review": texts}), 0
    with pq.ParquetWriter(path, table.schema) as writer:
        for rows in groups:
            writer.write_table(table.slice(position, rows))
            position += rows


@pytest.mark.parametrize("groups", [[0, 150], [150, 0, 150]])
def test_empty_row_groups_lose_no_rows(tmp_path: Path, groups: list[int]) -> None:
    """An empty row group and the next one start at the same row: their outputs had one name."""
    texts = reviews(sum(groups))
    _write_groups(tmp_path / "a.parquet", texts, groups)
    summary = score(tmp_path / "a.parquet", tmp_path / "out", OPTIONS, engine=ONE)
    assert summary.rows == len(texts)
    assert_exactly_once(read_output(tmp_path / "out"), texts)


@pytest.mark.parametrize("output", ["link", "local://{}/in"])
def test_output_is_not_input_under_another_name(tmp_path: Path, output: str) -> None:
    write(tmp_path / "in" / "a.csv", reviews(5))
    (tmp_path / "link").symlink_to("in")
    where = output.format(tmp_path) if "://" in output else str(tmp_path / output)
    options = replace(OPTIONS, keep=("id", "review"))
    for _ in range(2):
        assert score(tmp_path / "in", where, options, engine=ONE).rows == 5


def test_outputs_beside_inputs_are_not_inputs_of_another_job(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", reviews(5))
    options = replace(OPTIONS, keep=("id", "review"))
    score(tmp_path / "in", tmp_path / "in", options, engine=ONE)
    assert score(tmp_path / "in", tmp_path / "other", options, engine=ONE).rows == 5


def test_inputs_beside_outputs_are_inputs(tmp_path: Path) -> None:
    """The input folder of a job in place, below the input folder of another job."""
    write(tmp_path / "in" / "day1" / "a.csv", reviews(5))
    write(tmp_path / "in" / "day2" / "b.csv", reviews(5), first_id=5)
    score(tmp_path / "in" / "day1", tmp_path / "in" / "day1", OPTIONS, engine=ONE)
    assert score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE).rows == 10


@pytest.mark.parametrize("target", ["day1", "."])
def test_linked_folder_is_not_scored_twice(tmp_path: Path, target: str) -> None:
    write(tmp_path / "in" / "day1" / "a.csv", reviews(5))
    (tmp_path / "in" / "latest").symlink_to(target)
    assert score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE).rows == 5


def test_kept_values_of_a_new_file_are_not_changed(tmp_path: Path) -> None:
    """The types of the output are those of the first run; a cast must not lose anything."""
    (tmp_path / "in").mkdir()
    dates, times = [dt.date(2026, 1, 1)], [dt.datetime(2026, 1, 2, 13, 45)]  # noqa: DTZ001
    for name, when, meta in (("1", dates, {"a": 1}), ("2", times, {"b": 5})):
        table = pa.table({"id": [name], "review": ["Good soup"], "when": when, "meta": [meta]})
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet")
        options = replace(OPTIONS, keep=("id", "when", "meta"))
        summary = score(tmp_path / "in", tmp_path / "out", options, engine=ONE)
    rows = {row["id"]: row for row in pds.dataset(tmp_path / "out").to_table().to_pylist()}
    assert summary.unreadable or (rows["2"]["when"], rows["2"]["meta"]) == (times[0], {"b": 5})


@pytest.mark.parametrize(
    ("first", "second", "is_kept"),
    [
        (pa.array([1.5]), pa.array([float("nan")], pa.float32()), True),
        (pa.array([1], pa.int64()), pa.array([7], pa.int8()), True),
        (pa.array([1], pa.int64()), pa.array(["007"]), False),
        (pa.array([1.5], pa.float32()), pa.array([0.1], pa.float64()), False),
        (pa.array([0], pa.timestamp("us")), pa.array([1_700_000_000]), False),
        (pa.array([True]), pa.array([2]), False),
        (pa.array([1]), pa.array([1_700_000_000], pa.timestamp("us")), False),
        (pa.array([0], pa.timestamp("us")), pa.array([0], pa.timestamp("us", "UTC")), False),
        (pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("us")), False),
        (pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("ms", "CET")), True),
        (pa.array([1.5]), pa.array(["4.50"]), True),
        (pa.array([["a"]]), pa.array([[]]), True),
    ],
)
def test_kept_values_are_converted_only_without_loss(
    tmp_path: Path, first: pa.Array, second: pa.Array, is_kept: bool
) -> None:
    (tmp_path / "in").mkdir()
    for name, value in (("1", first), ("2", second)):
        table = pa.table({"review": ["Good soup"], "id": value})
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet")
        summary = score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE)
    assert bool(summary.unreadable) != is_kept


def test_links_to_files_elsewhere_are_inputs(tmp_path: Path) -> None:
    """As in a folder of DVC, where equal files are links to one object; also behind a link."""
    (tmp_path / "in").mkdir()
    write(tmp_path / "objects" / "a.csv", reviews(2))
    (tmp_path / "in" / "m.csv").symlink_to("../objects/a.csv")
    assert score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE).rows == 2
    (tmp_path / "in" / "b.csv").symlink_to("../objects/a.csv")
    assert score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE).rows == 4
    (tmp_path / "alias").symlink_to(".")
    write(tmp_path / "in" / "c" / "c.csv", reviews(3))
    (tmp_path / "in" / "latest").symlink_to("c")
    both = [tmp_path / "alias" / "in", tmp_path / "in" / "c" / "c.csv"]
    assert score(both, tmp_path / "other", OPTIONS, engine=ONE).rows == 7


def test_other_files_in_the_output_folder(tmp_path: Path) -> None:
    """A table in the output is no input; one in the input is, even if the job is in place."""
    write(tmp_path / "in" / "a.csv", reviews(2))
    write(tmp_path / "in" / "b.parquet", reviews(3)).rename(tmp_path / "in" / "b.pq")
    (tmp_path / "in" / "out").mkdir()
    (tmp_path / "in" / "out" / "report.csv").write_text("aspect,number\nsoup,1\n")
    assert score(tmp_path / "in", tmp_path / "in" / "out", OPTIONS, engine=ONE).rows == 5
    assert score(tmp_path / "in" / "*.*", tmp_path / "in", OPTIONS, engine=ONE).rows == 5


def test_large_setup_reaches_a_ray_actor(small_bundle: Path) -> None:
    """A pipe holds 64 kB until somebody reads."""
    options = replace(OPTIONS, keep=tuple(f"column {n}" for n in range(9_000)), model=small_bundle)
    actor = ShardActor(WorkerSetup(Job.make(options, "/out"), "run", 60))
    assert actor.receive() == ("ready", None)


def test_pattern_and_uri_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "my in" / "a.csv", reviews(2))
    write(tmp_path / "my in" / "sub" / "b.csv", reviews(3))
    write(tmp_path / "my in" / ".hidden" / "c.csv", reviews(3))
    assert score(tmp_path / "my in" / "*", tmp_path / "out", OPTIONS, engine=ONE).rows == 5
    uri = (tmp_path / "my in").as_uri()
    assert "%20" in uri
    assert score(uri, tmp_path / "other", OPTIONS, engine=ONE).rows == 5


def test_int96_timestamps_do_not_overflow(tmp_path: Path) -> None:
    """Spark writes INT96; 9999-12-31 is a common date without end."""
    when = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us"))  # noqa: DTZ001
    table = pa.table({"review": ["Good soup"], "id": when})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    score(tmp_path / "a.parquet", tmp_path / "out", OPTIONS, engine=ONE)
    (row,) = pds.dataset(tmp_path / "out").to_table(columns=["id"]).to_pylist()
    assert "9999" in str(row["id"])


def test_damaged_parquet_file_can_be_replaced(tmp_path: Path) -> None:
    """As score.md says: a file that could not be read can be replaced."""
    path = tmp_path / "a.parquet"
    table = pa.table({"id": range(900), "review": [f"Good soup {i}" for i in range(900)]})
    pq.write_table(table, path, row_group_size=300, compression="none", use_dictionary=False)
    good = path.read_bytes()
    start = pq.read_metadata(path).row_group(2).column(1).data_page_offset
    path.write_bytes(good[:start] + b"\xff" * 40 + good[start + 40 :])
    assert score(path, tmp_path / "out", OPTIONS, engine=ONE).unreadable
    path.write_bytes(good)
    assert score(path, tmp_path / "out", OPTIONS, engine=ONE).rows == 900


def test_aspect_that_is_not_utf8_is_an_error_of_its_row(tmp_path: Path) -> None:
    values = pa.array([b"so\xffup", b"staff"], pa.binary())
    aspects = pa.Array.from_buffers(pa.string(), 2, values.buffers())
    table = pa.table({"id": [0, 1], "review": ["Cold soup", "Nice staff"], "aspect": aspects})
    pq.write_table(table, tmp_path / "a.parquet")
    options = replace(OPTIONS, aspect_column="aspect")
    summary = score(tmp_path / "a.parquet", tmp_path / "out", options, engine=ONE)
    assert (summary.rows, summary.rows_with_error) == (2, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_file_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", reviews(3))
    (tmp_path / "in" / "caf\udce9.csv").write_bytes(b"id,review\n7,Good soup\n")
    with pytest.raises(DataError, match="caf"):
        score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE)


def test_field_of_more_than_a_mebibyte_does_not_become_rows(tmp_path: Path) -> None:
    html = '"' + "a,b,c\n" * 200_000 + '"'
    (tmp_path / "a.csv").write_text(f"id,review,html\n1,good,{html}\n2,bad,x\n")
    rows = [row for b in read_text(str(tmp_path / "a.csv"), OPTIONS, None) for row in b.rows]
    assert len(rows) == 2


def test_damaged_first_file_does_not_block_the_others(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv", reviews(3))
    (tmp_path / "in" / "0.xlsx").write_bytes(b"PK\x03\x04 not complete")
    summary = score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE)
    assert (summary.rows, len(summary.unreadable)) == (3, 1)


def test_json_array_in_a_later_file_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", reviews(3))
    (tmp_path / "in" / "b.json").write_text('[{"id": 1, "review": "x"}, {"id": 2, "review": "y"}]')
    summary = score(tmp_path / "in", tmp_path / "out", OPTIONS, engine=ONE)
    assert summary.unreadable


def test_estimate_of_plain_and_compressed_files(tmp_path: Path) -> None:
    body = "id,review\n" + "".join(
        f"{i},The soup was cold number {i % 50}\n" for i in range(20_000)
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(body[:4000])
    with gzip.open(tmp_path / "in" / "b.csv.gz", "wt") as stream:
        stream.write(body)
    found = estimate(tmp_path / "in", OPTIONS)
    assert 10_000 < found.rows < 40_000


def test_search_path_may_contain_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sys.path.insert(0, Path(...))` is frequent in notebooks; imports ignore such an entry."""
    monkeypatch.setattr(sys, "path", [Path.cwd(), *sys.path])  # type: ignore[list-item]
    path = write(tmp_path / "a.csv", reviews(3))
    assert score(path, tmp_path / "out", OPTIONS, engine=ONE).rows == 3
