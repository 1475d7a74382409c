"""Readers of the research formats: SemEval and MAMS XML, three-line, Bing Liu, ARTS, plain text."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from capsar.data.records import (
    MAX_RECORD_BYTES,
    Line,
    Notice,
    ReadItem,
    describe_decode_error,
    parse_label,
    read_lines,
    recover,
)
from capsar.errors import AspectNotFoundError, FormatError
from capsar.schema import AspectSpan, Example, Polarity, find_mentions, whole_words

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_RECORD_ELEMENTS = 10_000
MAX_JSON_BYTES = 64 * 2**20
"""An ARTS file is one JSON object and must be read whole; the largest published one has 1 MB."""
IMPLICIT_TARGETS = ("NULL", "")
TARGET = "$T$"
SEPARATOR = "##"
_BRACKETS = {"LRB": "(", "RRB": ")", "LSB": "[", "RSB": "]", "LCB": "{", "RCB": "}"}
_BRACKET = re.compile(r"(?<!\S)-([LR][RSC]B)-(?!\S)", re.IGNORECASE)
# A feature's name, then its marks; possessive, so that matching is linear in the line.
_FEATURE = re.compile(r"\s*+([^\[\],]*+)((?:\[[^\[\],]*+\]\s*+)++)[\s,]*+")
_STRENGTH = re.compile(r"\[\s*+([+-])\s*+\d*+\s*+\]")
_MARK = re.compile(r"\[[+-]\d\]")
_VARIANT_SUFFIX = re.compile(r"_(adv[123])['\"]?$")


def read_xml(stream: BinaryIO, path: str) -> Iterator[ReadItem]:
    """Yield the items of a SemEval-2014/15/16 or MAMS file, sentence by sentence.

    Annotations are `aspectTerms/aspectTerm` or `Opinions/Opinion`. `defusedxml` refuses document
    types, entities and external references.
    """
    number = 0
    try:
        for number, sentence in enumerate(_sentences(_RecordLimit(stream)), start=1):
            yield from recover(_read_xml_sentence(sentence, path, number))
    except ParseError as error:
        line, column = error.position
        record = f"line {line}, column {column}, after sentence {number}"
        raise FormatError(path, record, f"not well-formed XML: {error}") from error
    except DefusedXmlException as error:
        reason = f"document types and entities are refused: {error}"
        raise FormatError(path, f"after sentence {number}", reason) from error
    except (ValueError, LookupError) as error:  # an unknown or unsupported encoding
        raise FormatError(path, f"after sentence {number}", f"unreadable XML: {error}") from error
    if not number:
        raise FormatError(path, "the file", "no <sentence> element in it")


def _sentences(source: _RecordLimit) -> Iterator[Element]:
    """Yield the outermost `sentence` elements, and free everything that has been read."""
    parents: list[Element] = []
    depth_of_sentence = 0  # zero outside a sentence
    for event, element in iterparse(source, ("start", "end"), forbid_dtd=True):
        if event == "start":
            parents.append(element)
            source.count_element()
            if element.tag == "sentence" and not depth_of_sentence:
                depth_of_sentence = len(parents)
            continue
        parents.pop()
        if depth_of_sentence and len(parents) >= depth_of_sentence:
            continue  # inside a sentence: read when the sentence ends
        if depth_of_sentence:
            depth_of_sentence = 0
            yield element
        if parents:
            parents[-1].clear()
        source.begin_record()


class _RecordLimit:
    """A stream that raises an error when one record is too large."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.begin_record()

    def begin_record(self) -> None:
        """Reset the limits for a new record."""
        self._bytes = self._elements = 0

    def count_element(self) -> None:
        self._elements += 1
        if self._elements > MAX_RECORD_ELEMENTS:
            raise ValueError(f"a sentence has more than {MAX_RECORD_ELEMENTS} elements")

    def read(self, size: int = -1, /) -> bytes:
        """Return bytes of the stream, at most as many as one record may have."""
        self._bytes += size
        if self._bytes > MAX_RECORD_BYTES:
            raise ValueError(f"a sentence is longer than {MAX_RECORD_BYTES} bytes")
        return self._stream.read(size)


def _read_xml_sentence(sentence: Element, path: str, number: int) -> Iterator[ReadItem]:
    name = sentence.get("id")
    record = f"sentence {number}" + (f" (id {name!r})" if name else "")
    element = sentence.find("text")
    if element is None or len(element):
        raise FormatError(path, record, "the sentence needs one <text> without child elements")
    base = Example(element.text or "", id=record, group=name or record)
    annotations = [
        *sentence.findall("aspectTerms/aspectTerm"),
        *sentence.findall("Opinions/Opinion"),
    ]
    if not annotations:
        yield base
    for annotation in annotations:
        yield from recover(_read_annotation(annotation, base, path))


def _read_annotation(annotation: Element, base: Example, path: str) -> Iterator[ReadItem]:
    term = annotation.get("term", annotation.get("target"))
    record = f"{base.id}, {annotation.tag} {term!r}"
    label = annotation.get("polarity")
    if term is None or label is None:
        raise FormatError(path, record, "the annotation needs a term (or target) and a polarity")
    polarity = parse_label(path, record, label)
    category = annotation.get("category", "")
    if annotation.tag == "Opinion" and term in IMPLICIT_TARGETS:
        yield Example(base.text, (), polarity, record, base.group, category)
        yield Notice(record, "implicit target")
        return
    try:
        start, end = int(annotation.get("from", "")), int(annotation.get("to", ""))
    except ValueError:
        reason = "the attributes 'from' and 'to' must be whole numbers"
        raise FormatError(path, record, reason, polarity=polarity) from None
    example = Example(base.text, (), polarity, record, base.group, category)
    yield from _locate_term(example, term, start, end, path)


def _locate_term(
    example: Example, term: str, start: int, end: int, path: str
) -> Iterator[ReadItem]:
    """Yield the example with its span, and a notice if the file's offsets are not exactly right.

    Raises:
        FormatError: If the term is not at the offsets and does not occur exactly once elsewhere.
    """
    text = example.text
    is_inside = 0 <= start < end <= len(text)
    found = text[start:end] if is_inside else ""
    claim = f"{term!r} is not at {start}:{end}"
    notice = None
    if found.casefold() != term.casefold() or not is_inside:
        if not term or text.count(term) != 1:
            there = (
                f"where {found!r} is"
                if is_inside
                else f"outside the text of {len(text)} characters"
            )
            why = "more than once" if term and term in text else "nowhere else in the text"
            reason = f"{claim}, {there}, and occurs {why}"
            raise FormatError(path, example.id, reason, polarity=example.polarity)
        start = text.index(term)
        end = start + len(term)
        notice = Notice(example.id, "wrong offset, corrected", f"{claim} but at {start}:{end}")
    elif found != term:
        kind = "term differs in case from the text"
        notice = Notice(example.id, kind, f"{claim}: {found!r}")
    span = AspectSpan(start, end)
    yield Example(text, (span,), example.polarity, example.id, example.group, example.category)
    if notice:
        yield notice


def read_three_line(stream: BinaryIO, path: str, *, encoding: str = "utf-8") -> Iterator[ReadItem]:
    """Yield the items of a three-line file (Twitter's `.raw` and `.seg`, PyABSA's `.txt`).

    A record is the sentence with `$T$` for the target, the target, and the label. The sentence is
    tokenized; Treebank brackets (`-LRB-`) are restored before offsets are computed. After a missing
    or extra line, reading resumes at the next line with a `$T$`.
    """
    record: list[Line] = []
    for line in read_lines(stream, path, encoding=encoding):
        if TARGET in line.text and record:
            reason = f"line {line.number} starts the next record; expected target and label"
            yield FormatError(path, f"line {record[0].number}", reason)
            record = []
        if record or TARGET in line.text:
            record.append(line)
        elif line.error or line.text.strip():
            reason = f"expected a sentence with {TARGET}; records are sentence, target, label"
            yield line.error or FormatError(path, f"line {line.number}", reason)
        if len(record) == 3:  # noqa: PLR2004
            yield from recover(_read_three_lines(record, path))
            record = []
    if record:
        reason = "the file ends before the record's target and label"
        yield FormatError(path, f"line {record[0].number}", reason)


def _read_three_lines(lines: list[Line], path: str) -> Iterator[ReadItem]:
    for line in lines:
        if line.error:
            raise line.error
    first, target, label = (line.text for line in lines)
    record = f"line {lines[0].number}"
    polarity = parse_label(path, record, label)
    target = _restore_brackets(target.strip())
    sentence = _restore_brackets(first)
    if not target:
        raise FormatError(path, record, "the target is empty", polarity=polarity)
    parts = sentence.split(TARGET)
    if (len(parts) - 1) * len(target) > MAX_RECORD_BYTES:
        reason = f"with its target filled in, the sentence is longer than {MAX_RECORD_BYTES}"
        raise FormatError(path, record, reason, polarity=polarity)
    spans: list[AspectSpan] = []
    position = 0
    for part in parts[:-1]:
        start = position + len(part)
        position = start + len(target)
        spans.append(AspectSpan(start, position))
    yield Example(target.join(parts), tuple(spans), polarity, record)
    if sentence != first:
        yield Notice(record, "brackets written as -LRB- and the like, restored")
    if len(spans) > 1:
        yield Notice(record, f"more than one {TARGET}", f"{len(spans)} mentions")


def _restore_brackets(text: str) -> str:
    return _BRACKET.sub(lambda match: _BRACKETS[match[1].upper()], text)


def read_bing_liu(stream: BinaryIO, path: str, *, member: str = "") -> Iterator[ReadItem]:
    """Yield the items of one text file of Bing Liu's reviews: `feature[+3], other[-2]##sentence`.

    Files are latin-1; titles, comments and blank lines are skipped. A feature that is not in the
    sentence, marked `[u]` or `[p]` or not at all, has a polarity and no spans. Features are written
    as dictionary forms: one inside a word ("picture" in "pictures") is that word.
    """
    for line in read_lines(stream, path, encoding="latin-1"):
        record = _name_record(line, member)
        if line.error:
            yield line.error
        elif SEPARATOR in line.text:
            yield from _read_features(line.text, path, record)
        elif _MARK.search(line.text):
            reason = f"a feature with a polarity, but no {SEPARATOR} before a sentence"
            yield FormatError(path, record, reason)


def _name_record(line: Line, member: str) -> str:
    return f"{member}, line {line.number}" if member else f"line {line.number}"


def _read_features(line: str, path: str, record: str) -> Iterator[ReadItem]:
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
            yield from recover(_read_feature(match[1].strip(), match[2], base, path))
            continue
        rest = head[position:].partition(",")[0]
        position += len(rest) + 1
        if rest.strip():
            reason = f"expected feature[+n] or feature[-n] before {SEPARATOR}, got {rest[:40]!r}"
            yield FormatError(path, record, reason)


def _read_feature(feature: str, marks: str, base: Example, path: str) -> Iterator[ReadItem]:
    strength = _STRENGTH.search(marks)
    if strength is None or not feature:
        reason = f"expected feature[+n] or feature[-n], got {(feature + marks)[:40]!r}"
        raise FormatError(path, base.id, reason)
    polarity = Polarity.POSITIVE if strength[1] == "+" else Polarity.NEGATIVE
    record = f"{base.id}, feature {feature!r}"
    try:
        spans = find_mentions(base.text, feature)
    except AspectNotFoundError:
        yield Example(base.text, (), polarity, record, base.group)
        yield Notice(record, "feature not in the sentence")
        return
    whole = tuple(whole_words(base.text, span) for span in spans)
    yield Example(base.text, whole, polarity, record, base.group)


class Variant(StrEnum):
    """How ARTS rewrote a sentence."""

    ORIGINAL = "original"
    TARGET_REVERSED = "adv1"
    OTHERS_REVERSED = "adv2"
    OPPOSITE_ADDED = "adv3"


def variant_of(record: str) -> Variant:
    """Return the variant of an ARTS record, which is the suffix of its key.

    >>> variant_of("key '0:14_0_adv2'")
    <Variant.OTHERS_REVERSED: 'adv2'>
    """
    found = _VARIANT_SUFFIX.search(record)
    return Variant(found[1]) if found else Variant.ORIGINAL


def read_arts(stream: BinaryIO, path: str) -> Iterator[ReadItem]:
    """Yield the items of an ARTS file: `key -> {sentence, term, polarity, id, from, to}`.

    `Example.group` is the field `id`, which all variants of a sentence and term share.
    """
    content = stream.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise FormatError(path, "the file", f"a JSON file of more than {MAX_JSON_BYTES} bytes")
    try:
        records = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(path, "the file", describe_decode_error(error)) from error
    except json.JSONDecodeError as error:
        hint = "; rename it to .jsonl if each line is a record" if error.msg == "Extra data" else ""
        record = f"line {error.lineno}, column {error.colno}"
        raise FormatError(path, record, f"not JSON: {error.msg}{hint}") from error
    except (RecursionError, ValueError) as error:  # nested too deep, or a number too long
        raise FormatError(path, "the file", f"not readable as JSON: {error}") from error
    if not isinstance(records, dict):
        reason = f"expected one object of records by key, got {type(records).__name__}"
        raise FormatError(path, "the file", reason)
    for key, fields in records.items():
        yield from recover(_read_arts_record(f"key {key!r}", fields, path))


def _read_arts_record(record: str, fields: object, path: str) -> Iterator[ReadItem]:
    match fields:
        case {
            "sentence": str(text),
            "term": str(term),
            "polarity": str(label),
            "from": int(start),
            "to": int(end),
            **rest,
        }:
            polarity = parse_label(path, record, label)
            example = Example(text, (), polarity, record, str(rest.get("id", "")))
            yield from _locate_term(example, term, start, end, path)
        case _:
            reason = "expected an object with sentence, term, polarity, from, to"
            raise FormatError(path, record, reason)


def read_plain(
    stream: BinaryIO, path: str, *, member: str = "", encoding: str = "utf-8"
) -> Iterator[ReadItem]:
    """Yield every line of a file as an example without a label."""
    for line in read_lines(stream, path, encoding=encoding):
        record = _name_record(line, member)
        yield line.error or Example(line.text, id=record, group=record)
