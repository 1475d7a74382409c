"""CSV record boundaries: a split file has the same records as the whole file."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capsar.bulk import csv_scan
from capsar.bulk.csv_scan import LineReader, iter_lines, parse_records, read_header, record_starts
from capsar.errors import DataError

HEADER = b"id,review\n"


def parsed(data: bytes, start: int, end: int | None) -> list[object]:
    stream = BytesIO(data)
    stream.seek(start)
    records = parse_records(LineReader(stream, start, end), ",")
    return [(offset, str(r) if isinstance(r, csv.Error) else r) for offset, r in records]


def parse_split(data: bytes, every: int) -> list[object]:
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
def test_split_file_has_the_records_of_the_whole_file(body: bytes, every: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_scan, "_BLOCK_BYTES", block)
        data = HEADER + body
        assert parse_split(data, every) == parsed(data, len(HEADER), None)


ROWS = st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), min_size=1, max_size=8)


@given(rows=ROWS, every=st.integers(1, 40))
def test_quoted_records_are_split_by_counting_quotes(rows: list[list[str]], every: int) -> None:
    rows = [[field.replace("\r", "").replace("\0", "") for field in row] for row in rows]
    stream = StringIO(newline="")
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    data = HEADER + stream.getvalue().encode("utf-8", "replace")
    by_quotes = csv_scan._starts_by_quotes(BytesIO(data[len(HEADER) :]), 0, every, ord(","))
    assert by_quotes is not None
    rows = [[field.encode("utf-8", "replace").decode() for field in row] for row in rows]
    assert [record for _, record in parse_split(data, every)] == rows


def test_quotes_inside_fields_need_the_parser() -> None:
    body = b'1,a 5" screen\n'
    assert csv_scan._starts_by_quotes(BytesIO(body), 0, 1, ord(",")) is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_detected_by_the_text_column(delimiter: str) -> None:
    header = delimiter.join(["id", "my review", "date"])
    head = b"\xef\xbb\xbf" + header.encode() + b"\r\n1\n"
    columns, found, start = read_header(head, "my review")
    assert (columns, found) == (["id", "my review", "date"], delimiter)
    assert head[start:] == b"1\n"


def test_missing_column_lists_the_columns_and_the_option() -> None:
    with pytest.raises(
        DataError, match=r"the columns are \['id', 'review'\]\. Choose with --text-column\.$"
    ):
        read_header(HEADER, "text")
    with pytest.raises(DataError, match=r"the columns are \['id', 'a, b', 'review'\]\."):
        read_header(b"id;a, b;review\n", "text")


def test_header_in_another_encoding_names_the_option() -> None:
    header = "id;Größe\n".encode("cp1252")
    assert read_header(header, "Größe", "cp1252")[0] == ["id", "Größe"]
    with pytest.raises(DataError, match=r"save the file as UTF-8 or .*--encoding cp1252"):
        read_header(header, "Größe")
    with pytest.raises(DataError, match="seems to be UTF-16; save it as UTF-8"):
        read_header("id;Größe\n".encode("utf-16"), "Größe")
    with pytest.raises(DataError, match="UTF-8 byte order mark; remove --encoding cp1252"):
        read_header("id;Größe\n".encode("utf-8-sig"), "Größe", "cp1252")


def test_overlong_line_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_scan, "MAX_RECORD_BYTES", 1 << 20)
    data = b"a" * (5 << 20) + b"\nb\n"
    lines = list(iter_lines(BytesIO(data)))
    assert b"".join(lines) == data
    assert max(map(len, lines)) <= 2 << 20
    assert lines[-1] == b"b\n"
