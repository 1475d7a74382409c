"""Where CSV records begin: cut anywhere, a file has the records it has whole."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capsar.bulk import csv_scan
from capsar.bulk.csv_scan import Lines, byte_lines, parse, read_header, record_starts
from capsar.errors import DataError

HEADER = b"id,review\n"


def parsed(data: bytes, start: int, end: int | None) -> list[object]:
    stream = BytesIO(data)
    stream.seek(start)
    records = parse(Lines(stream, start, end), ",")
    return [(place, str(r) if isinstance(r, csv.Error) else r) for place, r in records]


def pieces(data: bytes, every: int) -> list[object]:
    starts = record_starts(BytesIO(data), len(HEADER), every, ",")
    assert starts[0] == len(HEADER)
    assert all(b >= a + every for a, b in pairwise(starts))
    ends = [*starts[1:], len(data)]
    return [r for a, b in zip(starts, ends, strict=True) for r in parsed(data, a, b)]


ODD = st.text(st.sampled_from(list('ab",\n\r"é')), max_size=60).map(str.encode)


@given(body=ODD | st.binary(max_size=60), every=st.integers(1, 20), block=st.integers(1, 9))
@example(body=b'1,"a\n""b"" c"\n2,x\n', every=1, block=3)
@example(body=b'1,a 5" screen\n2,"x\ny"\n', every=1, block=4)
@example(body=b'1,"never closed\n2,x\n3,y\n', every=1, block=4)
@example(body=b'1,a\rb,"x\ny"\n2,z\n', every=1, block=4)
def test_cut_anywhere_a_file_has_the_records_it_has_whole(
    body: bytes, every: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_scan, "_BLOCK", block)
        data = HEADER + body
        assert pieces(data, every) == parsed(data, len(HEADER), None)


ROWS = st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), min_size=1, max_size=8)


@given(rows=ROWS, every=st.integers(1, 40))
def test_what_a_writer_quotes_is_counted_and_cut_exactly(rows: list[list[str]], every: int) -> None:
    rows = [[field.replace("\r", "").replace("\0", "") for field in row] for row in rows]
    stream = StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    data = HEADER + stream.getvalue().encode("utf-8", "replace")
    by_quotes = csv_scan._starts_by_quotes(BytesIO(data[len(HEADER) :]), 0, every, ord(","))
    assert by_quotes is not None
    rows = [[field.encode("utf-8", "replace").decode() for field in row] for row in rows]
    assert [record for _, record in pieces(data, every)] == rows


def test_quotes_inside_fields_are_left_to_the_parser() -> None:
    body = b'1,a 5" screen\n'
    assert csv_scan._starts_by_quotes(BytesIO(body), 0, 1, ord(",")) is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_gives_the_column(delimiter: str) -> None:
    header = delimiter.join(["id", "my review", "date"])
    beginning = b"\xef\xbb\xbf" + header.encode() + b"\r\n1\n"
    columns, found, start = read_header(beginning, "my review")
    assert (columns, found) == (["id", "my review", "date"], delimiter)
    assert beginning[start:] == b"1\n"


def test_a_header_without_the_column_is_shown() -> None:
    with pytest.raises(DataError, match=r"no column 'text'; there are \['id', 'review'\]$"):
        read_header(HEADER, "text")
    with pytest.raises(DataError, match=r"no column 'text'; there are \['id', 'a, b', 'review'\]$"):
        read_header(b"id;a, b;review\n", "text")


def test_a_header_in_another_encoding_says_what_to_do() -> None:
    header = "id;Größe\n".encode("cp1252")
    assert read_header(header, "Größe", "cp1252")[0] == ["id", "Größe"]
    with pytest.raises(DataError, match=r"save the file as UTF-8, or .*--encoding cp1252"):
        read_header(header, "Größe")
    with pytest.raises(DataError, match="seems to be UTF-16; save it as UTF-8"):
        read_header("id;Größe\n".encode("utf-16"), "Größe")
    with pytest.raises(DataError, match="mark of UTF-8; score it without --encoding cp1252"):
        read_header("id;Größe\n".encode("utf-8-sig"), "Größe", "cp1252")


def test_a_line_too_long_for_memory_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_scan, "MAX_RECORD_BYTES", 1 << 20)
    data = b"a" * (5 << 20) + b"\nb\n"
    lines = list(byte_lines(BytesIO(data)))
    assert b"".join(lines) == data
    assert max(map(len, lines)) <= 2 << 20
    assert lines[-1] == b"b\n"
