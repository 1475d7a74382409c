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
from capsar.serve.work import Analyze, Classify, Explain

if TYPE_CHECKING:
    from capsar.serve.settings import Limits
    from capsar.serve.work import Aspect, Task

_ERRORS_TOLD = 5
_SENTIMENT = Literal["negative", "neutral", "positive"]
_Asked = TypeVar("_Asked")


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Span(_Request):
    """One place in the text: half-open offsets in characters."""

    start: Annotated[int, Field(ge=0, le=2**31)]
    end: Annotated[int, Field(ge=1, le=2**31)]


GivenAspect = str | Span


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
    start: int
    end: int
    polarity: _SENTIMENT
    scores: dict[_SENTIMENT, float]
    confidence: float | None = None
    """The probability that the polarity is right, of models that can tell."""


class Document(_Answer):
    """A text and its aspects, as `capsar analyze --json` prints them."""

    schema_version: int
    text: str
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
    lengths: dict[_SENTIMENT, float]
    about: dict[_SENTIMENT, list[float]]
    because: dict[_SENTIMENT, list[float]]


class ModelAnswer(_Answer):
    """A model that is served."""

    name: str
    sha256: str
    """Of its manifest, which holds that of each of its files: which model it is, exactly."""
    classes: list[_SENTIMENT]
    capsar_version: str
    trained_on: str
    licence: str


class Models(_Answer):
    """What is served, and what a request may hold."""

    schema_version: int
    models: list[ModelAnswer]
    limits: dict[str, int]


class Problem(_Answer):
    """Why there is no answer."""

    error: str
    """A name for programs."""
    message: str
    """What was expected, what came, what to do."""


def _kind(many: str) -> Discriminator:
    def kind(content: Any) -> str | None:  # noqa: ANN401  (whatever JSON can hold)
        if not isinstance(content, dict):
            return None
        return "many" if many in content else "one"

    return Discriminator(kind)


ANALYZE: TypeAdapter[AnalyzeText | AnalyzeTexts] = TypeAdapter(
    Annotated[
        Annotated[AnalyzeText, Tag("one")] | Annotated[AnalyzeTexts, Tag("many")], _kind("texts")
    ]
)
CLASSIFY: TypeAdapter[Question | Questions] = TypeAdapter(
    Annotated[
        Annotated[Question, Tag("one")] | Annotated[Questions, Tag("many")], _kind("questions")
    ]
)
EXPLAIN: TypeAdapter[ExplainText] = TypeAdapter(ExplainText)


def read_analyze(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Return what a body asks for, and whether it asks for several texts.

    Raises:
        DataError: If it cannot be read, or holds more than the limits allow.
    """
    asked = _read(ANALYZE, body)
    many = isinstance(asked, AnalyzeTexts)
    tasks = [Analyze(text) for text in (asked.texts if many else [asked.text])]  # type: ignore[union-attr]
    return _checked(list(tasks), limits), many


def read_classify(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Do as `read_analyze`, for questions about given aspects."""
    asked = _read(CLASSIFY, body)
    many = isinstance(asked, Questions)
    questions: list[Question] = asked.questions if many else [asked]  # type: ignore[union-attr, list-item]
    for question in questions:
        if len(question.aspects) > limits.aspects:
            number = len(question.aspects)
            raise DataError(f"At most {limits.aspects} aspects of a text, got {number}")
    tasks = [Classify(q.text, tuple(_aspect(one) for one in q.aspects)) for q in questions]
    return _checked(list(tasks), limits), many


def read_explain(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Do as `read_analyze`, for one text to explain."""
    asked = _read(EXPLAIN, body)
    aspect = None if asked.aspect is None else _aspect(asked.aspect)
    return _checked([Explain(asked.text, aspect)], limits), False


def _aspect(given: GivenAspect) -> Aspect:
    return given if isinstance(given, str) else AspectSpan(given.start, given.end)


def _checked(tasks: list[Task], limits: Limits) -> list[Task]:
    if len(tasks) > limits.texts:
        raise DataError(f"At most {limits.texts} texts a request, got {len(tasks)}")
    longest = max(len(task.text) for task in tasks)
    if longest > limits.text_chars:
        raise DataError(f"A text may have {limits.text_chars} characters, got {longest}")
    return tasks


def _read(form: TypeAdapter[_Asked], body: bytes) -> _Asked:
    try:
        return form.validate_json(body)
    except ValidationError as error:
        told = [
            f"{'.'.join(str(place)[:40] for place in problem['loc']) or 'body'}: {problem['msg']}"
            for problem in error.errors(
                include_url=False, include_input=False, include_context=False
            )
        ]
        more = f"; and {len(told) - _ERRORS_TOLD} more" if len(told) > _ERRORS_TOLD else ""
        raise DataError("; ".join(told[:_ERRORS_TOLD]) + more) from None
