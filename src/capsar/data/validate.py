"""Check a data file: what it holds, what is wrong with it, and which sentences files share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from capsar.data.catalog import identify
from capsar.data.readers import Format, find_format, read_rows
from capsar.data.records import Notice
from capsar.data.splits import MatchKind, SentenceIndex
from capsar.data.tables import Columns
from capsar.errors import FormatError
from capsar.schema import Polarity
from capsar.tokenizer import cuts_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from capsar.schema import Example

MAX_SENTENCES = 1_000_000
"""Sentences kept in memory for finding duplicates and overlaps; later ones are only counted."""
MAX_CHARACTERS = 100_000_000
MAX_LISTED = 10_000
"""Records listed per kind of notice, and per pair of files that share sentences."""
_SENTENCE_FORMATS = (Format.XML, Format.BING_LIU, Format.PLAIN)
"""Formats in which a sentence is a record; in the others, a sentence is a distinct text."""
_NOT_DATA = (".md", ".xsd", ".toml", ".html", ".pdf", "")
_NOT_DATA_NAMES = ("manifest", "readme", "licen")


@dataclass(slots=True)
class NoticeCount:
    """How often a kind of notice occurred, and in which records."""

    count: int = 0
    records: list[str] = field(default_factory=list)
    """The first `MAX_LISTED`."""


@dataclass(slots=True)
class FileReport:
    """The content of one file, and its problems."""

    path: str
    format: str = ""
    dataset: str = ""
    """Name and part, if the content is that of a published file."""
    examples: int = 0
    sentences: int = 0
    sentences_without_aspect: int = 0
    labels: Counter[Polarity] = field(default_factory=Counter)
    """Annotations by polarity, those of bad records included."""
    expected_labels: dict[str, int] = field(default_factory=dict)
    """The labels that the catalog lists for a published file."""
    bad: list[FormatError] = field(default_factory=list)
    notices: dict[str, NoticeCount] = field(default_factory=dict)
    compared_all: bool = True
    """Whether all sentences were compared; false beyond `MAX_SENTENCES`."""

    def note(self, kind: str, record: str, times: int = 1) -> None:
        """Count a notice."""
        notice = self.notices.setdefault(kind, NoticeCount())
        notice.count += times
        if len(notice.records) < MAX_LISTED:
            notice.records.append(record)

    @property
    def labels_as_published(self) -> bool | None:
        """Whether the labels are those of the catalog; `None` if it does not list them."""
        if not self.expected_labels:
            return None
        return all(self.labels[Polarity(p)] == n for p, n in self.expected_labels.items())


@dataclass(slots=True)
class Overlap:
    """The distinct sentences of one file that are in another."""

    path: str
    other: str
    exact: int = 0
    near: int = 0
    records: list[tuple[str, str, MatchKind]] = field(default_factory=list)
    """Record in this file, record in the other, and kind of match."""


def data_files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or the data files below a folder in order."""
    if not path.is_dir():
        yield path
        return
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        is_other = file.name.lower().startswith(_NOT_DATA_NAMES)
        if file.suffix.lower() not in _NOT_DATA and not is_other:
            yield file


def check_file(
    path: Path, *, columns: Columns = Columns(), encoding: str = "utf-8"
) -> tuple[FileReport, dict[str, str]]:
    """Read a file to its end and report on it.

    Returns:
        The report and, for a labeled file, its distinct texts with the record of each (for
        `find_overlaps`).
    """
    report = FileReport(str(path))
    check = _FileCheck(report)
    try:
        report.format = find_format(path)
    except FormatError as error:
        report.bad.append(error)
        return report, {}
    published = identify(path) if path.is_file() else None
    if published:
        dataset, file = published
        report.dataset = f"{dataset.name} ({file.part})"
        report.expected_labels = dict(file.labels)
    for row in read_rows(path, format=Format(report.format), columns=columns, encoding=encoding):
        if isinstance(row, FormatError):
            report.bad.append(row)
            report.labels.update([Polarity(row.polarity)] if row.polarity else [])
        elif isinstance(row, Notice):
            report.note(row.kind, f"{row.record}: {row.detail}" if row.detail else row.record)
        else:
            check.add(row)
    report.sentences = len(check.has_aspect)
    report.sentences_without_aspect = sum(not has for has in check.has_aspect.values())
    return report, check.texts if report.labels else {}


def find_overlaps(sentences: Mapping[str, Mapping[str, str]]) -> list[Overlap]:
    """Return every pair of files that share a sentence, exactly or nearly.

    Args:
        sentences: For each file, its distinct texts with the record of each.
    """
    index = SentenceIndex()
    for path, texts in sentences.items():
        index.add(path, texts)
    records = {path: list(texts.values()) for path, texts in sentences.items()}
    order = {path: number for number, path in enumerate(sentences)}
    overlaps: dict[tuple[str, str], Overlap] = {}
    for path, texts in sentences.items():
        for text, record in texts.items():
            for other, match in index.find(text).items():
                if order[other] <= order[path]:
                    continue
                overlap = overlaps.setdefault((path, other), Overlap(path, other))
                overlap.exact += match.kind is MatchKind.EXACT
                overlap.near += match.kind is MatchKind.NEAR
                if len(overlap.records) < MAX_LISTED:
                    overlap.records.append((record, records[other][match.number], match.kind))
    return list(overlaps.values())


class _FileCheck:
    """Checks the examples of a file against those before them."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.texts: dict[str, str] = {}  # text -> the first record with it
        self.has_aspect: dict[int, bool] = {}  # sentence -> whether it has an aspect
        self._num_characters = 0
        self._annotations: dict[int, tuple[Polarity, str]] = {}  # aspect -> polarity and record

    def add(self, example: Example) -> None:
        """Count an example and note what is unusual about it."""
        report = self.report
        report.examples += 1
        if self._num_characters > MAX_CHARACTERS or len(self.has_aspect) >= MAX_SENTENCES:
            report.compared_all = False
        self._check_sentence(example)
        if example.polarity:
            report.labels[example.polarity] += 1
            self._check_annotation(example, example.polarity)
        for span in example.spans:
            if cuts_word(example.text, span.start) or cuts_word(example.text, span.end):
                report.note("span begins or ends inside a word", example.id)

    def _check_sentence(self, example: Example) -> None:
        text, report = example.text, self.report
        by_record = report.format in _SENTENCE_FORMATS
        sentence = hash((example.group, text) if by_record else text)
        if sentence in self.has_aspect:
            self.has_aspect[sentence] |= bool(example.spans)
            return
        if not report.compared_all:
            return
        self.has_aspect[sentence] = bool(example.spans)
        if text in self.texts:
            record = f"{example.id} repeats {self.texts[text]}"
            report.note("text of more than one sentence", record)
            return
        self.texts[text] = example.id
        self._num_characters += len(text)
        if text != text.strip():
            report.note("white space around the text", example.id)
        if "\xa0" in text:
            report.note("no-break spaces", example.id, text.count("\xa0"))

    def _check_annotation(self, example: Example, polarity: Polarity) -> None:
        if len(example.spans) == 1 and example.text.count(example.aspect or "") > 1:
            self.report.note("term occurs more than once in its sentence", example.id)
        # The category distinguishes annotations whose aspect is not in the text.
        aspect = hash((example.text, example.spans or example.category))
        with_category = hash((aspect, example.category))
        first = self._annotations.get(aspect)
        if first is None:
            if self.report.compared_all:
                self._annotations[aspect] = (polarity, example.id)
            return
        records = f"{example.id} and {first[1]}"
        if first[0] is not polarity:
            self.report.note("same aspect, different polarity", records)
        elif with_category in self._annotations or not example.category:
            self.report.note("duplicate annotation", records)
        self._annotations.setdefault(with_category, (polarity, example.id))
