"""Files by address: this machine, and a store of fsspec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from corpora import OPTIONS, assert_exactly_once, reviews, write

from capsar.bulk import store
from capsar.bulk.fragments import file_format, make_fragment
from capsar.bulk.plan import plan
from capsar.bulk.readers import Row, read_slices
from capsar.bulk.store import InputFile, look_at
from capsar.errors import DataError


def test_addresses_have_one_form() -> None:
    assert store.normal("s3://bucket/folder/?region=x") == "s3://bucket/folder?region=x"
    assert store.join("s3://bucket/a?region=x", "b", "c") == "s3://bucket/a/b/c?region=x"
    assert store.base_name("s3://bucket/a.csv?region=x") == "a.csv"
    assert store.normal("file:///a/b/../c") == store.normal("/a/c") == "/a/c"
    assert store.is_local("a?b.csv")
    assert store.join("/what?", "a") == "/what?/a"


def test_files_are_found_in_folders_and_by_patterns(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "deep/c.csv", "_no/d.csv", ".no.csv", "x.jsonl"):
        write(tmp_path / name, ["x"])

    def names(address: Path) -> list[str]:
        found = store.find_inputs(str(address))
        return [Path(file.address).relative_to(tmp_path).as_posix() for file in found]

    assert names(tmp_path) == ["a.csv", "b.csv", "deep/c.csv", "x.jsonl"]
    assert names(tmp_path / "*.csv") == ["a.csv", "b.csv"]
    assert names(tmp_path / "a.csv") == ["a.csv"]
    for nothing in ("nothing", "*.parquet", "_no/deeper"):
        with pytest.raises(DataError, match=r"There (is no file|are no files)"):
            names(tmp_path / nothing)


def test_a_store_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("capsar.bulk.store.time.sleep", waited.append)
    calls = iter([OSError("away"), OSError("away"), "here"])

    def call() -> str:
        answer = next(calls)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert store.retried("s3://bucket", call) == "here"
    assert waited == [0.5, 1.0]
    calls = iter([OSError("bad disk")])
    with pytest.raises(OSError, match="bad disk"):
        store.retried("/local", call)
    assert 300 <= sum(store.waiting_times()) < 320


def test_a_job_in_a_store_of_fsspec(tmp_path: Path) -> None:
    """In one process, because what it holds is of that process."""
    from capsar.bulk.job import Job
    from capsar.bulk.ledger import open_ledger
    from capsar.bulk.output import read_report
    from capsar.bulk.worker import Worker

    memory = fsspec.filesystem("memory")
    texts = reviews(300)
    memory.pipe_file("/in/a.jsonl", write(tmp_path / "a.jsonl", texts).read_bytes())
    job = Job.make(OPTIONS, "memory://out")
    ledger = open_ledger(job, ["memory://in"])
    assert len(ledger.fragments) > 1
    worker = Worker(job)
    for fragment in ledger.fragments:
        report = worker.score(fragment)
        assert report == read_report(store.join(job.output, fragment.name))
    assert len(open_ledger(job, ["memory://in"]).finished) == len(ledger.fragments)
    rows = []
    for name in store.names_in("memory://out"):
        import pyarrow.parquet as pq

        with store.open_input(store.join("memory://out", name)) as stream:
            rows += pq.read_table(stream).to_pylist()
    rows = [row | {"id": int(row["id"])} for row in rows]
    assert_exactly_once(sorted(rows, key=lambda row: row["id"]), texts)
    assert sum(len(s.rows) for f in ledger.fragments for s in read_slices(f, OPTIONS)) == 300
    memory.rm("/out", recursive=True)
    memory.rm("/in", recursive=True)


def test_names_of_outputs_follow_file_version_and_range() -> None:
    file = InputFile("/data/My reviews.v2.csv.gz", 10, "1")
    name = make_fragment(file, 0, 5, 5).name
    assert name == make_fragment(file, 0, 5, 7).name
    assert name.startswith("My-reviews-000000000000-")
    others = [
        make_fragment(InputFile("/other/My reviews.v2.csv.gz", 10, "1"), 0, 5, 5),
        make_fragment(InputFile(file.address, 11, "1"), 0, 5, 5),
        make_fragment(InputFile(file.address, 10, "2"), 0, 5, 5),
        make_fragment(file, 0, 6, 5),
    ]
    assert len({name, *(other.name for other in others)}) == 5


def test_formats_are_told_by_names() -> None:
    assert file_format("a.CSV.gz") == ("csv", "gzip")
    assert file_format("s3://b/a.parquet?x=1") == ("parquet", None)
    for name in ("a.txt", "a.parquet.gz", "csv"):
        with pytest.raises(DataError, match="Cannot tell the format"):
            file_format(name)


@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("a.jsonl", b'{"review": "a"}\n\nnot\n{"review": "b"}\n{"review": \n', [1, 3, 4, 5]),
        ("a.csv", b'id,"review\ntext",review\n1,x,a\n\n2,x,"b\nb"\n3\n', [3, 5, 7]),
    ],
)
def test_records_are_named_by_their_lines(
    tmp_path: Path, name: str, content: bytes, places: list[int]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    file = look_at(str(path))

    def told(start: int, end: int) -> list[Row]:
        slices = read_slices(make_fragment(file, start, end, 1), OPTIONS)
        return [row for one in slices for row in one.rows]

    whole = told(0, len(content))
    assert [row.place for row in whole] == [f"line {number}" for number in places]
    last = content.rstrip().rindex(b"\n") + 1
    assert [row.place for row in told(last, len(content))] == [f"byte {last}"]
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
        ("a.jsonl", b'{"id": "\\ud83d", "review": "x"}\n', "utf-8", "not UTF-8: in 'id', half"),
        ("a.jsonl", b'{"id": "\xfc", "review": "x"}\n', "cp1252", ""),
    ],
)
def test_a_kept_value_is_whole_or_its_row_an_error(
    tmp_path: Path, name: str, content: bytes, encoding: str, error: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    fragment = make_fragment(look_at(str(path)), 0, len(content), 1)
    (part,) = read_slices(fragment, replace(OPTIONS, encoding=encoding))
    assert part.rows[0].error.startswith(error)
    assert bool(part.rows[0].error) == bool(error)
    kept = part.kept.to_pylist()[0]["id"]
    assert kept == (("1" if "'review'" in error else None) if error else "ü")


def test_a_file_in_another_encoding_is_cut_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    texts = [f"“{number}” café …" for number in range(300)]
    path.write_text("\n".join(["id;Größe", *(f"7;{text}" for text in texts)]), encoding="cp1252")
    options = replace(OPTIONS, text_column="Größe", encoding="windows-1252", fragment_mb=0.001)
    fragments = plan([look_at(str(path))], options)
    assert len(fragments) > 3
    slices = [part for fragment in fragments for part in read_slices(fragment, options)]
    assert [row.text for part in slices for row in part.rows] == texts
