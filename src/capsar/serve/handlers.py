"""Tasks of the API, and their execution with an `Analyzer`: tasks -> JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from json import dumps
from typing import TYPE_CHECKING

from capsar.errors import DataError
from capsar.inference.inputs import locate
from capsar.schema import SCHEMA_VERSION, AspectSpan, document
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from capsar.inference.analyzer import Analyzer
    from capsar.schema import AspectSentiment, Polarity

CHARS_PER_TEXT = 32
"""Fixed cost of a text, in characters."""
_MAX_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Analyze:
    """Extract the aspects of a text and their sentiment."""

    text: str

    @property
    def chars(self) -> int:
        """The cost of the task, in characters."""
        return CHARS_PER_TEXT + len(self.text)


@dataclass(frozen=True, slots=True)
class Classify:
    """Predict the sentiment toward given aspects of a text."""

    text: str
    aspects: tuple[str | AspectSpan, ...]
    path: str = ""
    """Path of the item in its request, such as `requests[3].`."""

    @property
    def chars(self) -> int:
        """The cost of the task, in characters; some encoders read the text once per aspect."""
        return CHARS_PER_TEXT + len(self.text) * max(1, len(self.aspects))


@dataclass(frozen=True, slots=True)
class Explain:
    """Compute the aspect scores and attributions of a text."""

    text: str
    aspect: str | AspectSpan | None

    @property
    def chars(self) -> int:
        """The cost of the task, in characters; includes writing the many scores."""
        return CHARS_PER_TEXT + 2 * len(self.text)


Task = Analyze | Classify | Explain


def run_tasks(analyzer: Analyzer, tasks: Sequence[Task]) -> list[bytes]:
    """Run tasks as one batch; return a JSON document for each, as `capsar analyze --json` prints.

    Raises:
        CapsarError: If one of the tasks fails; then there is no result for any of them.
    """
    results: list[bytes] = [b""] * len(tasks)
    for indices, found in (_analyze(analyzer, tasks), _classify(analyzer, tasks)):
        for index, content in zip(indices, found, strict=True):
            results[index] = content
    for index, task in enumerate(tasks):
        if isinstance(task, Explain):
            results[index] = _explain(analyzer, task)
    return results


def _analyze(analyzer: Analyzer, tasks: Sequence[Task]) -> tuple[list[int], Iterator[bytes]]:
    chosen = {index: task.text for index, task in enumerate(tasks) if isinstance(task, Analyze)}
    texts = list(chosen.values())
    found = analyzer.analyze(texts) if texts else []
    return list(chosen), _documents(texts, found)


def _classify(analyzer: Analyzer, tasks: Sequence[Task]) -> tuple[list[int], Iterator[bytes]]:
    chosen = {index: task for index, task in enumerate(tasks) if isinstance(task, Classify)}
    texts = [task.text for task in chosen.values()]
    try:
        found = analyzer.classify(texts, [t.aspects for t in chosen.values()]) if texts else []
    except DataError as error:
        errors = list(islice(_aspect_errors(chosen.values()), _MAX_ERRORS))
        raise DataError("; ".join(errors) or str(error)) from None
    return list(chosen), _documents(texts, found)


def _aspect_errors(tasks: Iterable[Classify]) -> Iterator[str]:
    """Yield an error with the path in the request for each aspect that is not in its text."""
    for task in tasks:
        for number, aspect in enumerate(task.aspects):
            try:
                locate(task.text, aspect)
            except DataError as error:
                yield f"{task.path}aspects[{number}]: {error}"


def _documents(texts: Sequence[str], found: Sequence[list[AspectSentiment]]) -> Iterator[bytes]:
    for text, aspects in zip(texts, found, strict=True):
        yield _json(document(text, aspects, split_sentences(text)))


def _explain(analyzer: Analyzer, task: Explain) -> bytes:
    aspect = task.aspect
    try:
        explanation = analyzer.explain(task.text, aspect)
    except DataError as error:
        raise DataError(f"aspect: {error}") from None

    def rounded(scores: Mapping[Polarity, Sequence[float]]) -> dict[str, list[float]]:
        return {str(name): [round(score, 4) for score in row] for name, row in scores.items()}

    content = {
        "schema_version": SCHEMA_VERSION,
        "text": explanation.text,
        "aspect": asdict(aspect) if isinstance(aspect, AspectSpan) else aspect,
        "words": [[start, end] for start, end in explanation.words],
        "lengths": {str(name): round(score, 6) for name, score in explanation.lengths.items()},
        "aspect_scores": rounded(explanation.aspect_scores),
        "attributions": rounded(explanation.attributions),
    }
    return _json(content)


def _json(content: object) -> bytes:
    return dumps(content).encode("ascii")


def join_documents(documents: Sequence[bytes]) -> bytes:
    """Return the response to a request of several texts.

    >>> join_documents([b'{"text": "a"}', b'{"text": "b"}']).decode()
    '{"schema_version": 1, "documents": [{"text": "a"}, {"text": "b"}]}'
    """
    return b'{"schema_version": %d, "documents": [%s]}' % (SCHEMA_VERSION, b", ".join(documents))
