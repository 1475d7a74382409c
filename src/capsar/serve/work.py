"""What can be asked, how much work it is, and how an `Analyzer` answers it: tasks -> JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING

from capsar.data.example import AspectSpan
from capsar.errors import DataError
from capsar.question import locate
from capsar.schema import SCHEMA_VERSION, document
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from capsar.analyze import Analyzer
    from capsar.schema import AspectSentiment

Aspect = str | AspectSpan
CHARS_OF_A_TEXT = 32
"""What a text costs however short it is, as characters."""
_FAULTS_TOLD = 5


@dataclass(frozen=True, slots=True)
class Analyze:
    """What is felt, and about what?"""

    text: str

    @property
    def chars(self) -> int:
        """The work, in characters."""
        return CHARS_OF_A_TEXT + len(self.text)


@dataclass(frozen=True, slots=True)
class Classify:
    """What is felt about these aspects?"""

    text: str
    aspects: tuple[Aspect, ...]
    place: str = ""
    """Of the question in its request, as `questions[3].`."""

    @property
    def chars(self) -> int:
        """The work, in characters: some encoders read the text anew for each aspect."""
        return CHARS_OF_A_TEXT + len(self.text) * max(1, len(self.aspects))


@dataclass(frozen=True, slots=True)
class Explain:
    """What is each sentiment about, and because of which words?"""

    text: str
    aspect: Aspect | None

    @property
    def chars(self) -> int:
        """The work, in characters; the many figures of the answer are part of it."""
        return CHARS_OF_A_TEXT + 2 * len(self.text)


Task = Analyze | Classify | Explain


def answer(analyzer: Analyzer, tasks: Sequence[Task]) -> list[bytes]:
    """Answer tasks together, each with its own JSON, which `capsar analyze --json` prints too.

    Raises:
        CapsarError: If one of them cannot be answered; then none is.
    """
    answers: list[bytes] = [b""] * len(tasks)
    for places, found in (_analyzed(analyzer, tasks), _classified(analyzer, tasks)):
        for place, content in zip(places, found, strict=True):
            answers[place] = content
    for place, task in enumerate(tasks):
        if isinstance(task, Explain):
            answers[place] = _explained(analyzer, task)
    return answers


def _analyzed(analyzer: Analyzer, tasks: Sequence[Task]) -> tuple[list[int], Iterator[bytes]]:
    asked = {place: task.text for place, task in enumerate(tasks) if isinstance(task, Analyze)}
    texts = list(asked.values())
    found = analyzer.analyze(texts) if texts else []
    return list(asked), _documents(texts, found)


def _classified(analyzer: Analyzer, tasks: Sequence[Task]) -> tuple[list[int], Iterator[bytes]]:
    asked = {place: task for place, task in enumerate(tasks) if isinstance(task, Classify)}
    texts = [task.text for task in asked.values()]
    try:
        found = analyzer.classify(texts, [t.aspects for t in asked.values()]) if texts else []
    except DataError as error:
        told = list(islice(_faults(asked.values()), _FAULTS_TOLD))
        raise DataError("; ".join(told) or str(error)) from None
    return list(asked), _documents(texts, found)


def _faults(tasks: Iterable[Classify]) -> Iterator[str]:
    """Say of each aspect that is not in its text where the request has it."""
    for task in tasks:
        for number, aspect in enumerate(task.aspects):
            try:
                locate(task.text, aspect)
            except DataError as error:
                yield f"{task.place}aspects[{number}]: {error}"


def _documents(texts: Sequence[str], found: Sequence[list[AspectSentiment]]) -> Iterator[bytes]:
    for text, aspects in zip(texts, found, strict=True):
        yield _json(document(text, aspects, split_sentences(text)))


def _explained(analyzer: Analyzer, task: Explain) -> bytes:
    aspect = task.aspect
    try:
        explanation = analyzer.explain(task.text, aspect)
    except DataError as error:
        raise DataError(f"aspect: {error}") from None

    def rounded(scores: Sequence[float]) -> list[float]:
        return [round(score, 4) for score in scores]

    content = {
        "schema_version": SCHEMA_VERSION,
        "text": explanation.text,
        "aspect": asdict(aspect) if isinstance(aspect, AspectSpan) else aspect,
        "words": [[start, end] for start, end in explanation.words],
        "lengths": {str(name): round(score, 6) for name, score in explanation.lengths.items()},
        "about": {str(name): rounded(scores) for name, scores in explanation.about.items()},
        "because": {str(name): rounded(scores) for name, scores in explanation.because.items()},
    }
    return _json(content)


def _json(content: object) -> bytes:
    return dumps(content).encode("ascii")


def join_documents(documents: Sequence[bytes]) -> bytes:
    """Return the answer to a request of several texts.

    >>> join_documents([b'{"text": "a"}', b'{"text": "b"}']).decode()
    '{"schema_version": 1, "documents": [{"text": "a"}, {"text": "b"}]}'
    """
    return b'{"schema_version": %d, "documents": [%s]}' % (SCHEMA_VERSION, b", ".join(documents))
