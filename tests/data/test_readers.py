"""Every reader: golden records, every kind of bad record, and robustness to arbitrary bytes."""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import json
import logging
import math
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import sized

from capsar.data.excel import read_sheet
from capsar.data.readers import Format, find_format, read_examples, read_rows
from capsar.data.records import MAX_RECORD_BYTES, Notice
from capsar.data.tables import COMPRESSIONS, Columns
from capsar.errors import (
    AspectNotFoundError,
    ConfigError,
    DataError,
    FormatError,
    MissingExtraError,
)
from capsar.schema import AspectSpan, Example, Polarity, find_mentions

Write = Callable[[str, bytes], Path]
NEGATIVE, NEUTRAL, POSITIVE = Polarity.NEGATIVE, Polarity.NEUTRAL, Polarity.POSITIVE


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return _write


def annotations(rows: list[object]) -> list[tuple[str | None, Polarity | None]]:
    return [(row.aspect, row.polarity) for row in rows if isinstance(row, Example)]


def bad(rows: list[object]) -> list[FormatError]:
    return [row for row in rows if isinstance(row, FormatError)]


def kinds(rows: list[object]) -> list[str]:
    return [row.kind for row in rows if isinstance(row, Notice)]


def test_semeval14(write: Write) -> None:
    rows = list(read_rows(write("a.xml", samples.SEMEVAL14)))
    assert annotations(rows) == [("soup", NEGATIVE), (None, None)]
    assert rows[0].spans == (AspectSpan(4, 8),)
    assert rows[0].group == "s1"
    (error,) = bad(rows)
    assert "sentence 3 (id 's3')" in error.record
    assert "'angry' is not a polarity" in error.reason


def test_offsets_take_precedence_over_the_first_occurrence(write: Write) -> None:
    content = samples.semeval14(samples.sentence("tea or tea", ("tea", "positive", 7, 10)))
    (example,) = read_examples(write("a.xml", content))
    assert example.spans == (AspectSpan(7, 10),)
    content = b"text,aspect,polarity,start,end\ntea or tea,tea,positive,7,10\n"
    (example,) = read_examples(write("a.csv", content))
    assert example.spans == (AspectSpan(7, 10),)


def test_text_is_unchanged(write: Write) -> None:
    text = "\xa0 The\u2003soup &amp; <![CDATA[<b>]]> bread "
    content = samples.semeval14(samples.sentence(text, ("bread", "positive", 17, 22)))
    (example,) = read_examples(write("a.xml", content))
    assert example.text == "\xa0 The\u2003soup & <b> bread "
    assert example.aspect == "bread"


def test_semeval16(write: Write) -> None:
    rows = list(read_rows(write("b.xml", samples.SEMEVAL16)))
    assert annotations(rows) == [
        ("staff", POSITIVE),
        ("kitchen", NEGATIVE),
        (None, NEUTRAL),
        ("kitchen", NEGATIVE),
        (None, None),
    ]
    assert kinds(rows) == [
        "term differs in case from the text",
        "implicit target",
        "wrong offset, corrected",
    ]
    (error,) = bad(rows)
    assert "'sofa' is not at -1:3, outside the text" in error.reason
    assert error.polarity is NEGATIVE


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not well-formed"),
        (b"<sentences><sentence></sentences>", "not well-formed"),
        (samples.semeval14("<sentence/>"), "needs one <text>"),
        (samples.semeval14("<sentence><text>a <b>c</b></text></sentence>"), "needs one <text>"),
        (b"<reviews><review>hello</review></reviews>", "no <sentence>"),
        (b"<sentences>" + b"<a>" * 20_000, "more than 10000 elements"),
        (samples.semeval14(samples.sentence("a b", ("b", "neutral", "x", 3))), "whole numbers"),
        (samples.semeval14(samples.sentence("a b b", ("b", "neutral", 0, 1))), "more than once"),
        (samples.SEMEVAL14.replace(b'term="soup"', b""), "needs a term"),
        (b"<?xml version='1.0' encoding='nonsense'?><a/>", "encoding"),
        (b"<?xml version='1.0' encoding='cp037'?><a/>", ""),
        (b"<!DOCTYPE a [<!ENTITY x 'y'>]><sentences>&x;</sentences>", "refused"),
        (
            b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><sentences><sentence><text>&x;"
            b"</text></sentence></sentences>",
            "refused",
        ),
        (
            b"<!DOCTYPE a [<!ENTITY a '"
            + b"x" * 1000
            + b"'><!ENTITY b '"
            + b"&a;" * 1000
            + b"'>]><sentences><sentence><text>&b;</text></sentence></sentences>",
            "refused",
        ),
        (b"<!DOCTYPE a SYSTEM 'http://localhost/x.dtd'><sentences/>", "refused"),
        (b"<sentences>" + b"<sentence>" * 100_000, "more than 10000 elements"),
    ],
)
def test_bad_xml_is_reported(write: Write, content: bytes, reason: str) -> None:
    errors = bad(list(read_rows(write("a.xml", content))))
    assert errors
    assert reason in errors[0].reason
    assert errors[0].record


def test_an_endless_sentence_is_refused_before_it_fills_memory(write: Write) -> None:
    content = b"<sentences><sentence><text>" + b"x" * (MAX_RECORD_BYTES + 2**20)
    (error,) = bad(list(read_rows(write("a.xml", content))))
    assert "longer than" in error.reason


def test_arts(write: Write) -> None:
    rows = list(read_rows(write("c.json", samples.ARTS)))
    assert annotations(rows) == [("screen", POSITIVE), ("screen", NEGATIVE)]
    assert {row.group for row in rows if isinstance(row, Example)} == {"7:1_0"}
    assert [row.id for row in rows if isinstance(row, Example)] == [
        "key '7:1_0'",
        "key '7:1_0_adv1'",
    ]
    assert kinds(rows) == ["wrong offset, corrected"]
    assert [error.record for error in bad(rows)] == ["key '7:2_0'", "key '7:3_0'"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b"[" * 200_000, b'{"a": ' + b"9" * 5000 + b"}",
     b'{"a": {"sentence": "x", "term": "x", "polarity": "glad", "from": 0, "to": 1}}'],
)  # fmt: skip
def test_bad_json_is_reported(write: Write, content: bytes) -> None:
    (error,) = list(read_rows(write("c.json", content)))
    assert isinstance(error, FormatError)
    assert error.record


def test_three_lines(write: Write) -> None:
    rows = list(read_rows(write("d.raw", samples.THREE_LINE)))
    first, second = (row for row in rows if isinstance(row, Example))
    assert first.text == "i love my new phone ( my new phone ! )"
    assert [first.text[s.start : s.end] for s in first.spans] == ["new phone", "new phone"]
    assert (second.text, second.polarity) == ("tv is so so .", NEUTRAL)
    assert kinds(rows) == ["brackets written as -LRB- and the like, restored", "more than one $T$"]
    (error,) = bad(rows)
    assert error.record == "line 4"


@pytest.mark.parametrize(
    ("content", "record"),
    [
        (b"a $T$ b\nx\n", "line 1"),
        (b"$T$" * 3000 + b"\n" + b"x" * 9000 + b"\n1\n", "line 1"),
        (b"a $T$ b\n \n1\n", "line 1"),
        (b"a $T$ b\nx\n5\n", "line 1"),
        (b"a $T$ b\n\xff\n1\n", "line 2"),
        (b"\xff\n", "line 1"),
    ],
)
def test_bad_three_line_records_are_reported(write: Write, content: bytes, record: str) -> None:
    errors = bad(list(read_rows(write("d.raw", content))))
    assert errors[0].record == record


@pytest.mark.parametrize("name", ["g.txt", "l.zip"])
def test_bing_liu(write: Write, name: str) -> None:
    rows = list(read_rows(write(name, samples.FILES[name])))
    assert annotations(rows) == [("battery life", POSITIVE), (None, NEGATIVE), (None, None)]
    assert kinds(rows) == ["feature not in the sentence"]
    (error,) = bad(rows)
    assert error.record.endswith("line 5")


def test_a_missing_line_does_not_affect_the_next_record(write: Write) -> None:
    rows = list(read_rows(write("d.raw", b"a $T$ b\nx\nc $T$ d\ny\n1\n")))
    assert annotations(rows) == [("y", POSITIVE)]
    assert bad(rows)[0].record == "line 1"


@pytest.mark.parametrize(
    ("line", "good", "reason"),
    [
        (b"lens, battery[+2], screen##the battery .", ["battery"], "got 'lens'"),
        (b"look{+1]##a look .", [], "got 'look{+1]'"),
        (b"battery[+2]#the battery .", [], "no ##"),
        (b"size[+1] weight[-1]##size and weight", ["size", "weight"], ""),
    ],
)
def test_every_feature_of_a_bing_liu_line_is_read_or_reported(
    write: Write, line: bytes, good: list[str], reason: str
) -> None:
    rows = list(read_rows(write("g.txt", line), format=Format.BING_LIU))
    assert [row.aspect for row in rows if isinstance(row, Example)] == good
    assert bool(bad(rows)) == bool(reason)
    assert all(reason in error.reason for error in bad(rows)[:1])


@pytest.mark.parametrize("line", [b"a" * 10**6 + b"##x", b"a[+" + b" " * 10**6 + b"x]##x"])
def test_bing_liu_takes_linear_time(write: Write, line: bytes) -> None:
    start = time.perf_counter()
    list(read_rows(write("g.txt", line), format=Format.BING_LIU))
    assert time.perf_counter() - start < 5  # quadratic time would be hours


def test_bing_liu_mark_without_sign_is_reported(write: Write) -> None:
    (error,) = list(read_rows(write("g.txt", b"setup[2]##the setup .\n"), format=Format.BING_LIU))
    assert isinstance(error, FormatError)
    assert "'setup[2]'" in error.reason


@pytest.mark.parametrize("name", ["i.csv", "j.tsv"])
def test_csv(write: Write, name: str) -> None:
    content = samples.CSV if name == "i.csv" else samples.CSV.replace(b",", b"\t")
    rows = list(read_rows(write(name, content)))
    assert annotations(rows) == [("soup", NEGATIVE), ("soup", POSITIVE), ("soup", NEUTRAL)]
    assert len(rows[1].spans) == 2
    assert "\n" in rows[1].text
    assert [error.record for error in bad(rows)] == ["line 6", "line 7"]
    assert "'stew' does not occur" in bad(rows)[0].reason


@pytest.mark.parametrize(
    ("content", "record", "reason"),
    [
        (b"", "line 1 (the header)", "no column 'text'"),
        (b"review,label\nx,1\n", "line 1 (the header)", "found ['review', 'label']"),
        (b"text,text\nx,y\n", "line 1 (the header)", "more than one column"),
        (b"text,start\nx,1\n", "line 1 (the header)", "go together"),
        (b"text,aspect\nx\n", "line 2", "expected 2 fields"),
        (b'text\n"x\n', "line 2", "not CSV"),
        (b"text\nx\ry\n", "line 2", "not CSV"),
        (b'"text\n', "line 1", "header is not CSV"),
        (b"text\ncaf\xe9\nok\n", "line 2", "byte 0xe9 at position 3 is not valid utf-8"),
        (b"\xff\xfet\x00", "line 1", "UTF-16"),
        (b"text,aspect,start,end\nsoup,soup,1,4\n", "line 2", "'soup' is not at 1:4, where 'oup'"),
        (b"text,start,end\nsoup,a,4\n", "line 2", "whole number, got 'a'"),
        (b"text,start,end\nsoup,2,9\n", "line 2", "outside the text"),
        (b"text,start,end\nsoup,3,1\n", "line 2", "0 <= start < end"),
        (b"text\n" + b"x" * (MAX_RECORD_BYTES + 5) + b"\n", "line 2", "longer than"),
        (b"t\0e\0x\0t\0\n\0", "line 1", "UTF-16"),
        (b"text,aspect\n,soup\n", "line 2", "must hold text"),
        (b"text,aspect\naaa" + b" a" * 10_001 + b",a\n", "line 2", "more than 10000 times"),
    ],
)
def test_bad_csv_is_reported(write: Write, content: bytes, record: str, reason: str) -> None:
    error = bad(list(read_rows(write("i.csv", content))))[0]
    assert error.record == record
    assert reason in error.reason


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_line_breaks_inside_a_field_are_unchanged(write: Write, line_break: str) -> None:
    text = f'Bad.{line_break}Good "soup", really'
    buffer = io.StringIO()
    start = text.index("soup")
    rows = [["text", "start", "end", "polarity"], [text, start, start + 4, "positive"]]
    csv.writer(buffer).writerows(rows)
    (example,) = (
        row
        for row in read_rows(write("i.csv", buffer.getvalue().encode()))
        if isinstance(row, Example)
    )
    assert example.text == text
    assert example.aspect == "soup"


def test_excel_is_read_like_csv(write: Write) -> None:
    from_csv = list(read_rows(write("i.csv", samples.CSV)))
    rows = list(read_rows(write("o.xlsx", samples.XLSX)))
    for one, other in zip(rows, from_csv, strict=True):
        if isinstance(one, Example):
            assert (one.text, one.spans, one.polarity) == (other.text, other.spans, other.polarity)
    assert [error.record for error in bad(rows)] == ["row 5", "row 6"]
    assert [error.reason for error in bad(rows)] == [error.reason for error in bad(from_csv)]
    (found,) = read_examples(
        write("file", samples.xlsx(["text", "aspect", "polarity"], ["Cold soup", "soup", -1])),
        format=Format.XLSX,
        labeled=True,
    )
    assert (found.aspect, found.polarity, found.id) == ("soup", NEGATIVE, "row 2")


def values_of(content: bytes) -> list[tuple[int, list[str | None]]]:
    return list(read_sheet(io.BytesIO(content), "o.xlsx"))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("", None),
        (5, "5"),
        (5.0, "5"),
        (-12345678901234, "-12345678901234"),
        (0.1 + 0.2, "0.3"),
        (2.5e-7, "2.5e-07"),
        (True, "TRUE"),
        (datetime.date(2026, 3, 1), "2026-03-01"),
        (datetime.datetime.fromisoformat("2026-03-01"), "2026-03-01"),
        (datetime.datetime.fromisoformat("2026-03-01 14:30"), "2026-03-01T14:30:00"),
        (datetime.time(14, 30), "14:30:00"),
        (" Cold\nsoup ", " Cold\nsoup "),
        ("Cold_x000D_\nsoup", "Cold\r\nsoup"),
        ("007", "007"),
    ],
)
def test_cells_become_text(cell: object, text: str | None) -> None:
    rows = values_of(samples.xlsx(["text", "x"], [cell, "-"]))
    assert rows == [(1, ["text", "x"]), (2, [text, "-"])]


def test_cells_as_excel_writes_them() -> None:
    """Shared and rich strings, saved values of formulas, absent rows, and a wrong dimension."""
    namespace = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    strings = f"<sst {namespace}><si><t>text</t></si><si><r><t>Cold </t></r><r><t>soup</t></r></si>"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    workbook = samples.xlsx([])
    with zipfile.ZipFile(io.BytesIO(workbook)) as archive:
        types = archive.read("[Content_Types].xml").decode()
    part = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
    cells = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'
        '<row r="4"><c r="A4" t="s"><v>1</v></c><c r="C4"><f>1+1</f><v>2</v></c></row>'
        '<row r="5"><c r="A5" s="0"/></row>'
    )
    data = samples.sheet(cells).replace(b"<sheetData>", b'<dimension ref="A1"/><sheetData>')
    parts = {
        "xl/sharedStrings.xml": f"{strings}</sst>".encode(),
        "[Content_Types].xml": types.replace("</Types>", part).encode(),
        samples.SHEET: data,
    }
    found = values_of(samples.with_parts(workbook, parts))
    assert found == [(1, ["text"]), (4, ["Cold soup", None, "2"])]


def test_columns_without_a_name_and_empty_rows_of_a_sheet_are_ignored(write: Write) -> None:
    rows = [[], ["text ", None, 2026], ["Cold soup", "note"], [None, "note"], [], ["x", None, 1, 2]]
    items = list(read_rows(write("o.xlsx", samples.xlsx(*rows))))
    assert [row.text for row in items if isinstance(row, Example)] == ["Cold soup", "x"]
    assert [row.detail for row in items if isinstance(row, Notice)] == ["", "", "'2026'"]


ENTITY = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>'
INLINE = '<row><c t="inlineStr"><is><t>{}</t></is></c></row>'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable workbook (File is not a zip file); open it in Excel and save it"),
        (b"text,aspect\n", "File is not a zip file"),
        (samples.XLSX[: len(samples.XLSX) // 2], "File is not a zip file"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "encrypted, or in the old format .xls"),
        (samples.zipped(a=b"text"), "no item named '[Content_Types].xml'"),
        (samples.with_parts(samples.XLSX, {"[Content_Types].xml": b"<Types/>"}), "not a workbook"),
        (samples.xlsx(), "no rows in the first sheet"),
        (samples.xlsx(["review", "stars"]), "no column 'text'; found ['review', 'stars']; choose"),
        (samples.with_parts(samples.XLSX, {samples.SHEET: b"<worksheet>"}), "no element found"),
        (samples.with_parts(samples.XLSX, {samples.SHEET: samples.sheet(INLINE.format("&a;"),
         prolog=ENTITY)}), "EntitiesForbidden"),
        (samples.with_parts(samples.XLSX, {"xl/media/a.png": bytes(3 * 2**20)}), "save it as CSV"),
    ],
)  # fmt: skip
def test_bad_workbooks_are_reported(write: Write, content: bytes, reason: str) -> None:
    (error,) = read_rows(write("o.xlsx", content))
    assert isinstance(error, FormatError)
    assert reason in error.reason


def test_row_numbers_and_sizes_of_workbooks_are_limited(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = INLINE.format("text") + INLINE.format("x").replace("<row>", '<row r="1000000000">')
    content = samples.with_parts(samples.XLSX, {samples.SHEET: samples.sheet(far)})
    assert values_of(content) == [(1, ["text"])]
    monkeypatch.setattr("capsar.data.excel.MAX_EXPANDED_BYTES", 10_000)
    (error,) = read_rows(write("o.xlsx", samples.XLSX))
    assert "decompressed, it is larger than" in error.reason


def test_without_openpyxl_the_extra_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'capsar\[analyst\]'"):
        list(read_rows(write("o.xlsx", samples.XLSX)))


def test_blanks_in_the_header_are_ignored_and_unread_columns_reported(write: Write) -> None:
    rows = list(read_rows(write("i.csv", b"text, aspect, sentiment\nCold soup,soup,angry\n,,\n")))
    assert annotations(rows) == [("soup", None)]
    assert kinds(rows) == ["no column 'polarity'", "columns not read"]
    assert "'sentiment'" in next(
        row.detail for row in rows if isinstance(row, Notice) and row.detail
    )


@pytest.mark.parametrize(
    "content",
    [
        b'text,aspect,polarity\n"caf\xe9 one\nnice soup",soup,positive\nok soup,soup,1\n',
        b'text,aspect,polarity\n"15" wide\nnice soup",soup,positive\nok soup,soup,1\n',
    ],
)
def test_the_rest_of_a_bad_record_is_not_read_as_a_good_one(write: Write, content: bytes) -> None:
    rows = list(read_rows(write("i.csv", content)))
    assert [row.text for row in rows if isinstance(row, Example)] == ["ok soup"]
    assert bad(rows)


def test_an_endless_record_is_refused_before_it_fills_memory(write: Write) -> None:
    content = b'text,aspect\n"a\n' + b'a","a\n' * 3_500_000
    assert "longer than" in bad(list(read_rows(write("i.csv", content))))[0].reason


def test_csv_continues_after_a_bad_record(write: Write) -> None:
    content = b"text\nfirst\ncaf\xe9\n\nx\ry\nlast\n"
    rows = list(read_rows(write("i.csv", content)))
    assert [row.text for row in rows if isinstance(row, Example)] == ["first", "last"]
    assert len(bad(rows)) == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_columns_delimiter_byte_order_mark_and_encoding(write: Write, delimiter: str) -> None:
    lines = [["review", "term", "label"], ["Das Café, schön", "Café", "Positive"]]
    table = "\r\n".join(delimiter.join(f'"{v}"' for v in line) for line in lines)
    columns = Columns(text="review", aspect="term", polarity="label")
    path = write("i.csv", b"\xef\xbb\xbf" + table.encode())
    for encoding in ("utf-8", "UTF8", "utf-8-sig"):
        rows = list(read_rows(path, columns=columns, encoding=encoding))
        assert annotations(rows) == [("Café", POSITIVE)]
    path = write("i.csv", table.encode("latin-1"))
    rows = list(read_rows(path, columns=columns, encoding="latin-1"))
    assert annotations(rows) == [("Café", POSITIVE)]


@pytest.mark.parametrize("encoding", ["utf-16", "nonsense", "undefined"])
def test_an_unusable_encoding_is_refused(write: Write, encoding: str) -> None:
    with pytest.raises(ConfigError, match=encoding):
        list(read_rows(write("i.csv", b"text\nx\n"), encoding=encoding))


def test_an_undecodable_byte_is_reported_with_the_encoding_option(write: Write) -> None:
    path = write("i.csv", b"text\na \x93cold\x94 soup\n\x81\n")
    reason = bad(list(read_rows(path)))[0].reason
    assert reason.endswith("UTF-8 or pass its encoding, for example --encoding cp1252")
    (error,) = bad(list(read_rows(path, encoding="cp1252")))
    assert "byte 0x81 at position 0 is not valid cp1252" in error.reason
    assert "--encoding" not in error.reason


@pytest.mark.parametrize(
    ("columns", "option"),
    [(Columns(text="review"), "text"), (Columns(aspect="term"), "aspect"),
     (Columns(polarity="stars"), "polarity")],
)  # fmt: skip
def test_a_missing_column_error_lists_the_columns_and_the_option(
    write: Write, columns: Columns, option: str
) -> None:
    path = write("i.csv", b"text,aspect,polarity\nx,x,1\n")
    (error,) = read_rows(path, columns=columns)
    assert isinstance(error, FormatError)
    assert "found ['text', 'aspect', 'polarity']" in error.reason
    assert error.reason.endswith(f"choose the {option} column with --{option}-column")


def test_a_named_field_that_no_json_record_has_is_an_error(write: Write) -> None:
    path = write("k.jsonl", b'{"text": "x", "polarity": 1}\n')
    reason = bad(list(read_rows(path, columns=Columns(polarity="stars"))))[0].reason
    assert "no field 'stars'; found ['text', 'polarity']" in reason
    assert reason.endswith("--polarity-column")


@pytest.mark.parametrize(
    ("header", "option"),
    [("text,aspect,label", "polarity"), ("text,label", "polarity"),
     ("text,term,polarity", "aspect"), ("text,aspect,polarity", ""),
     ("text,start,end,polarity", "")],
)  # fmt: skip
def test_labeled_data_without_label_columns_is_refused_at_the_header(
    write: Write, header: str, option: str
) -> None:
    row = {"text": "Cold soup", "aspect": "soup", "start": "5", "end": "9", "polarity": "negative"}
    values = ",".join(row.get(name, "soup") for name in header.split(","))
    path = write("i.csv", f"{header}\n{values}\n".encode())
    errors = bad(list(read_rows(path, labeled=True)))
    assert [error.record for error in errors] == ["line 1 (the header)"] * bool(option)
    assert all(f"--{option}-column" in error.reason for error in errors)
    assert not bad(list(read_rows(path)))


def test_labeled_json_lines_without_any_label_are_refused(write: Write) -> None:
    path = write("k.jsonl", b'{"text": "x"}\n')
    assert "--polarity-column" in bad(list(read_rows(path, labeled=True)))[0].reason
    assert not bad(list(read_rows(write("k.jsonl", samples.JSONL), labeled=True))[:4])


def test_jsonl(write: Write) -> None:
    rows = list(read_rows(write("k.jsonl", samples.JSONL)))
    assert annotations(rows) == [
        ("soup", NEGATIVE), ("tea", POSITIVE), ("Slow", NEGATIVE), (None, None)
    ]  # fmt: skip
    assert [error.record for error in bad(rows)] == ["line 4", "line 5"]
    assert rows[1].group == rows[2].group == "line 2"


@pytest.mark.parametrize(
    ("labels", "is_refused"),
    [(["0", "1"], True), (["1", " 0 ", ""], True), (["0"], True), (["1"], False),
     (["-1", "0", "1"], False), (["0", "+1"], False), (["neutral", "1", "0"], False)],
)  # fmt: skip
def test_ambiguous_labels_are_refused(write: Write, labels: list[str], is_refused: bool) -> None:
    table = "text,polarity\n" + "".join(f"x,{label}\n" for label in labels)
    lines = "".join(json.dumps({"text": "x", "polarity": label}) + "\n" for label in labels)
    for path in (write("i.csv", table.encode()), write("k.jsonl", lines.encode())):
        rows = list(read_rows(path))
        assert [error.record for error in bad(rows)] == ["the file"] * is_refused
        if is_refused:
            assert "write the words negative, neutral and positive" in bad(rows)[0].reason
            with pytest.raises(FormatError, match="0 may mean negative or neutral"):
                list(read_examples(path))


def test_parquet(write: Write) -> None:
    path = write("p.parquet", samples.PARQUET)
    rows = list(read_rows(path))
    assert annotations(rows) == [("soup", NEGATIVE), ("staff", POSITIVE), (None, None)]
    assert [row.id for row in rows if isinstance(row, Example)] == ["row 0", "row 1", "row 2"]
    assert [error.record for error in bad(rows)] == ["row 3"]
    assert kinds(rows) == ["columns not read"]
    (error,) = read_rows(path, columns=Columns(aspect="term"))
    assert isinstance(error, FormatError)
    assert "no column 'term'; found ['text', 'aspect'" in error.reason
    for damaged in (
        b"",
        samples.PARQUET[:-20],
        samples.PARQUET.replace(b"soup", b"\xff\xff\xff\xff"),
    ):
        assert bad(list(read_rows(write("p.parquet", damaged))))


def test_values_of_parquet_that_cannot_be_read_are_bad_records(write: Write) -> None:
    """A date out of range, bytes that are text or are not, and a value that is too long."""
    when = pa.array([0, 2**62, None, None, None]).cast(pa.timestamp("us"))
    long = "x" * (MAX_RECORD_BYTES + 1)
    texts = [b"One.", b"Two.", b"caf\xe9", b"", long.encode()]
    rows = list(read_rows(write("a.parquet", samples.parquet(text=texts, id=when))))
    assert [row.text for row in rows if isinstance(row, Example)] == ["One."]
    assert [error.record for error in bad(rows)] == ["row 1", "row 2", "row 3", "row 4"]
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": ["One."]}), stream, store_schema=False)
    content = stream.getvalue().replace(b"text", b"te\xff\xff")
    (error,) = bad(list(read_rows(write("a.parquet", content))))
    assert "not UTF-8" in error.reason


def test_memory_does_not_grow_with_a_parquet_file(tmp_path: Path) -> None:
    """All rows are in one row group; with a dictionary, each batch would have all values so far."""
    path = tmp_path / "a.parquet"
    texts = [f"{number} {'text ' * 20_000}" for number in range(2000)]  # 200 MB
    pq.write_table(pa.table({"text": texts}), path)
    code = (
        "import resource, sys\nfrom pathlib import Path\nimport pyarrow.parquet\n"
        "from capsar.data.readers import read_rows\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert sum(1 for _ in read_rows(Path(sys.argv[1]))) >= 2000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True)
    assert int(done.stdout) < 100_000


@pytest.mark.parametrize("size", [-1, 2])
def test_columns_of_lists_are_read_or_ignored(write: Write, size: int) -> None:
    """Also lists of a fixed size; the name of a column can be `aspects`, too."""
    fields = pa.struct({"aspect": pa.string(), "polarity": pa.int64()})
    aspects = [[{"aspect": "Tea", "polarity": 1}, {"aspect": "cup", "polarity": -1}]]
    column = pa.array(aspects, pa.list_(fields, size))
    content = samples.parquet(text=["Tea, cup, tea."], id=[["a"]], aspects=column)
    rows = list(read_examples(write("a.parquet", content), errors="skip"))
    assert [row.polarity for row in rows] == [POSITIVE, NEGATIVE]
    content = samples.parquet(text=["Tea, cup."], aspects=["cup"], id=[b"\xff"], category=[["b"]])
    (example,) = read_examples(write("a.parquet", content), columns=Columns(aspect="aspects"))
    assert example.aspect == "cup"


def test_aspects_of_parquet_are_read_as_in_json(write: Write) -> None:
    """Arrow fills the fields that a struct does not have with nulls, which hide nothing."""
    lines = [
        {"text": "The soup.", "category": "food", "aspects": [{"start": 4, "end": 8}]},
        {"text": "Nice room.", "aspects": [{"aspect": "room", "polarity": 1, "category": "b"}]},
    ]
    numbers = dict.fromkeys(("start", "end", "polarity"), pa.float64())
    fields = pa.struct({"aspect": pa.string(), "category": pa.string()} | numbers)
    schema = pa.schema({"text": pa.string(), "category": pa.string(), "aspects": pa.list_(fields)})
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(lines, schema), stream)
    content = "\n".join(map(json.dumps, lines)).encode()
    facts = [
        [(row.text, row.spans, row.polarity, row.category) for row in read_examples(path)]
        for path in (write("a.jsonl", content), write("a.parquet", stream.getvalue()))
    ]
    assert facts[0] == facts[1]
    assert [category for *_, category in facts[0]] == ["food", "b"]


def test_parquet_with_aspects_names_the_column_that_is_missing(write: Write) -> None:
    aspects = [[{"aspect": "tea"}]]
    (error,) = read_rows(write("a.parquet", samples.parquet(review=["Slow tea."], aspects=aspects)))
    assert isinstance(error, FormatError)
    assert "no column 'text'; found ['review', 'aspects']" in error.reason
    content = samples.parquet(text=["Slow tea."], aspect=["tea"], aspects=[["tea", "cup"]])
    *notices, example = read_rows(write("a.parquet", content))
    assert kinds(notices) == ["no column 'polarity'", "columns not read"]
    assert isinstance(example, Example)
    assert example.aspect == "tea"


def test_integers_that_a_data_frame_stores_as_floats_are_read(write: Write) -> None:
    columns = {"start": [4.0, None], "end": [8.0, math.nan], "polarity": [-1.0, None]}
    path = write("a.parquet", samples.parquet(text=["The soup.", "Nothing."], **columns))
    first, second = read_examples(path)
    assert (first.aspect, first.polarity) == ("soup", NEGATIVE)
    assert (second.spans, second.polarity) == ((), None)
    content = samples.parquet(text=["The soup."], aspect=["soup"], polarity=[0.5])
    (error,) = bad(list(read_rows(write("a.parquet", content))))
    assert "'0.5' is not a polarity" in error.reason


def test_a_row_of_parquet_that_is_not_utf8_does_not_affect_others(write: Write) -> None:
    texts = [b"Cold soup.", b"caf\xe9", b"Warm tea."] * 1000
    column = pa.array(texts, pa.binary()).view(pa.string())
    rows = list(read_rows(write("a.parquet", samples.parquet(text=column))))
    assert [row.text for row in rows if isinstance(row, Example)] == [
        "Cold soup.",
        "Warm tea.",
    ] * 1000
    assert [error.record for error in bad(rows)] == [f"row {i}" for i in range(1, 3000, 3)]


def test_rows_of_parquet_can_hold_several_aspects(write: Write) -> None:
    aspects = [{"aspect": "tea", "polarity": "neutral"}, {"aspect": "Slow", "polarity": "-1"}]
    content = samples.parquet(text=["Slow tea.", "Nothing."], aspects=[aspects, []])
    rows = list(read_rows(write("a.parquet", content), labeled=True))
    assert annotations(rows) == [("tea", NEUTRAL), ("Slow", NEGATIVE), (None, None)]
    content = samples.parquet(text=["Slow tea."], aspects=[[{"aspect": "tea"}]])
    (*_, error) = read_rows(write("a.parquet", content), labeled=True)
    assert isinstance(error, FormatError)
    assert "no field 'polarity'" in error.reason


def test_the_delimiter_of_a_name_with_two_endings(write: Write) -> None:
    for name in ("a.tsv.csv", "a.csv.tsv.csv"):
        (example,) = read_examples(write(name, b"text,id\nGood tea.,1\n"))
        assert example.id == "1"


def test_a_json_array_is_reported(write: Write) -> None:
    (error,) = read_rows(write("a.jsonl", b'[\n{"text": "good"}]'))
    assert isinstance(error, FormatError)
    assert "is a JSON array" in error.reason


@pytest.mark.parametrize("name", ["a.xml", "c.json", "d.raw", "f.txt", "g.txt", "n.unlabel"])
def test_compressed_files_have_the_format_of_their_content(write: Write, name: str) -> None:
    path = write(name, samples.FILES[name])
    compressed = write(f"{name}.gz", gzip.compress(samples.FILES[name]))
    assert find_format(compressed) == find_format(path)
    found, expected = (repr(list(read_rows(each))) for each in (compressed, path))
    assert found.replace(".gz", "") == expected


@pytest.mark.parametrize(("ending", "name"), COMPRESSIONS.items())
def test_compressed_tables_are_read_as_others(write: Write, ending: str, name: str) -> None:
    for file, content in (
        ("a.csv", samples.CSV),
        ("a.tsv", b"text\tnote\nOne, two.\t1\n"),
        ("a.jsonl", samples.JSONL),
    ):
        expected = list(read_rows(write(file, content)))
        compressed = (
            pa.compress(content, name, asbytes=True) if name != "bz2" else bz2.compress(content)
        )
        found = list(read_rows(write(file + ending, compressed)))
        assert [repr(row).replace(ending, "") for row in found] == [repr(row) for row in expected]
        assert bad(list(read_rows(write(file + ending, compressed[:-5]))))


def test_without_pyarrow_the_extra_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    for name in ("p.parquet", "q.csv.gz"):
        with pytest.raises(MissingExtraError, match=r"pip install 'capsar\[bulk\]'"):
            list(read_rows(write(name, samples.FILES[name])))


def test_ambiguous_numbers_are_refused_in_json(write: Write) -> None:
    nested = b'{"text": "Slow tea", "aspects": [{"aspect": "tea", "polarity": 0}]}\n'
    assert "0 may mean" in bad(list(read_rows(write("k.jsonl", nested))))[0].reason


@pytest.mark.parametrize(
    "line",
    [b"[]", b"7", b'{"text": "x", "aspects": 3}', b"[" * 100_000, b"\xff", b"9" * 5000,
     b'{"text": "x", "aspect": 5}', b'{"text": "x", "polarity": true}', b'{"aspect": "x"}'],
)  # fmt: skip
def test_bad_json_lines_are_reported(write: Write, line: bytes) -> None:
    (error,) = list(read_rows(write("k.jsonl", line)))
    assert isinstance(error, FormatError)
    assert error.record == "line 1"


@pytest.mark.parametrize(
    ("name", "found"),
    list(
        zip(
            samples.FILES,
            [
                "xml",
                "xml",
                "arts",
                *["three-line"] * 3,
                "bing-liu",
                "plain",
                "csv",
                "csv",
                "jsonl",
                "bing-liu",
                "plain",
                "plain",
                "xlsx",
                "parquet",
                "csv",
            ],
            strict=True,
        )
    ),
)
def test_the_format_of_every_sample_is_found(write: Write, name: str, found: str) -> None:
    path = write(name, samples.FILES[name])
    assert find_format(path) == found
    assert any(isinstance(row, Example) for row in read_rows(path))


def test_an_unknown_or_missing_file_is_an_error(tmp_path: Path) -> None:
    for name, reason in [
        ("x.docx", "unknown suffix"),
        ("x.xls", "save it as .xlsx"),
        ("x.csv", "cannot be read"),
        ("x.txt", "cannot be opened"),
    ]:
        (error,) = list(read_rows(tmp_path / name))
        assert isinstance(error, FormatError)
        assert reason in error.reason


def test_archives_are_read_in_the_format_of_their_files(write: Write) -> None:
    rows = list(read_rows(write("l.zip", samples.zipped(a=samples.THREE_LINE))))
    assert annotations(rows) == [("new phone", POSITIVE), ("tv", NEUTRAL)]
    (error,) = read_rows(write("l.zip", samples.zipped()))
    assert isinstance(error, FormatError)
    assert "no .txt file" in error.reason


def test_unknown_options_are_refused(write: Write) -> None:
    path = write("h.txt", b"## my notes\none\n")
    assert find_format(path) == "plain"
    with pytest.raises(ConfigError, match="Unknown format 'nonsense'"):
        list(read_rows(path, format="nonsense"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'raise' or 'skip'"):
        list(read_examples(path, errors="strict"))  # type: ignore[arg-type]


def test_a_damaged_archive_is_an_error(write: Write) -> None:
    content = samples.FILES["l.zip"]
    for damaged in (b"", content[:40], content[:-30], content.replace(b"camera", b"CAMERA", 1)):
        assert bad(list(read_rows(write("l.zip", damaged))))


def test_bad_records_are_raised_or_skipped(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write("i.csv", samples.CSV)
    with pytest.raises(FormatError, match=r"i\.csv: line 6: Aspect 'stew'"):
        list(read_examples(path))
    with caplog.at_level(logging.WARNING):
        assert len(list(read_examples(path, errors="skip"))) == 3
    assert "2 bad records" in caplog.text


def test_mentions_are_whole_words_first() -> None:
    assert find_mentions("art at the party, art", "art") == (AspectSpan(0, 3), AspectSpan(18, 21))
    assert find_mentions("two menus", "menu") == (AspectSpan(4, 8),)
    for absent in ("dog", "", "  "):
        with pytest.raises(AspectNotFoundError):
            find_mentions("the cat", absent)


def test_examples_refuse_spans_outside_their_text() -> None:
    with pytest.raises(DataError, match="outside the text"):
        Example("soup", (AspectSpan(0, 5),))
    with pytest.raises(DataError, match="start=3, end=3"):
        AspectSpan(3, 3)
    assert Example("soup").aspect is None


ANY_BYTES = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda content, at, cut, insert: content[:at] + insert + content[at + cut :],
        st.sampled_from(list(samples.FILES.values())),
        st.integers(0, 600),
        st.integers(0, 40),
        st.binary(max_size=12),
    ),
)


@settings(max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(list(samples.FILES)), content=ANY_BYTES)
def test_arbitrary_bytes_do_not_break_a_reader(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for row in read_rows(path):
        if isinstance(row, FormatError):
            assert row.record
            assert row.path == str(path)
        elif isinstance(row, Example):
            for span in row.spans:
                assert row.text[span.start : span.end]


@pytest.mark.slow
def test_arbitrary_bytes_do_not_break_a_reader_under_a_coverage_guided_fuzzer(
    tmp_path: Path,
) -> None:
    runs = sized(60_000)
    harness = Path(__file__).parent.parent / "fuzz" / "fuzz_readers.py"
    done = subprocess.run(
        [sys.executable, harness, tmp_path, f"-runs={runs}", "-max_total_time=240", "-max_len=600"],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"Done {runs} runs" in done.stderr
