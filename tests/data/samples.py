"""Small files in every format, each with good and bad records."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq


def semeval14(*sentences: str) -> bytes:
    return f"<?xml version='1.0'?><sentences>{''.join(sentences)}</sentences>".encode()


def sentence(text: str, *terms: tuple[str, str, object, object], id: str = "s1") -> str:  # noqa: A002
    marks = "".join(
        f'<aspectTerm term="{term}" polarity="{polarity}" from="{start}" to="{end}"/>'
        for term, polarity, start, end in terms
    )
    return f'<sentence id="{id}"><text>{text}</text><aspectTerms>{marks}</aspectTerms></sentence>'


SEMEVAL14 = semeval14(
    sentence("The soup was cold.", ("soup", "negative", 4, 8)),
    sentence("Nothing here.", id="s2"),
    sentence("Bad label.", ("label", "angry", 4, 9), id="s3"),
)
SEMEVAL16 = b"""<?xml version="1.0" encoding="UTF-8"?>
<Reviews><Review rid="1"><sentences>
<sentence id="1:0"><text>Lovely staff, slow kitchen.</text><Opinions>
<Opinion target="staff" category="SERVICE#GENERAL" polarity="positive" from="7" to="12"/>
<Opinion target="KITCHEN" category="SERVICE#SPEED" polarity="negative" from="19" to="26"/>
<Opinion target="NULL" category="PLACE#GENERAL" polarity="neutral" from="0" to="0"/>
<Opinion target="kitchen" category="X" polarity="negative" from="1" to="8"/>
<Opinion target="sofa" category="X" polarity="negative" from="-1" to="3"/>
</Opinions></sentence>
<sentence id="1:1" OutOfScope="TRUE"><text>Hello.</text></sentence>
</sentences></Review></Reviews>"""
ARTS = b"""{
"7:1_0": {"sentence": "A fine screen.", "term": "screen", "polarity": "positive", "id": "7:1_0",
 "from": 7, "to": 13},
"7:1_0_adv1": {"sentence": "A dull screen.", "term": "screen", "polarity": "negative",
 "id": "7:1_0", "from": 0, "to": 3},
"7:2_0": {"sentence": "No.", "term": "x", "polarity": "negative", "id": "7:2_0", "from": 0,
 "to": 1},
"7:3_0": {"sentence": "No term."}
}"""
THREE_LINE = b"""i love my $T$ -LRB- my $T$ ! -RRB-
new phone
1
no mark here
$T$ is so so .
tv
Neutral
"""
BING_LIU = b"""* a comment
[t]a title
battery life[+2], lens[-1][u]##the battery life is long .
##nothing is rated here .
oops##no mark .
"""
CSV = b"""text,aspect,polarity,start,end
The soup was cold.,soup,negative,,
"A ""fine"" soup,
twice soup",soup,positive,,
Cold soup.,soup,0,5,9
Cold soup.,stew,positive,,
Cold soup.,soup,angry,,
"""
JSONL = b"""{"text": "The soup was cold.", "aspect": "soup", "polarity": "negative"}
{"text": "Slow tea.", "aspects": [{"aspect": "tea", "polarity": 1}, {"start": 0, "end": 4, \
"polarity": -1}]}
{"text": "Nothing.", "aspects": []}
{"text": 7}
not json
"""
PLAIN = b"one review\nanother one\n"


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.txt", content)
    return buffer.getvalue()


SHEET = "xl/worksheets/sheet1.xml"


def xlsx(*rows: list[object]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def with_parts(workbook: bytes, parts: dict[str, bytes]) -> bytes:
    """Return a workbook in which parts are replaced or added."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name, content in ({name: old.read(name) for name in old.namelist()} | parts).items():
            new.writestr(name, content)
    return buffer.getvalue()


def sheet(rows: str, *, prolog: str = "") -> bytes:
    namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    data = f"<sheetData>{rows}</sheetData>"
    return f'{prolog}<worksheet xmlns="{namespace}">{data}</worksheet>'.encode()


XLSX = xlsx(
    *(
        [int(cell) if cell.isdecimal() else cell or None for cell in row]
        for row in csv.reader(io.StringIO(CSV.decode()))
    )
)


def parquet(**columns: list[object]) -> bytes:
    """Return a Parquet file with row groups of two rows."""
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, row_group_size=2)
    return stream.getvalue()


PARQUET = parquet(
    text=["The soup was cold.", "Nice staff.", "No label.", "Absent."],
    aspect=["soup", "staff", None, "stew"],
    polarity=["negative", "positive", None, "neutral"],
    seen=[1, 2, 3, 4],
)

FILES = {
    "a.xml": SEMEVAL14,
    "b.xml": SEMEVAL16,
    "c.json": ARTS,
    "d.raw": THREE_LINE,
    "e.seg": THREE_LINE,
    "f.txt": THREE_LINE,
    "g.txt": BING_LIU,
    "h.txt": PLAIN,
    "i.csv": CSV,
    "j.tsv": CSV.replace(b",", b"\t"),
    "k.jsonl": JSONL,
    "l.zip": zipped(camera=BING_LIU, README=b"## not data"),
    "m.zip": zipped(pros=PLAIN),
    "n.unlabel": PLAIN,
    "o.xlsx": XLSX,
    "p.parquet": PARQUET,
    "q.csv.gz": gzip.compress(CSV, mtime=0),
}
