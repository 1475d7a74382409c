"""Three lines a record: the sentence with `$T$` for the target, the target, the label.

Twitter's `.raw`, `.seg` and PyABSA's `.txt`. The sentence is already cut into words; brackets that
the Treebank wrote as `-LRB-` are written back, before any offset is taken.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import AspectSpan, Example
from capsar.data.rows import MAX_RECORD_BYTES, Line, Notice, Row, parse_label, read_lines
from capsar.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = "$T$"
_LINES = 3
_BRACKETS = {"LRB": "(", "RRB": ")", "LSB": "[", "RSB": "]", "LCB": "{", "RCB": "}"}
_BRACKET = re.compile(r"(?<!\S)-([LR][RSC]B)-(?!\S)", re.IGNORECASE)


def read_three_line(stream: BinaryIO, path: str, *, encoding: str = "utf-8") -> Iterator[Row]:
    """Yield the rows of a three-line file.

    After a line too many or too few, reading goes on at the next line with a `$T$`.
    """
    record: list[Line] = []
    for line in read_lines(stream, path, encoding=encoding):
        if TARGET in line.text and record:
            reason = f"line {line.number} already is the next sentence; expected target and label"
            yield FormatError(path, f"line {record[0].number}", reason)
            record = []
        if record or TARGET in line.text:
            record.append(line)
        elif line.error or line.text.strip():
            reason = f"expected a sentence with {TARGET}; records are sentence, target, label"
            yield line.error or FormatError(path, f"line {line.number}", reason)
        if len(record) == _LINES:
            yield from _read_record(record, path)
            record = []
    if record:
        reason = "the file ends before the record's target and label"
        yield FormatError(path, f"line {record[0].number}", reason)


def _read_record(lines: list[Line], path: str) -> Iterator[Row]:
    errors = [line.error for line in lines if line.error]
    if errors:
        yield errors[0]
        return
    first, target, label = (line.text for line in lines)
    record = f"line {lines[0].number}"
    polarity = parse_label(path, record, label)
    if isinstance(polarity, FormatError):
        yield polarity
        return
    target = _restore_brackets(target.strip())
    sentence = _restore_brackets(first)
    if not target:
        yield FormatError(path, record, "the target is empty", polarity=polarity)
        return
    if sentence.count(TARGET) * len(target) > MAX_RECORD_BYTES:
        reason = f"with its target filled in, the sentence is longer than {MAX_RECORD_BYTES}"
        yield FormatError(path, record, reason, polarity=polarity)
        return
    text, spans = _fill(sentence, target)
    yield Example(text, spans, polarity, record)
    if sentence != first:
        yield Notice(record, "brackets written as -LRB- and the like, restored")
    if len(spans) > 1:
        yield Notice(record, "more than one $T$", f"{len(spans)} mentions")


def _restore_brackets(text: str) -> str:
    return _BRACKET.sub(lambda match: _BRACKETS[match[1].upper()], text)


def _fill(sentence: str, target: str) -> tuple[str, tuple[AspectSpan, ...]]:
    """Put the target in the place of each mark, and say where it stands then."""
    pieces = sentence.split(TARGET)
    spans: list[AspectSpan] = []
    start = 0
    for piece in pieces[:-1]:
        start += len(piece)
        spans.append(AspectSpan(start, start + len(target)))
        start += len(target)
    return target.join(pieces), tuple(spans)
