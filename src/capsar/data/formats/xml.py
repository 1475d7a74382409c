"""SemEval-2014 and MAMS (`sentences/sentence/aspectTerms`), SemEval-2015/16 (`Reviews/…/Opinions`).

Parsed by `defusedxml`, element by element: no document type, no entity, no external reference is
accepted, and a sentence is forgotten as soon as it has been read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from capsar.data.example import Example
from capsar.data.rows import MAX_RECORD_BYTES, Notice, Row, parse_label, resolve_span
from capsar.errors import DataError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_RECORD_ELEMENTS = 10_000
IMPLICIT_TARGETS = ("NULL", "")


def read_xml(stream: BinaryIO, path: str) -> Iterator[Row]:
    """Yield the rows of a SemEval or MAMS file; which of them, each sentence tells by itself."""
    number = 0
    try:
        for number, sentence in enumerate(_sentences(_RecordLimit(stream)), start=1):
            yield from _read_sentence(sentence, path, number)
        if not number:
            yield FormatError(path, "the file", "no <sentence> element in it")
    except ParseError as error:
        line, column = error.position
        record = f"line {line}, column {column}, after sentence {number}"
        yield FormatError(path, record, f"not well-formed XML: {error}")
    except DefusedXmlException as error:
        reason = f"document types and entities are refused: {error}"
        yield FormatError(path, f"after sentence {number}", reason)
    except (ValueError, LookupError) as error:  # an encoding that is unknown or not supported
        yield FormatError(path, f"after sentence {number}", f"unreadable XML: {error}")


def _sentences(source: _RecordLimit) -> Iterator[Element]:
    """Yield the outermost `sentence` elements; all that is before them is forgotten."""
    parents: list[Element] = []
    depth_of_sentence = 0  # zero while outside a sentence
    for event, element in iterparse(source, ("start", "end"), forbid_dtd=True):
        if event == "start":
            parents.append(element)
            source.count_element()
            if element.tag == "sentence" and not depth_of_sentence:
                depth_of_sentence = len(parents)
            continue
        parents.pop()
        if depth_of_sentence and len(parents) >= depth_of_sentence:
            continue  # an element inside a sentence: read when the sentence ends
        if depth_of_sentence:
            depth_of_sentence = 0
            yield element
        if parents:
            parents[-1].clear()
        source.begin_record()


class _RecordLimit:
    """A stream that refuses to go on when one record has swallowed too much."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._bytes = 0
        self._elements = 0

    def begin_record(self) -> None:
        self._bytes = self._elements = 0

    def count_element(self) -> None:
        self._elements += 1
        if self._elements > MAX_RECORD_ELEMENTS:
            raise ValueError(f"a sentence has more than {MAX_RECORD_ELEMENTS} elements")

    def read(self, size: int = -1, /) -> bytes:
        self._bytes += size
        if self._bytes > MAX_RECORD_BYTES:
            raise ValueError(f"a sentence is longer than {MAX_RECORD_BYTES} bytes")
        return self._stream.read(size)


def _read_sentence(sentence: Element, path: str, number: int) -> Iterator[Row]:
    name = sentence.get("id")
    record = f"sentence {number}" + (f" (id {name!r})" if name else "")
    element = sentence.find("text")
    if element is None or len(element):
        reason = "the sentence needs one <text> without elements in it"
        yield FormatError(path, record, reason)
        return
    text = element.text or ""
    base = Example(text, id=record, group=name or record)
    judgements = [
        *sentence.findall("aspectTerms/aspectTerm"),
        *sentence.findall("Opinions/Opinion"),
    ]
    if not judgements:
        yield base
    for judgement in judgements:
        yield from _read_judgement(judgement, base, path)


def _read_judgement(judgement: Element, base: Example, path: str) -> Iterator[Row]:
    term = judgement.get("term", judgement.get("target"))
    place = f"{base.id}, {judgement.tag} {term!r}"
    label = judgement.get("polarity")
    if term is None or label is None:
        yield FormatError(path, place, "the judgement needs a term (or target) and a polarity")
        return
    polarity = parse_label(path, place, label)
    if isinstance(polarity, FormatError):
        yield polarity
        return
    category = judgement.get("category", "")
    if judgement.tag == "Opinion" and term in IMPLICIT_TARGETS:
        yield Example(base.text, (), polarity, place, base.group, category)
        yield Notice(place, "implicit target")
        return
    try:
        start, end = int(judgement.get("from", "")), int(judgement.get("to", ""))
    except ValueError:
        reason = "the attributes 'from' and 'to' must be whole numbers"
        yield FormatError(path, place, reason, polarity=polarity)
        return
    try:
        span, kind, detail = resolve_span(base.text, term, start, end)
    except DataError as error:
        yield FormatError(path, place, str(error), polarity=polarity)
        return
    yield Example(base.text, (span,), polarity, place, base.group, category)
    if kind:
        yield Notice(place, kind, detail)
