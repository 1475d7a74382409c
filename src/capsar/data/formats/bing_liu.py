"""Bing Liu's reviews: `feature[+3], other[-2]##sentence`, in a text file or a zip of them.

A mark `[u]` or `[p]` says that the feature is not in the sentence, and often it is not even without
one: such a judgement has a polarity and no spans. Features are named as in a dictionary: one that
stands inside a word ("picture" in "pictures") is that word. The files are latin-1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

from capsar.data.example import Example, find_spans, whole_words
from capsar.data.rows import Notice, Row, read_lines
from capsar.errors import AspectNotFoundError, FormatError
from capsar.labels import Polarity

if TYPE_CHECKING:
    from collections.abc import Iterator

SEPARATOR = "##"
# The name of a feature, then its marks; possessive, so that the time is linear in the line.
_FEATURE = re.compile(r"\s*+([^\[\],]*+)((?:\[[^\[\],]*+\]\s*+)++)[\s,]*+")
_STRENGTH = re.compile(r"\[\s*+([+-])\s*+\d*+\s*+\]")
_MARKED = re.compile(r"\[[+-]\d\]")


def read_bing_liu(stream: BinaryIO, path: str, *, member: str = "") -> Iterator[Row]:
    """Yield the rows of one text file; titles, comments and blank lines are passed over."""
    for line in read_lines(stream, path, encoding="latin-1"):
        place = f"line {line.number}"
        record = f"{member}, {place}" if member else place
        if line.error:
            yield line.error
        elif SEPARATOR in line.text:
            yield from _read_sentence(line.text, path, record)
        elif _MARKED.search(line.text):
            yield FormatError(
                path, record, f"a judged feature, but no {SEPARATOR} before a sentence"
            )


def _read_sentence(line: str, path: str, record: str) -> Iterator[Row]:
    head, _, text = line.partition(SEPARATOR)
    base = Example(text, id=record, group=record)
    if not head.strip():
        yield base
        return
    position = 0
    while position < len(head):
        match = _FEATURE.match(head, position)
        if match:
            position = match.end()
            yield from _read_feature(match[1].strip(), match[2], base, path)
            continue
        rest = head[position:].partition(",")[0]
        position += len(rest) + 1
        if rest.strip():
            reason = f"expected feature[+n] or feature[-n] before {SEPARATOR}, got {rest[:40]!r}"
            yield FormatError(path, record, reason)


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
    whole = tuple(whole_words(base.text, span) for span in spans)
    yield Example(base.text, whole, polarity, place, base.group)
