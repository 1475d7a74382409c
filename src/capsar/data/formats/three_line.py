"""Three lines a record: the sentence with `$T$` for the target, the target, the label.

Twitter's `.raw`, `.seg` and PyABSA's `.txt`. The sentence is already cut into words; brackets that
the Treebank wrote as `-LRB-` are written back, before any offset is taken.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import AspectSpan, Example
from capsar.data.rows import Line, Notice, Row, parse_label, read_lines
from capsar.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = "$T$"
_BRACKETS = {"LRB": "(", "RRB": ")", "LSB": "[", "RSB": "]", "LCB": "{", "RCB": "}"}
_BRACKET = re.compile(r"(?<!\S)-([LR][RSC]B)-(?!\S)", re.IGNORECASE)


def read_three_line(stream: BinaryIO, path: str) -> Iterator[Row]:
    """Yield the rows of a three-line file."""
    lines = read_lines(stream, path)
    for first in lines:
        if isinstance(first, FormatError):
            yield first
            continue
        if not first.text.strip():
            continue
        if TARGET not in first.text:
            # Only this line is passed over: after a lost line the next record is found again.
            reason = f"expected a sentence with {TARGET}; records are sentence, target, label"
            yield FormatError(path, f"line {first.number}", reason)
            continue
        rest = list(islice(lines, 2))
        yield from _read_record(first, rest, path)


def _read_record(first: Line, rest: list[Line | FormatError], path: str) -> Iterator[Row]:
    record = f"line {first.number}"
    for line in rest:
        if isinstance(line, FormatError):
            yield line
            return
    lines = [line.text for line in rest if isinstance(line, Line)]
    if len(lines) < 2:  # noqa: PLR2004
        yield FormatError(path, record, "the file ends before the record's target and label")
        return
    target, label = lines
    polarity = parse_label(path, record, label)
    if isinstance(polarity, FormatError):
        yield polarity
        return
    target = _restore_brackets(target.strip())
    if not target:
        yield FormatError(path, record, "the target is empty", polarity=polarity)
        return
    sentence = _restore_brackets(first.text)
    text, spans = _fill(sentence, target)
    yield Example(text, spans, polarity, record)
    if sentence != first.text:
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
