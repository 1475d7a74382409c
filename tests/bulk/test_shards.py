"""Shards: output names, formats, and the rows that are read from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from corpora import OPTIONS

from capsar.bulk.filesystem import InputFile, stat
from capsar.bulk.planning import plan_shards
from capsar.bulk.readers import read_batches
from capsar.bulk.row_validation import InputRow
from capsar.bulk.shards import file_format, make_shard
from capsar.errors import DataError


def test_output_name_depends_on_file_version_and_range() -> None:
    file = InputFile("/data/My reviews.v2.csv.gz", 10, "1")
    name = make_shard(file, 0, 5, 5).name
    assert name == make_shard(file, 0, 5, 7).name
    assert name.startswith("My-reviews-000000000000-")
    others = [
        make_shard(InputFile("/other/My reviews.v2.csv.gz", 10, "1"), 0, 5, 5),
        make_shard(InputFile(file.uri, 11, "1"), 0, 5, 5),
        make_shard(InputFile(file.uri, 10, "2"), 0, 5, 5),
        make_shard(file, 0, 6, 5),
    ]
    assert len({name, *(other.name for other in others)}) == 5


def test_format_is_detected_by_extension() -> None:
    assert file_format("a.CSV.gz") == ("csv", "gzip")
    assert file_format("s3://b/a.parquet?x=1") == ("parquet", None)
    for name in ("a.txt", "a.parquet.gz", "csv"):
        with pytest.raises(DataError, match="Unknown format of"):
            file_format(name)


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.jsonl", b'{"review": "a"}\n\nnot\n{"review": "b"}\n{"review": \n', [1, 3, 4, 5]),
        ("a.csv", b'id,"review\ntext",review\n1,x,a\n\n2,x,"b\nb"\n3\n', [3, 5, 7]),
    ],
)
def test_rows_are_located_by_line_in_the_first_shard(
    tmp_path: Path, name: str, content: bytes, lines: list[int]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    file = stat(str(path))

    def read(start: int, end: int) -> list[InputRow]:
        batches = read_batches(make_shard(file, start, end, 1), OPTIONS)
        return [row for batch in batches for row in batch.rows]

    whole = read(0, len(content))
    assert [row.location for row in whole] == [f"line {number}" for number in lines]
    last = content.rstrip().rindex(b"\n") + 1
    assert [row.location for row in read(last, len(content))] == [f"byte {last}"]
    if name == "a.jsonl":
        assert whole[-1].error == "not JSON: Expecting value at column 13"


@pytest.mark.parametrize(
    ("name", "content", "encoding", "error"),
    [
        ("a.csv", b"id,review\n\xfc,x\n", "utf-8", "not UTF-8: in 'id', byte 0xfc"),
        ("a.csv", b"id,review\n1,\xfc\n", "utf-8", "not UTF-8: in 'review', byte 0xfc"),
        ("a.csv", b"id,review\n\x81,x\n", "cp1252", "not cp1252: in 'id', byte 0x81"),
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
    shard = make_shard(stat(str(path)), 0, len(content), 1)
    (batch,) = read_batches(shard, replace(OPTIONS, encoding=encoding))
    assert batch.rows[0].error.startswith(error)
    assert bool(batch.rows[0].error) == bool(error)
    kept = batch.kept.to_pylist()[0]["id"]
    assert kept == (("1" if "'review'" in error else None) if error else "ü")


def test_file_in_another_encoding_is_split(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    texts = [f"“{number}” café …" for number in range(300)]
    path.write_text("\n".join(["id;Größe", *(f"7;{text}" for text in texts)]), encoding="cp1252")
    options = replace(OPTIONS, text_column="Größe", encoding="windows-1252", shard_mb=0.001)
    shards = plan_shards([stat(str(path))], options)
    assert len(shards) > 3
    batches = [batch for shard in shards for batch in read_batches(shard, options)]
    assert [row.text for batch in batches for row in batch.rows] == texts
