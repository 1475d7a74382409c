"""Request and response schemas, strict parsing of requests, and the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi.openapi.utils import get_openapi
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from capsar.errors import DataError
from capsar.schema import AspectSpan
from capsar.serve.handlers import CHARS_PER_TEXT, Analyze, Classify, Explain
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastapi import FastAPI

    from capsar.serve.handlers import Task
    from capsar.serve.settings import Limits

_MAX_ERRORS = 5
_ONE, _MANY = "<one>", "<many>"
"""Tags of the two forms of a body or an aspect; pydantic adds them to the path of an error."""
_ERROR_TEXTS = {
    "missing": "is missing",
    "extra_forbidden": "is not expected here",
    "string_type": "must be a string",
    "model_type": "must be an object",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "too_short": "must not be empty",
}
"""Messages that replace those of pydantic, which mention Python types."""
_SENTIMENT = Literal["negative", "neutral", "positive"]
_Body = TypeVar("_Body")
WORK = (
    f"A text counts as its characters plus {CHARS_PER_TEXT}; `classify` counts the characters once "
    "per aspect, `explain` twice."
)
"""How characters of work are counted."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class AspectOffsets(_Request):
    """The position of an aspect in the text, as half-open character offsets."""

    start: Annotated[int, Field(ge=0, le=2**31)]
    end: Annotated[int, Field(ge=1, le=2**31)]


def _aspect_kind(content: Any) -> str | None:  # noqa: ANN401  (any JSON value)
    return _ONE if isinstance(content, str) else _MANY if isinstance(content, dict) else None


AspectInput = Annotated[
    Annotated[str, Tag(_ONE)] | Annotated[AspectOffsets, Tag(_MANY)],
    Discriminator(
        _aspect_kind,
        custom_error_type="aspect_type",
        custom_error_message="must be a string, or an object with start and end",
    ),
]


class AnalyzeRequest(_Request):
    """One text."""

    text: str


class AnalyzeBatch(_Request):
    """Several texts."""

    texts: Annotated[list[str], Field(min_length=1)]


class ClassifyRequest(_Request):
    """A text and its aspects, each as its exact characters or as offsets."""

    text: str
    aspects: Annotated[list[AspectInput], Field(min_length=1)]


class ClassifyBatch(_Request):
    """Several texts with their aspects."""

    requests: Annotated[list[ClassifyRequest], Field(min_length=1)]


class ExplainRequest(_Request):
    """A text, and the aspect to explain; without one, the text as a whole."""

    text: str
    aspect: AspectInput | None = None


class AspectResult(_Response):
    """The sentiment toward one aspect."""

    text: str
    """The aspect as written in the text, from `start` to `end`."""
    start: int
    end: int
    polarity: _SENTIMENT
    scores: dict[_SENTIMENT, float]
    """The length of each sentiment capsule, from 0 to 1. Not a probability."""
    confidence: float | None
    """The probability that the polarity is correct; null for uncalibrated models."""
    aspect_confidence: float | None
    """The probability that this is an aspect with exactly these offsets; null if it was given."""
    abstained: bool
    """Always false here; used by `capsar analyze --min-confidence`."""
    windowed: bool = False
    """Whether the sentence of the aspect was too long and read in windows; present only if true."""


class Document(_Response):
    """A text and its aspects, in the format of `capsar analyze --json`."""

    schema_version: int
    text: str
    sentences: list[tuple[int, int]]
    """Start and end of each sentence."""
    aspects: list[AspectResult]


class Documents(_Response):
    """The documents of several texts, in the order of the request."""

    schema_version: int
    documents: list[Document]


class ExplainResponse(_Response):
    """Aspect scores and attributions of each word."""

    schema_version: int
    text: str
    aspect: str | AspectOffsets | None
    words: list[tuple[int, int]]
    """Start and end of each word that the model read."""
    lengths: dict[_SENTIMENT, float]
    """The length of each sentiment capsule, from 0 to 1."""
    aspect_scores: dict[_SENTIMENT, list[float]]
    """Per sentiment and word: dot product with the reconstructed aspect, to rank words."""
    attributions: dict[_SENTIMENT, list[float]]
    """Per sentiment and word: the contribution to the capsule length; they sum to the length."""


class ModelInfo(_Response):
    """A served model."""

    name: str
    sha256: str
    """SHA-256 of the manifest of the model; identifies its exact files."""
    classes: list[_SENTIMENT]
    capsar_version: str
    trained_on: str
    license: str


class RequestLimits(_Response):
    """Size limits of a request."""

    queue_chars: Annotated[int, Field(description=f"Characters of work. {WORK}")]
    text_chars: int
    """Characters of one text."""
    texts: int
    """Texts of one request."""
    aspects: int
    """Given aspects of one text."""
    body_bytes: int
    """Bytes of the body."""


class ModelsResponse(_Response):
    """The served model and the limits of a request."""

    schema_version: int
    models: list[ModelInfo]
    limits: RequestLimits


class ErrorResponse(_Response):
    """The reason why a request failed."""

    error: str
    """A machine-readable name of the error."""
    message: str
    """What was expected, what was received, and what to do."""


def _kind(one: str, many: str) -> Discriminator:
    def kind(content: Any) -> str | None:  # noqa: ANN401  (any JSON value)
        if not isinstance(content, dict):
            return None
        return _MANY if many in content else _ONE

    return Discriminator(
        kind,
        custom_error_type="body_type",
        custom_error_message=f"must be an object with {one} or with {many}",
    )


ANALYZE: TypeAdapter[AnalyzeRequest | AnalyzeBatch] = TypeAdapter(
    Annotated[
        Annotated[AnalyzeRequest, Tag(_ONE)] | Annotated[AnalyzeBatch, Tag(_MANY)],
        _kind("text", "texts"),
    ]
)
CLASSIFY: TypeAdapter[ClassifyRequest | ClassifyBatch] = TypeAdapter(
    Annotated[
        Annotated[ClassifyRequest, Tag(_ONE)] | Annotated[ClassifyBatch, Tag(_MANY)],
        _kind("text and aspects", "requests"),
    ]
)
EXPLAIN: TypeAdapter[ExplainRequest] = TypeAdapter(ExplainRequest)


def parse_analyze(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Return the tasks of a body, and whether it is a batch of several texts.

    Raises:
        DataError: If the body is invalid or exceeds a limit.
    """
    request = _parse(ANALYZE, body)
    if isinstance(request, AnalyzeRequest):
        return _check_sizes([Analyze(request.text)], ["text"], limits), False
    paths = [f"texts[{number}]" for number in range(len(request.texts))]
    return _check_sizes([Analyze(text) for text in request.texts], paths, limits), True


def parse_classify(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Return the tasks of a body with given aspects; see `parse_analyze`."""
    request = _parse(CLASSIFY, body)
    if isinstance(request, ClassifyRequest):
        return _check_sizes([_classify(request, "", limits)], ["text"], limits), False
    paths = [f"requests[{number}]." for number in range(len(request.requests))]
    pairs = zip(request.requests, paths, strict=True)
    tasks = [_classify(each, path, limits) for each, path in pairs]
    return _check_sizes(tasks, [f"{path}text" for path in paths], limits), True


def parse_explain(body: bytes, limits: Limits) -> tuple[list[Task], bool]:
    """Return the task of a body with one text to explain; see `parse_analyze`."""
    request = _parse(EXPLAIN, body)
    aspect = None if request.aspect is None else _aspect(request.aspect, request.text, "aspect")
    return _check_sizes([Explain(request.text, aspect)], ["text"], limits), False


def _classify(request: ClassifyRequest, path: str, limits: Limits) -> Classify:
    if len(request.aspects) > limits.aspects:
        number = len(request.aspects)
        raise DataError(f"{path}aspects: at most {limits.aspects} per text, got {number}")
    aspects = (
        _aspect(aspect, request.text, f"{path}aspects[{number}]")
        for number, aspect in enumerate(request.aspects)
    )
    return Classify(request.text, tuple(aspects), path)


def _aspect(aspect: str | AspectOffsets, text: str, path: str) -> str | AspectSpan:
    if isinstance(aspect, str):
        return aspect
    start, end = aspect.start, aspect.end
    if start >= end:
        raise DataError(f"{path}: start must be below end, got {start} and {end}")
    if end > len(text):
        raise DataError(f"{path}: end is {end}, but the text has {len(text)} characters")
    return AspectSpan(start, end)


def _check_sizes(tasks: Sequence[Task], paths: Sequence[str], limits: Limits) -> list[Task]:
    """Raise an error for too many or too long texts; `paths` are their places in the request."""
    if len(tasks) > limits.texts:
        raise DataError(f"At most {limits.texts} texts per request, got {len(tasks)}")
    for task, path in zip(tasks, paths, strict=True):
        if len(task.text) > limits.text_chars:
            size = len(task.text)
            raise DataError(f"{path}: at most {limits.text_chars} characters, got {size}")
    return list(tasks)


def _parse(schema: TypeAdapter[_Body], body: bytes) -> _Body:
    try:
        return schema.validate_json(body)
    except ValidationError as error:
        errors = [
            f"{_format_path(each['loc'])}: {_ERROR_TEXTS.get(each['type'], each['msg'])}"
            for each in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        more = f"; and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
        examples = "See /v1/openapi.json for examples."
        raise DataError(f"{'; '.join(errors[:_MAX_ERRORS])}{more}. {examples}") from None


def _format_path(location: Sequence[int | str]) -> str:
    """Return the location of an error in a body as a JSON path.

    >>> _format_path(("<many>", "requests", 3, "aspects", 0, "<many>", "start"))
    'requests[3].aspects[0].start'
    """
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in (_ONE, _MANY):
            path += f".{part[:40]}" if path else part[:40]
    return path or "body"


_DESCRIPTION = f"""Aspect-based sentiment analysis of reviews.

The response for a text is the object that `capsar analyze --json` prints. Offsets are half-open and
count characters (Unicode code points) of the text as sent. `scores` are capsule lengths from 0 to
1, not probabilities. If the queue is full, the response is 503 with `Retry-After` in seconds.

The queue, and therefore one request, is limited to `limits.queue_chars` (see `/v1/models`)
characters of work. {WORK}

To find a request in the log, send `x-request-id` (up to 128 letters, digits and `-_.:/=+@`); the
response has the same header. Without it, the service generates an id.
"""
_TEXT = "Great food, terrible service, and the soup was cold."
_ERRORS: dict[int | str, str] = {
    400: "The request is not valid HTTP.",
    401: "The API key is missing or not valid.",
    408: "The request was not received in time.",
    413: "The request exceeds the limit of bytes or characters of work.",
    415: "The body is not JSON.",
    422: "The body is invalid, or an aspect is not in its text; the message names which.",
    503: "The queue is full; retry after `Retry-After` seconds.",
    504: "The deadline was exceeded.",
}
_COMMON = (400, 401, 408)


def _responses(
    model: type[BaseModel] | Any,  # noqa: ANN401  (a union of models)
    *statuses: int,
) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "Success."}}
    for status in (*_COMMON, *statuses):
        responses[status] = {"model": ErrorResponse, "description": _ERRORS[status]}
    if 503 in responses:  # noqa: PLR2004
        responses[503]["headers"] = {
            "Retry-After": {
                "schema": {"type": "integer"},
                "description": "Seconds to wait before a retry.",
            }
        }
    return responses


def _request_body(schema: TypeAdapter[Any], **examples: dict[str, Any]) -> dict[str, Any]:
    described = schema.json_schema(ref_template="#/components/schemas/{model}")
    described.pop("$defs", None)
    values = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": described, "examples": values}}
    return {"requestBody": {"required": True, "content": content}}


_PLAIN = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Plain text."}

OPERATIONS: dict[str, dict[str, Any]] = {
    "analyze": {
        "responses": _responses(Document | Documents, 413, 415, 422, 503, 504),
        "openapi_extra": _request_body(
            ANALYZE, one={"text": _TEXT}, several={"texts": [_TEXT, "Fine."]}
        ),
    },
    "classify": {
        "responses": _responses(Document | Documents, 413, 415, 422, 503, 504),
        "openapi_extra": _request_body(
            CLASSIFY,
            one={"text": _TEXT, "aspects": ["food", {"start": 21, "end": 28}]},
            several={"requests": [{"text": _TEXT, "aspects": ["soup"]}]},
        ),
    },
    "explain": {
        "responses": _responses(ExplainResponse, 413, 415, 422, 503, 504),
        "openapi_extra": _request_body(
            EXPLAIN, whole_text={"text": _TEXT}, one_aspect={"text": _TEXT, "aspect": "soup"}
        ),
    },
    "models": {"responses": _responses(ModelsResponse)},
    "healthz": {"responses": {200: _PLAIN, 503: {"model": ErrorResponse}}},
    "readyz": {"responses": {200: _PLAIN, 503: {"model": ErrorResponse}}},
    "metrics": {"responses": {200: _PLAIN, 401: {"model": ErrorResponse}}},
}


def openapi_document(app: FastAPI, *, has_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    document = get_openapi(
        title="CAPSAR", version=__version__, description=_DESCRIPTION, routes=app.routes
    )
    schemas = document["components"]["schemas"]
    for schema in (ANALYZE, CLASSIFY, EXPLAIN):
        content = schema.json_schema(ref_template="#/components/schemas/{model}")
        schemas |= content.get("$defs", {})
    if has_keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                if path.startswith(("/v1/", "/metrics")):
                    operation["security"] = [{"key": []}]
    return document
