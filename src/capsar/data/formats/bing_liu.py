"""Bing Liu's reviews: `feature[+3], other[-2]##sentence`, in a text file or a zip of them.

A mark `[u]` or `[p]` says that the feature is not in the sentence, and often it is not even without
one: such a judgement has a polarity and no spans. The files are latin-1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import Example, find_spans
from capsar.data.rows import Line, Notice, Row, read_lines
from capsar.errors import AspectNotFoundError, FormatError
from capsar.labels import Polarity

if TYPE_CHECKING:
    from collections.abc import Iterator

SEPARATOR = "##"
# The name of a feature, then its marks; the files hold slips such as a missing bracket or sign.
_FEATURE = re.compile(r"([^\[\],]*)((?:\[[^\[\],]*\]\s*)+)")
_STRENGTH = re.compile(r"\[\s*([+-])\s*\d*\s*\]")


def read_bing_liu(stream: BinaryIO, path: str, *, member: str = "") -> Iterator[Row]:
    """Yield the rows of one text file; titles, comments and blank lines are passed over."""
    for line in read_lines(stream, path, encoding="latin-1"):
        if isinstance(line, FormatError):
            yield line
        elif SEPARATOR in line.text:
            yield from _read_sentence(line, path, member)


def _read_sentence(line: Line, path: str, member: str) -> Iterator[Row]:
    place = f"line {line.number}"
    record = f"{member}, {place}" if member else place
    head, _, text = line.text.partition(SEPARATOR)
    base = Example(text, id=record, group=record)
    features = _FEATURE.findall(head)
    if not features:
        if head.strip():
            reason = f"expected feature[+n] or feature[-n] before {SEPARATOR}, got {head[:40]!r}"
            yield FormatError(path, record, reason)
        else:
            yield base
        return
    for feature, marks in features:
        yield from _read_feature(feature.strip(), marks, base, path)


def _read_feature(feature: str, marks: str, base: Example, path: str) -> Iterator[Row]:
    strength = _STRENGTH.search(marks)
    if strength is None or not feature:
        reason = f"expected feature[+n] or feature[-n], got {(feature + marks)[:40]!r}"
        yield FormatError(path, base.id, reason)
        return
    polarity = Polarity.POSITIVE if strength[1] == "+" else Polarity.NEGATIVE
    place = f"{base.id}, feature {feature!r}"
    try:
        spans = find_spans(base.text, feature)
    except AspectNotFoundError:
        yield Example(base.text, (), polarity, place, base.group)
        yield Notice(place, "feature not in the sentence")
        return
    yield Example(base.text, spans, polarity, place, base.group)
