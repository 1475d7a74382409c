"""Schemas of requests and responses, and the OpenAPI document that describes them."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AliasPath, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic.functional_validators import BeforeValidator
from starlette.responses import Response

from capsar.schema import AspectSpan
from capsar.serve.batcher import CHARS_PER_TEXT, Task
from capsar.serve.settings import ASPECTS, BODY_BYTES, TEXT_CHARS, TEXTS
from capsar.themes.schema import Themes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from fastapi.exceptions import RequestValidationError

MAX_ERRORS = 5
"""Maximum errors in a message."""
_MAX_FIELDS = 20
_OPTIONAL = ("model", "themes")
_NAME, _OFFSETS = "<name>", "<offsets>"
"""Tags of the two forms of an aspect; pydantic adds them to the path of an error."""
_SENTIMENT = Literal["negative", "neutral", "positive"]
WORK = (
    f"A text counts as its characters plus {CHARS_PER_TEXT}; `classify` counts the characters once "
    "per aspect; `explain` adds up to 32 times those of the longest sentence, at most 40,000; "
    "themes count once."
)
"""How characters of work are counted."""
_TEXT = "Great food, terrible service, and the soup was cold."
_ConfigText = Annotated[str, BeforeValidator(str)]
_Text = Annotated[str, Field(max_length=TEXT_CHARS)]
_LIST = Field(min_length=1, fail_fast=True)
"""Only the first error in the list is looked for: all of them could take seconds."""


def _examples(*bodies: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class _Request(BaseModel, extra="forbid", strict=True, use_attribute_docstrings=True):
    """A part of a request: exactly the documented fields and types."""

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, content: object) -> object:
        """Refuse many unknown fields at once: an error for each would take seconds."""
        if isinstance(content, dict) and len(content) > _MAX_FIELDS:
            raise ValueError(f"must have at most {_MAX_FIELDS} fields")
        return content


class _Response(BaseModel, use_attribute_docstrings=True):
    """A part of a response."""


class AspectOffsets(_Request):
    """The position of an aspect in the text, as half-open character offsets."""

    start: Annotated[int, Field(ge=0, le=2**31)]
    end: Annotated[int, Field(ge=1, le=2**31)]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"start must be below end, got {self.start} and {self.end}")
        return self


def _aspect_kind(content: Any) -> str | None:  # noqa: ANN401  (any JSON value)
    return _NAME if isinstance(content, str) else _OFFSETS if isinstance(content, dict) else None


AspectInput = Annotated[
    Annotated[str, Tag(_NAME)] | Annotated[AspectOffsets, Tag(_OFFSETS)],
    Discriminator(_aspect_kind, "aspect_type", "must be a string, or an object with start and end"),
]
_Terms = Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=50)]
_Aspects = Annotated[list[AspectInput], Field(min_length=1, max_length=ASPECTS)]


def _spans(aspects: Sequence[str | AspectOffsets]) -> tuple[str | AspectSpan, ...]:
    return tuple(a if isinstance(a, str) else AspectSpan(a.start, a.end) for a in aspects)


class ThemeInput(_Request):
    """A topic that mentions are sorted into."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(max_length=500)] = ""
    """What belongs to it, in a sentence or two."""
    terms: _Terms = []
    """Words and phrases that always belong to it."""
    excluded: _Terms = []
    """Words and phrases that never belong to it."""
    parent: Annotated[str, Field(max_length=100)] = ""
    """The name of the theme that this one is a part of."""


class _Body(_Request):
    model: str | None = None
    """The name of a served model; the first of `/v1/models` if it is not given."""
    _forms: ClassVar[tuple[str, ...]]
    """The combinations of fields that a body can have, besides the optional ones."""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        given = [name for name, value in self if value is not None and name not in _OPTIONAL]
        if " and ".join(given) not in self._forms:
            raise ValueError(f"must be an object with {', or with '.join(self._forms)}")
        return self


class AnalyzeRequest(_Body):
    """One text or several texts."""

    model_config = _examples({"text": _TEXT}, {"texts": [_TEXT, "Fine."]})
    _forms = ("text", "texts")
    text: _Text | None = None
    texts: Annotated[list[_Text], Field(min_length=1, max_length=TEXTS)] | None = None
    themes: Annotated[list[ThemeInput], _LIST, Field(max_length=50)] | None = None
    """Sort mentions into these themes, and find implicit mentions of them."""
    _themes: Themes | None = None

    def model_post_init(self, _: object) -> None:
        """Read the themes."""
        if self.themes is not None:
            self._themes = Themes.from_dicts(theme.model_dump() for theme in self.themes)

    def tasks(self, model: str) -> list[Task]:
        """Return the tasks of the request."""
        texts = self.texts or [self.text or ""]
        tasks = [Task(model, text, themes=self._themes) for text in texts]
        if self.themes is not None:
            tasks[0] = replace(tasks[0], theme_chars=len(self.model_dump_json(include={"themes"})))
        return tasks


class ClassifyItem(_Request):
    """A text and its aspects, each as its exact characters or as offsets."""

    text: _Text
    aspects: _Aspects


class ClassifyRequest(_Body):
    """A text with its aspects, or several in `requests`."""

    model_config = _examples(
        {"text": _TEXT, "aspects": ["food", {"start": 21, "end": 28}]},
        {"requests": [{"text": _TEXT, "aspects": ["soup"]}]},
    )
    _forms = ("text and aspects", "requests")
    text: _Text | None = None
    aspects: _Aspects | None = None
    requests: Annotated[list[ClassifyItem], _LIST, Field(max_length=TEXTS)] | None = None

    def tasks(self, model: str) -> list[Task]:
        """Return the tasks of the request."""
        if self.requests is None:
            return [Task(model, self.text or "", _spans(self.aspects or ()), path="aspects[{}]")]
        return [
            Task(model, item.text, _spans(item.aspects), path=f"requests[{number}].aspects[{{}}]")
            for number, item in enumerate(self.requests)
        ]


class ExplainRequest(_Body):
    """A text, and the aspect to explain; without one, the text as a whole."""

    model_config = _examples({"text": _TEXT}, {"text": _TEXT, "aspect": "soup"})
    _forms = ("text", "text and aspect")
    text: _Text
    aspect: AspectInput | None = None

    def tasks(self, model: str) -> list[Task]:
        """Return the task of the request."""
        aspects = () if self.aspect is None else _spans([self.aspect])
        return [Task(model, self.text, aspects, explains=True, path="aspect")]


RequestBody = AnalyzeRequest | ClassifyRequest | ExplainRequest


class OpinionResult(_Response):
    """A phrase that carries the sentiment."""

    text: str
    """The phrase as written in the text, from `start` to `end`."""
    start: int
    end: int
    confidence: float | None
    """The probability that exactly this phrase carries the sentiment."""


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
    opinions: list[OpinionResult] = []
    """The phrases that carry the sentiment, in the order of the text; none for a neutral one.
    Missing if the model has no opinion head."""
    theme: str = ""
    """The name of the theme, empty if none fits; present only if themes were given."""
    theme_confidence: float | None = None
    """The probability of the theme, or of none; present only if themes were given."""
    implicit: bool = False
    """Whether the theme is evaluated without being named: `text` is the sentence. Present only if
    themes were given."""
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
    """Importance, aspect score and attribution of each word."""

    schema_version: int
    text: str
    aspect: str | AspectOffsets | None
    words: list[tuple[int, int]]
    """Start and end of each word that the model read."""
    lengths: dict[_SENTIMENT, float]
    """The length of each sentiment capsule, from 0 to 1."""
    aspect_scores: dict[_SENTIMENT, list[float]]
    """Per sentiment and word: dot product with the reconstructed aspect, to rank words."""
    importance: dict[_SENTIMENT, list[float]]
    """Per sentiment and word: how much shorter the capsule is without the word."""
    attributions: dict[_SENTIMENT, list[float]]
    """Per sentiment and word: the contribution to the capsule length by routing; they sum to it."""


class ModelInfo(_Response, json_schema_serialization_defaults_required=True):
    """A served model."""

    name: str
    sha256: str
    """SHA-256 of the manifest of the model; identifies its exact files."""
    classes: list[_SENTIMENT]
    capsar_version: _ConfigText = ""
    trained_on: _ConfigText = Field("", validation_alias=AliasPath("trained_on", "train"))
    license: _ConfigText = Field("", validation_alias=AliasPath("trained_on", "license"))


class RequestLimits(_Response, json_schema_serialization_defaults_required=True):
    """Size limits of a request."""

    queue_chars: Annotated[int, Field(description=f"Characters of work. {WORK}")]
    text_chars: int = TEXT_CHARS
    """Characters of one text."""
    texts: int = TEXTS
    """Texts of one request."""
    aspects: int = ASPECTS
    """Given aspects of one text."""
    body_bytes: int = BODY_BYTES
    """Bytes of the body."""


class ModelsResponse(_Response):
    """The served models, the default first, and the limits of a request."""

    schema_version: int
    models: list[ModelInfo]
    limits: RequestLimits


class ErrorResponse(_Response):
    """The reason why a request failed."""

    error: str
    """A machine-readable name of the error."""
    message: str
    """What was expected, what was received, and what to do."""


def describe_errors(error: RequestValidationError) -> str:
    """Return what is wrong with a body, with the path of each wrong value."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"body: invalid JSON at character {first['loc'][1]}: {first['ctx']['error']}"
    errors = [
        f"{_format_path(each['loc'])}: {each['msg'].removeprefix('Value error, ')}"
        for each in error.errors()
    ]
    more = f"; and {len(errors) - MAX_ERRORS} more" if len(errors) > MAX_ERRORS else ""
    return f"{'; '.join(errors[:MAX_ERRORS])}{more}. See /v1/openapi.json for examples."


def _format_path(location: Sequence[int | str]) -> str:
    """Return the location of an error in a body as a JSON path.

    >>> _format_path(("body", "requests", 3, "aspects", 0, "<offsets>", "start"))
    'requests[3].aspects[0].start'
    """
    parts = [part for part in location[1:] if part not in (_NAME, _OFFSETS)]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in parts)
    return path.removeprefix(".") or "body"


DESCRIPTION = f"""Aspect-based sentiment analysis of reviews.

The response for a text is the object that `capsar analyze --json` prints. Offsets are half-open and
count characters (Unicode code points) of the text as sent. `scores` are capsule lengths from 0 to
1, not probabilities. If the queue is full, the response is 503 with `Retry-After` in seconds.

One request is limited to `limits.queue_chars` (see `/v1/models`) characters of work. {WORK}

To find a request in the log, send `x-request-id` (up to 128 letters, digits and `-_.:/=+@`); the
response has the same header. Without it, the service generates an id.
"""
ERRORS = {
    400: ("bad_request", "The request is not valid."),
    401: ("missing_api_key", "The API key is missing or not valid."),
    408: ("request_timeout", "The body was not received in time."),
    413: ("too_large", "The request exceeds the limit of bytes or characters of work."),
    415: ("not_json", "The body is not JSON."),
    422: ("invalid_request", "The body is invalid, or an aspect is not in its text."),
    499: ("client_closed_request", ""),
    500: ("internal_error", ""),
    503: ("busy", "The queue is full; retry after `Retry-After` seconds."),
    504: ("deadline_exceeded", "The deadline was exceeded."),
}
"""The `error` of a status, by default its name, and a description of those to expect."""


def error_response(
    status: int, message: str, *, name: str = "", headers: dict[str, str] | None = None
) -> Response:
    """Return an error response; `name` defaults to the one of the status.

    >>> error_response(503, "Retry in 2 s.").body.decode()
    '{"error": "busy", "message": "Retry in 2 s."}'
    """
    name = name or (ERRORS[status][0] if status in ERRORS else HTTPStatus(status).name.lower())
    content = dumps({"error": name, "message": message})
    return Response(content, status, headers, "application/json")


Responses = dict[int | str, dict[str, Any]]
ERROR_RESPONSES: Responses = {
    status: {"model": ErrorResponse, "description": description}
    for status, (_, description) in ERRORS.items()
    if description
}
"""The documented errors of a request for work."""
_RETRY_AFTER = {"schema": {"type": "integer"}, "description": "Seconds to wait before a retry."}
ERROR_RESPONSES[503]["headers"] = {"Retry-After": _RETRY_AFTER}
PLAIN = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Plain text."}
_NOT_WORKING = {"model": ErrorResponse, "description": "The service does not work; restart it."}
HEALTH: Responses = {200: PLAIN, 503: _NOT_WORKING}
"""The documented responses of the health checks."""
