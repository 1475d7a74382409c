"""The doctor: what a data file holds, what is wrong with it, and what it shares with others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from capsar.data.catalog import identify
from capsar.data.formats.tables import Columns
from capsar.data.overlap import SentenceIndex, Sharing
from capsar.data.readers import Format, find_format, read_rows
from capsar.data.rows import Notice
from capsar.errors import FormatError
from capsar.labels import Polarity
from capsar.text import cuts_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from capsar.data.example import Example

MAX_REMEMBERED = 1_000_000
"""Sentences remembered for finding duplicates and overlaps; beyond it memory would grow."""
MAX_REMEMBERED_CHARACTERS = 100_000_000
MAX_NAMED = 10_000
"""Records named for each kind of notice, and for each pair of files that share sentences."""
_NAMED_SENTENCES = (Format.XML, Format.BING_LIU, Format.PLAIN)
"""Formats in which a sentence is a record; elsewhere it is a text, seen once or often."""
_NOT_DATA = (".md", ".xsd", ".toml", ".html", ".pdf", "")
_NOT_DATA_NAMES = ("manifest", "readme", "license", "licence")


@dataclass(slots=True)
class Tally:
    """How often something was seen, and where first."""

    count: int = 0
    records: list[str] = field(default_factory=list)

    def add(self, record: str, times: int = 1) -> None:
        """Count one more, or several at one place."""
        self.count += times
        if len(self.records) < MAX_NAMED:
            self.records.append(record)


@dataclass(slots=True)
class FileReport:
    """What one file holds, and what is wrong with it."""

    path: str
    format: str = ""
    dataset: str = ""
    """Name and part, where the content is that of a published file."""
    examples: int = 0
    sentences: int = 0
    sentences_without_aspect: int = 0
    labels: Counter[Polarity] = field(default_factory=Counter)
    """Judgements by polarity, as written: those of bad records included."""
    expected_labels: dict[str, int] = field(default_factory=dict)
    """What the catalog says of a published file."""
    bad: list[FormatError] = field(default_factory=list)
    notices: dict[str, Tally] = field(default_factory=dict)
    remembered_all: bool = True

    def note(self, kind: str, record: str, times: int = 1) -> None:
        """Count a notice of some kind."""
        self.notices.setdefault(kind, Tally()).add(record, times)

    @property
    def labels_as_published(self) -> bool | None:
        """Whether the labels counted are those of the catalog, where it knows them."""
        if not self.expected_labels:
            return None
        return all(self.labels[p] == n for p, n in self.expected_labels.items())  # type: ignore[index]


@dataclass(slots=True)
class Overlap:
    """The different sentences of one file that are found in another."""

    path: str
    other: str
    exact: int = 0
    near: int = 0
    records: list[tuple[str, str, Sharing]] = field(default_factory=list)
    """The records that share a sentence: in the one file, in the other, and how."""

    def add(self, sharing: Sharing, record: str, other_record: str) -> None:
        """Count one more sentence."""
        self.exact += sharing is Sharing.EXACT
        self.near += sharing is Sharing.NEAR
        if len(self.records) < MAX_NAMED:
            self.records.append((record, other_record, sharing))


def is_data_file(path: Path) -> bool:
    """Tell files of data from what lies beside them: licences, manifests, schemas."""
    name = path.name.lower()
    return path.suffix.lower() not in _NOT_DATA and not name.startswith(_NOT_DATA_NAMES)


def data_files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or the data files below a folder, in order."""
    if path.is_dir():
        yield from sorted(p for p in path.rglob("*") if p.is_file() and is_data_file(p))
    else:
        yield path


def check_file(
    path: Path, *, columns: Columns = Columns(), encoding: str = "utf-8"
) -> tuple[FileReport, dict[str, str]]:
    """Read a file to its end and report on it.

    Returns:
        The report, and for a labelled file its different texts and the record each stands in (for
        `find_overlaps`).
    """
    report = FileReport(str(path))
    examination = _Examination(report)
    try:
        report.format = find_format(path)
    except FormatError as error:
        report.bad.append(error)
        return report, {}
    if path.is_file():
        _compare_with_catalog(path, report)
    for row in read_rows(path, format=Format(report.format), columns=columns, encoding=encoding):
        if isinstance(row, FormatError):
            report.bad.append(row)
            report.labels.update([Polarity(row.polarity)] if row.polarity else [])
        elif isinstance(row, Notice):
            report.note(row.kind, f"{row.record}: {row.detail}" if row.detail else row.record)
        else:
            examination.examine(row)
    examination.finish()
    return report, examination.texts if report.labels else {}


def find_overlaps(sentences: Mapping[str, Mapping[str, str]]) -> list[Overlap]:
    """Report every pair of files that share a sentence, exactly or nearly.

    Args:
        sentences: For each file, its different texts and the record each stands in.
    """
    index = SentenceIndex()
    for path, texts in sentences.items():
        index.add(path, texts)
    places = {path: list(texts.values()) for path, texts in sentences.items()}
    overlaps: dict[tuple[str, str], Overlap] = {}
    order = {path: number for number, path in enumerate(sentences)}
    for path, texts in sentences.items():
        for text, record in texts.items():
            for other, match in index.find(text).items():
                if order[other] <= order[path]:
                    continue
                overlap = overlaps.setdefault((path, other), Overlap(path, other))
                overlap.add(match.sharing, record, places[other][match.number])
    return list(overlaps.values())


def _compare_with_catalog(path: Path, report: FileReport) -> None:
    known = identify(path)
    if known:
        dataset, file = known
        report.dataset = f"{dataset.name} ({file.part})"
        report.expected_labels = dict(file.labels)


class _Examination:
    """What must be remembered while a file is read."""

    def __init__(self, report: FileReport) -> None:
        self.report = report
        self.texts: dict[str, str] = {}  # text -> the record it stands in first
        self._characters = 0
        self._sentences: dict[int, bool] = {}  # sentence -> whether it names an aspect
        self._judgements: dict[int, tuple[Polarity, str]] = {}  # what is judged -> how, and where

    def examine(self, example: Example) -> None:
        """Take in one example."""
        report = self.report
        report.examples += 1
        if example.polarity:
            report.labels[example.polarity] += 1
        if self._characters > MAX_REMEMBERED_CHARACTERS or len(self._sentences) >= MAX_REMEMBERED:
            report.remembered_all = False
        self._examine_sentence(example)
        if example.polarity:
            self._examine_judgement(example, example.polarity)
        for span in example.spans:
            if cuts_word(example.text, span.start) or cuts_word(example.text, span.end):
                report.note("span begins or ends inside a word", example.id)

    def finish(self) -> None:
        """Count what can only be counted at the end."""
        self.report.sentences = len(self._sentences)
        without = sum(1 for named in self._sentences.values() if not named)
        self.report.sentences_without_aspect = without

    def _examine_sentence(self, example: Example) -> None:
        by_name = self.report.format in _NAMED_SENTENCES
        sentence = hash((example.group, example.text) if by_name else example.text)
        if sentence in self._sentences:
            self._sentences[sentence] |= bool(example.spans)
            return
        if not self.report.remembered_all:
            return
        self._sentences[sentence] = bool(example.spans)
        if example.text in self.texts:
            where = f"{example.id} repeats {self.texts[example.text]}"
            self.report.note("text of more than one sentence", where)
            return
        self.texts[example.text] = example.id
        self._characters += len(example.text)
        if example.text != example.text.strip():
            self.report.note("white space around the text", example.id)
        if "\xa0" in example.text:
            self.report.note("no-break spaces", example.id, example.text.count("\xa0"))

    def _examine_judgement(self, example: Example, polarity: Polarity) -> None:
        if len(example.spans) == 1:
            (span,) = example.spans
            if example.text.count(example.text[span.start : span.end]) > 1:
                self.report.note("term occurs more than once in its sentence", example.id)
        # Where the aspect is not in the text, its category tells one judgement from another.
        judged = hash((example.text, example.spans or example.category))
        first = self._judgements.get(judged)
        if first is None:
            if self.report.remembered_all:
                self._judgements[judged] = (polarity, example.id)
            return
        where = f"{example.id} and {first[1]}"
        if first[0] is not polarity:
            self.report.note("same aspect, different polarity", where)
        elif hash((judged, example.category)) in self._judgements or not example.category:
            self.report.note("same judgement again", where)
        self._judgements.setdefault(hash((judged, example.category)), (polarity, example.id))
