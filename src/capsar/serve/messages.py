"""The bodies of requests and answers: read strictly, and described for OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from capsar.data.example import AspectSpan
from capsar.errors import DataError
from capsar.serve.work import CHARS_OF_A_TEXT, Analyze, Classify, Explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.serve.settings import Limits
    from capsar.serve.work import Aspect, Task

_ERRORS_TOLD = 5
_ONE, _MANY = "<one>", "<many>"
"""Which form of a body or an aspect is meant: pydantic tells it among the places of an error."""
_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is not expected here",
    "string_type": "must be a string",
    "model_type": "must be an object",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "too_short": "must not be empty",
}
"""What is said of an error's type, where pydantic speaks of Python."""
_SENTIMENT = Literal["negative", "neutral", "positive"]
_Asked = TypeVar("_Asked")
WORK = (
    f"A text counts as its characters and {CHARS_OF_A_TEXT} more; `classify` counts the characters "
    "once for each aspect, `explain` twice."
)
"""What is counted as work, for those who ask."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Span(_Request):
    """One place in the text: half-open offsets in characters."""

    start: Annotated[int, Field(ge=0, le=2**31)]
    end: Annotated[int, Field(ge=1, le=2**31)]


def _aspect_kind(content: Any) -> str | None:  # noqa: ANN401  (whatever JSON can hold)
    return _ONE if isinstance(content, str) else _MANY if isinstance(content, dict) else None


GivenAspect = Annotated[
    Annotated[str, Tag(_ONE)] | Annotated[Span, Tag(_MANY)],
    Discriminator(
        _aspect_kind,
        custom_error_type="aspect_type",
        custom_error_message="must be a string, or an object with start and end",
    ),
]


class AnalyzeText(_Request):
    """One text."""

    text: str


class AnalyzeTexts(_Request):
    """Several texts."""

    texts: Annotated[list[str], Field(min_length=1)]


class Question(_Request):
    """A text and the aspects asked about, as their exact characters or as places in it."""

    text: str
    aspects: Annotated[list[GivenAspect], Field(min_length=1)]


class Questions(_Request):
    """Several questions."""

    questions: Annotated[list[Question], Field(min_length=1)]


class ExplainText(_Request):
    """A text, and the aspect to explain, if any."""

    text: str
    aspect: GivenAspect | None = None


class AspectAnswer(_Answer):
    """What is felt about one aspect."""

    text: str
    """The aspect as it stands in the text, from `start` to `end`."""
    start: int
    end: int
    polarity: _SENTIMENT
    scores: dict[_SENTIMENT, float]
    """The length of each sentiment capsule, from 0 to 1. Not a probability."""
    confidence: float | None
    """The probability that the polarity is right, of models that can tell."""
    aspect_confidence: float | None
    """The probability that this is an aspect, with just these ends; null if it was given."""
    abstained: bool
    """Always false here: `capsar analyze --min-confidence` asks for it."""
    windowed: bool = False
    """Whether the aspect's sentence was overlong and read in windows; told only where it is so."""


class Document(_Answer):
    """A text and its aspects, as `capsar analyze --json` prints them."""

    schema_version: int
    text: str
    sentences: list[tuple[int, int]]
    """Where each sentence starts and ends."""
    aspects: list[AspectAnswer]


class Documents(_Answer):
    """The documents of several texts, in their order."""

    schema_version: int
    documents: list[Document]


class ExplanationAnswer(_Answer):
    """What the capsules hold of a text, word by word."""

    schema_version: int
    text: str
    aspect: str | Span | None
    words: list[tuple[int, int]]
    """Where each word that was read starts and ends."""
    lengths: dict[_SENTIMENT, float]
    about: dict[_SENTIMENT, list[float]]
    """How much each sentiment is about each word: a cosine."""
    because: dict[_SENTIMENT, list[float]]
    """Each word's share in the sentiment; the shares sum to its length."""


class ModelAnswer(_Answer):
    """A model that is served."""

    name: str
    sha256: str
    """Of its manifest, which holds that of each of its files: which model it is, exactly."""
    classes: list[_SENTIMENT]
    capsar_version: str
    trained_on: str
    licence: str


class RequestLimits(_Answer):
    """What a request may hold."""

    queue_chars: Annotated[int, Field(description=f"Characters of work. {WORK}")]
    text_chars: int
    """Characters of one text."""
    texts: int
    """Texts, or questions, of one request."""
    aspects: int
    """Aspects asked about in one text."""
    body_bytes: int
    """Bytes of the body."""


class Models(_Answer):
    """What is served, and what a request may hold."""

    schema_version: int
    models: list[ModelAnswer]
    limits: RequestLimits


class Problem(_Answer):
    """Why there is no answer."""

    error: str
    """A name for programs."""
    message: str
    """What was expected, what came, what to do."""


def _kind(one: str, many: str) -> Discriminator:
    def kind(content: Any) -> str | None:  # noqa: ANN401  (whatever JSON can hold)
        if not isinstance(content, dict):
            return None
        return _MANY if many in content else _ONE

    return Discriminator(
        kind,
        custom_error_type="body_type",
        custom_error_message=f"must be an object with {one} or with {many}",
    )


ANALYZE: TypeAdapter[AnalyzeText | AnalyzeTexts] = TypeAdapter(
    Annotated[
        Annotated[AnalyzeText, Tag(_ONE)] | Annotated[AnalyzeTexts, Tag(_MANY)],
        _kind("text", "texts"),
    ]
)
CLASSIFY: TypeAdapter[Question | Questions] = TypeAdapter(
    Annotated[
        Annotated[Question, Tag(_ONE)] | Annotated[Questions, Tag(_MANY)],
        _kind("text and aspects", "questions"),
    ]
)
EXPLAIN: TypeAdapter[ExplainText] = TypeAdapter(ExplainText)


def read_analyze(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Return what a body asks for, and whether it asks for several texts.

    Raises:
        DataError: If it cannot be read, or holds more than the limits allow.
    """
    asked = _read(ANALYZE, body)
    if isinstance(asked, AnalyzeText):
        return _checked([Analyze(asked.text)], ["text"], limits), False
    names = [f"texts[{number}]" for number in range(len(asked.texts))]
    return _checked([Analyze(text) for text in asked.texts], names, limits), True


def read_classify(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Do as `read_analyze`, for questions about given aspects."""
    asked = _read(CLASSIFY, body)
    if isinstance(asked, Question):
        return _checked([_classify(asked, "", limits)], ["text"], limits), False
    places = [f"questions[{number}]." for number in range(len(asked.questions))]
    pairs = zip(asked.questions, places, strict=True)
    tasks = [_classify(question, place, limits) for question, place in pairs]
    return _checked(tasks, [f"{place}text" for place in places], limits), True


def read_explain(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Do as `read_analyze`, for one text to explain."""
    asked = _read(EXPLAIN, body)
    aspect = None if asked.aspect is None else _aspect(asked.aspect, asked.text, "aspect")
    return _checked([Explain(asked.text, aspect)], ["text"], limits), False


def _classify(question: Question, place: str, limits: Limits) -> Classify:
    if len(question.aspects) > limits.aspects:
        asked = len(question.aspects)
        raise DataError(f"{place}aspects: at most {limits.aspects} of a text, got {asked}")
    aspects = (
        _aspect(aspect, question.text, f"{place}aspects[{number}]")
        for number, aspect in enumerate(question.aspects)
    )
    return Classify(question.text, tuple(aspects), place)


def _aspect(given: str | Span, text: str, name: str) -> Aspect:
    if isinstance(given, str):
        return given
    start, end = given.start, given.end
    if start >= end:
        raise DataError(f"{name}: start must be below end, got {start} and {end}")
    if end > len(text):
        raise DataError(f"{name}: end is {end}, and the text has {len(text)} characters")
    return AspectSpan(start, end)


def _checked(tasks: Sequence[Task], names: Sequence[str], limits: Limits) -> list[Task]:
    """Refuse too many or too long texts; `names` is what the request calls each of them."""
    if len(tasks) > limits.texts:
        raise DataError(f"At most {limits.texts} texts a request, got {len(tasks)}")
    for task, name in zip(tasks, names, strict=True):
        if len(task.text) > limits.text_chars:
            size = len(task.text)
            raise DataError(f"{name}: at most {limits.text_chars} characters, got {size}")
    return list(tasks)


def _read(form: TypeAdapter[_Asked], body: bytes) -> _Asked:
    try:
        return form.validate_json(body)
    except ValidationError as error:
        told = [
            f"{_name(fault['loc'])}: {_WORDS.get(fault['type'], fault['msg'])}"
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        more = f"; and {len(told) - _ERRORS_TOLD} more" if len(told) > _ERRORS_TOLD else ""
        examples = "See /v1/openapi.json for examples."
        raise DataError(f"{'; '.join(told[:_ERRORS_TOLD])}{more}. {examples}") from None


def _name(places: Sequence[int | str]) -> str:
    """Return a place in a body as people write it.

    >>> _name(("<many>", "questions", 3, "aspects", 0, "<many>", "start"))
    'questions[3].aspects[0].start'
    """
    name = ""
    for place in places:
        if isinstance(place, int):
            name += f"[{place}]"
        elif place not in (_ONE, _MANY):
            name += f".{place[:40]}" if name else place[:40]
    return name or "body"
