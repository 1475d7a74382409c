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
from capsar.text import cuts_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from capsar.data.example import Example
    from capsar.labels import Polarity

MAX_REMEMBERED = 2_000_000
"""Sentences remembered for finding duplicates and overlaps; beyond it memory would grow."""
NAMED_RECORDS = 3
"""How many records of each kind of notice are named."""
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
        if len(self.records) < NAMED_RECORDS:
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


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many different sentences of one file are found in another."""

    path: str
    other: str
    exact: int
    near: int


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
) -> tuple[FileReport, list[str]]:
    """Read a file to its end and report on it.

    Returns:
        The report, and the different texts of a labelled file (for `find_overlaps`).
    """
    report = FileReport(str(path))
    examination = _Examination(report)
    try:
        report.format = find_format(path)
    except FormatError as error:
        report.bad.append(error)
        return report, []
    if path.is_file():
        _compare_with_catalog(path, report)
    for row in read_rows(path, format=Format(report.format), columns=columns, encoding=encoding):
        if isinstance(row, FormatError):
            report.bad.append(row)
            report.labels.update([row.polarity] if row.polarity else [])
        elif isinstance(row, Notice):
            report.note(row.kind, f"{row.record}: {row.detail}" if row.detail else row.record)
        else:
            examination.examine(row)
    examination.finish()
    return report, list(examination.texts) if report.labels else []


def find_overlaps(texts_by_path: Mapping[str, Sequence[str]]) -> list[Overlap]:
    """Report every pair of files that share a sentence, exactly or nearly."""
    index = SentenceIndex()
    for path, texts in texts_by_path.items():
        index.add(path, texts)
    overlaps = []
    later = set(texts_by_path)
    for path, texts in texts_by_path.items():
        later.remove(path)
        found = Counter(item for text in texts for item in index.find(text).items())
        for other in sorted(later):
            exact, near = found[other, Sharing.EXACT], found[other, Sharing.NEAR]
            if exact or near:
                overlaps.append(Overlap(path, other, exact, near))
    return overlaps


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
        self.texts: set[str] = set()
        self._sentences: dict[str, bool] = {}  # sentence -> whether it names an aspect
        self._polarity: dict[int, Polarity] = {}  # text and spans -> the polarity seen first
        self._judgements: set[int] = set()

    def examine(self, example: Example) -> None:
        """Take in one example."""
        report = self.report
        report.examples += 1
        if example.polarity:
            report.labels[example.polarity] += 1
        self._examine_sentence(example)
        self._examine_judgement(example)
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
        sentence = example.group if by_name else example.text
        if sentence in self._sentences:
            self._sentences[sentence] |= bool(example.spans)
            return
        if len(self._sentences) >= MAX_REMEMBERED:
            self.report.remembered_all = False
            return
        self._sentences[sentence] = bool(example.spans)
        if example.text in self.texts:
            self.report.note("text of more than one sentence", example.id)
            return
        self.texts.add(example.text)
        if example.text != example.text.strip():
            self.report.note("white space around the text", example.id)
        if "\xa0" in example.text:
            self.report.note("no-break spaces", example.id, example.text.count("\xa0"))

    def _examine_judgement(self, example: Example) -> None:
        if not (example.spans and example.polarity) or not self.report.remembered_all:
            return
        first = example.spans[0]
        if (
            len(example.spans) == 1
            and example.text.count(example.text[first.start : first.end]) > 1
        ):
            self.report.note("term occurs more than once in its sentence", example.id)
        key = hash((example.text, example.spans))
        polarity = self._polarity.setdefault(key, example.polarity)
        if polarity is not example.polarity:
            self.report.note("same aspect, different polarity", example.id)
        judgement = hash((key, example.polarity, example.category))
        if judgement in self._judgements:
            self.report.note("same judgement again", example.id)
        self._judgements.add(judgement)
