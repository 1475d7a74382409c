"""Shards: output names, formats, ranges of rows, and the rows that are read from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import OPTIONS, reviews, write
from hypothesis import given
from hypothesis import strategies as st

from capsar.bulk import planning
from capsar.bulk.filesystem import InputFile, stat
from capsar.bulk.job import Job
from capsar.bulk.manifest import open_manifest
from capsar.bulk.planning import (
    PlannedFile,
    _row_ranges,
    make_shards,
    needs_conversion,
    plan_files,
    shard_bytes,
    shard_name,
)
from capsar.bulk.rows import (
    InputRow,
    file_format,
    read_parquet,
    read_text,
    write_converted,
)
from capsar.errors import DataError

JOB = Job(OPTIONS, "/out", "model")
KEPT = pa.schema([("id", pa.string())])


def test_output_name_depends_on_job_file_version_and_row() -> None:
    file = InputFile("/data/My reviews.v2.csv.gz", 10, "1")
    name = shard_name(JOB, file, 5)
    assert name.startswith("My-reviews-")
    assert name.endswith("-000000000005.parquet")
    others = [
        shard_name(JOB, InputFile("/other/My reviews.v2.csv.gz", 10, "1"), 5),
        shard_name(JOB, InputFile(file.uri, 11, "1"), 5),
        shard_name(JOB, InputFile(file.uri, 10, "2"), 5),
        shard_name(JOB, file, 6),
        shard_name(Job(OPTIONS, "/out", "other model"), file, 5),
        shard_name(Job(replace(OPTIONS, max_chars=9), "/out", "model"), file, 5),
    ]
    assert len({name, *others}) == 7
    assert shard_name(Job(OPTIONS, "/elsewhere", "model"), file, 5) == name


def test_format_is_detected_by_extension() -> None:
    assert file_format("a.CSV.gz") == ("csv", "gzip")
    assert file_format("s3://b/a.parquet?x=1") == ("parquet", None)
    for name in ("a.txt", "a.parquet.gz", "csv"):
        with pytest.raises(DataError, match="Unknown format of"):
            file_format(name)


@given(st.lists(st.integers(0, 5000), max_size=20), st.integers(1, 1000))
def test_ranges_cover_every_row_once(groups: list[int], rows_per_shard: int) -> None:
    ranges = _row_ranges(groups, rows_per_shard)
    assert [row for start, end in ranges for row in range(start, end)] == list(range(sum(groups)))
    largest = max(groups, default=0)
    for start, end in ranges:
        assert end - start <= max(2 * rows_per_shard, -(-largest // 16) + 1)


@pytest.mark.parametrize(
    ("size", "expected"), [(10_000, 62_500), (2_000_000, 62_500), (64e6, 2_000_000), (1e9, 8e6)]
)
def test_small_files_have_small_shards(size: float, expected: float) -> None:
    assert shard_bytes(InputFile("a.csv", int(size), ""), replace(OPTIONS, shard_mb=8)) == expected
    assert shard_bytes(InputFile("a.csv", int(size), ""), OPTIONS) == 20_000


def test_rows_of_shards_are_the_rows_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"id": range(5000), "review": reviews(5000)})
    pq.write_table(table, path, row_group_size=1700)
    (planned,) = plan_files(JOB, [stat(str(path))])
    assert planned.groups == (1700, 1700, 1600)
    shards = make_shards(JOB, planned)
    assert 30 <= len(shards) <= 34
    assert sum(shard.size for shard in shards) == pytest.approx(planned.file.size, abs=len(shards))
    found: list[InputRow] = []
    for shard in shards:
        for batch in read_parquet(shard.source, shard.start, shard.end, OPTIONS, None):
            assert batch.kept.column("id").to_pylist()[0] == len(found)
            found += batch.rows
    assert [row.text for row in found] == table.column("review").to_pylist()
    assert found[4321].location == "row 4321"


def test_metadata_of_each_file_is_read_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.parquet", "c.parquet"):
        write(tmp_path / "in" / name, ["good"] * 3)
    write(tmp_path / "in" / "b.csv", ["good"])
    (tmp_path / "in" / "d.parquet").write_bytes(b"torn")
    opened: list[str] = []
    read = planning.open_parquet
    monkeypatch.setattr(planning, "open_parquet", lambda f: (opened.append("x"), read(f))[1])
    manifest = open_manifest(Job.make(OPTIONS, str(tmp_path / "out")), [str(tmp_path / "in")])
    assert [Path(planned.file.uri).name[0] for planned in manifest.planned] == list("abcd")
    assert [planned.groups for planned in manifest.planned] == [(3,), None, (3,), None]
    assert [bool(planned.error) for planned in manifest.planned] == [False, False, False, True]
    assert len(opened) == 3


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.jsonl", b'{"review": "a"}\n\nnot\n{"review": "b"}\n{"review": \n', [1, 3, 4, 5]),
        ("a.csv", b'id,"long\ntitle",review\n1,x,a\n\n2,x,"b\nb"\n3\n', [3, (5, 6), 7]),
    ],
)
def test_rows_are_located_by_line(
    tmp_path: Path, name: str, content: bytes, lines: list[int | tuple[int, int]]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    rows = [row for batch in read_text(str(path), OPTIONS, None) for row in batch.rows]
    expected = [f"line {n}" if isinstance(n, int) else f"lines {n[0]} to {n[1]}" for n in lines]
    assert [row.location for row in rows] == expected
    if name == "a.jsonl":
        assert rows[-1].error == "not JSON: Expecting value at column 12"


def test_rows_of_excel_files_are_located_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlsx", ["a", None, "b"])
    (batch,) = read_text(str(path), OPTIONS, KEPT)
    assert [row.text for row in batch.rows] == ["a", "", "b"]
    assert [row.error for row in batch.rows] == ["", "null text", ""]
    assert [row.location for row in batch.rows] == ["row 2", "row 3", "row 4"]
    assert batch.kept.column("id").to_pylist() == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("name", "content", "encoding", "error"),
    [
        ("a.csv", b"id,review\n\xfc,x\n", "utf-8", "not UTF-8: byte 0xfc"),
        ("a.csv", b"id,review\n1,\xfc\n", "utf-8", "not UTF-8: byte 0xfc"),
        ("a.csv", b"id,review\n\x81,x\n", "cp1252", "not cp1252: byte 0x81"),
        ("a.csv", b"id,review\n\xfc,x\n", "cp1252", ""),
        ("a.jsonl", b'{"id": "\xfc", "review": "x"}\n', "utf-8", "not UTF-8: byte 0xfc"),
        ("a.jsonl", b'{"id": "\\ud83d", "review": "x"}\n', "utf-8", "not UTF-8: in 'id', unpaired"),
        ("a.jsonl", b'{"id": "\xfc", "review": "x"}\n', "cp1252", ""),
    ],
)
def test_undecodable_kept_value_is_null_and_its_row_an_error(
    tmp_path: Path, name: str, content: bytes, encoding: str, error: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (batch,) = read_text(str(path), replace(OPTIONS, encoding=encoding), KEPT)
    assert batch.rows[0].error.startswith(error)
    assert bool(batch.rows[0].error) == bool(error)
    kept = batch.kept.to_pylist()[0]["id"]
    assert kept == ("1" if b"1," in content else None) if error else kept == "ü"


def test_converted_rows_equal_those_of_the_text_file(tmp_path: Path) -> None:
    texts = reviews(3000)
    path = write(tmp_path / "a.csv", texts)
    with path.open("ab") as stream:
        stream.write(b'3000,caf\xe9\n3001\n3002,"' + b"x" * 100_001 + b'"\n')
    options, target = replace(OPTIONS, aspect_column=None), str(tmp_path / "a.parquet")
    batches = list(read_text(str(path), options, KEPT))
    groups = write_converted(batches, target, 20_000, KEPT)
    assert sum(groups) == 3003
    assert len(groups) > 5
    found = list(read_parquet(target, 0, 3003, options, KEPT))
    rows = [row for batch in found for row in batch.rows]
    assert [row.text for row in rows[:3000]] == texts
    assert [row.error.partition(":")[0] for row in rows[3000:]] == [
        "not UTF-8",
        "not CSV",
        "too long",
    ]
    ids = [value for batch in found for value in batch.kept.column("id").to_pylist()]
    assert ids == [*map(str, range(3001)), None, "3002"]
    (part,) = read_parquet(target, groups[0], groups[0] + 2, options, KEPT)
    assert [row.text for row in part.rows] == texts[groups[0] : groups[0] + 2]


def test_only_large_text_files_are_converted() -> None:
    options = replace(OPTIONS, shard_mb=8)
    files = {"small.csv": 60_000, "large.csv": 70_000, "large.parquet": 10**9, "small.xlsx": 9000}
    needed = [needs_conversion(PlannedFile(InputFile(n, s, "")), options) for n, s in files.items()]
    assert needed == [False, True, False, True]


def test_file_in_another_encoding_is_read(tmp_path: Path) -> None:
    for encoding in ("windows-1252", "utf-8", "gbk"):
        path = tmp_path / f"{encoding}.csv"
        texts = [f"{number} is {'café …' if encoding != 'gbk' else '咖啡'}" for number in range(30)]
        path.write_text("\n".join(["id;size", *(f"7;{text}" for text in texts)]), encoding=encoding)
        options = replace(OPTIONS, text_column="size", encoding=encoding)
        (batch,) = read_text(str(path), options, KEPT)
        assert [row.text for row in batch.rows] == texts
