"""The service as OpenAPI, with examples. Bodies are read by `messages`, not by FastAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from capsar import __version__
from capsar.serve.messages import (
    ANALYZE,
    CLASSIFY,
    EXPLAIN,
    WORK,
    Document,
    Documents,
    ExplanationAnswer,
    Models,
    Problem,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from pydantic import BaseModel, TypeAdapter

_ABOUT = f"""What is felt, and about what, in customer reviews.

A text is answered as `capsar analyze --json` answers it. Offsets are half-open and count characters
(Unicode code points) of the text as it was sent. `scores` are capsule lengths from 0 to 1, not
probabilities. When the queue is full the answer is 503 with `Retry-After`: wait, then ask again.

The queue, and so one request, holds `limits.queue_chars` (see `/v1/models`) characters of work.
{WORK}

Send `x-request-id` (up to 128 letters, digits and `-_.:/=+@`) to find a request in the log again:
the answer has the same one. Where there is none the service makes one.
"""
_TEXT = "Great food, terrible service, and the soup was cold."
_REFUSALS: dict[int | str, str] = {
    400: "The request is not HTTP that can be read.",
    401: "No key was sent, or one that the service does not know.",
    408: "The request was sent too slowly.",
    413: "More bytes, or more characters of work, than a request may hold.",
    415: "The body is not JSON.",
    422: "The body is not what was expected, or an aspect is not in its text; says which.",
    503: "The queue is full: ask again after `Retry-After` seconds.",
    504: "The answer would have come too late.",
}
_COMMON = (400, 401, 408)


def _answers(
    model: type[BaseModel] | Any,  # noqa: ANN401  (a union of models)
    *statuses: int,
) -> dict[int | str, dict[str, Any]]:
    answers: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "The answer."}}
    for status in (*_COMMON, *statuses):
        answers[status] = {"model": Problem, "description": _REFUSALS[status]}
    if 503 in answers:  # noqa: PLR2004
        answers[503]["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}
        }
    return answers


def _asks(form: TypeAdapter[Any], **examples: dict[str, Any]) -> dict[str, Any]:
    schema = form.json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    shown = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": schema, "examples": shown}}
    return {"requestBody": {"required": True, "content": content}}


_PLAIN = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "As text."}

OPERATIONS: dict[str, dict[str, Any]] = {
    "analyze": {
        "responses": _answers(Document | Documents, 413, 415, 422, 503, 504),
        "openapi_extra": _asks(ANALYZE, one={"text": _TEXT}, several={"texts": [_TEXT, "Fine."]}),
    },
    "classify": {
        "responses": _answers(Document | Documents, 413, 415, 422, 503, 504),
        "openapi_extra": _asks(
            CLASSIFY,
            one={"text": _TEXT, "aspects": ["food", {"start": 21, "end": 28}]},
            several={"questions": [{"text": _TEXT, "aspects": ["soup"]}]},
        ),
    },
    "explain": {
        "responses": _answers(ExplanationAnswer, 413, 415, 422, 503, 504),
        "openapi_extra": _asks(
            EXPLAIN, all_of_it={"text": _TEXT}, of_an_aspect={"text": _TEXT, "aspect": "soup"}
        ),
    },
    "models": {"responses": _answers(Models)},
    "healthz": {"responses": {200: _PLAIN, 503: {"model": Problem}}},
    "readyz": {"responses": {200: _PLAIN, 503: {"model": Problem}}},
    "metrics": {"responses": {200: _PLAIN, 401: {"model": Problem}}},
}


def describe(app: FastAPI, *, has_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    document = get_openapi(
        title="CAPSAR", version=__version__, description=_ABOUT, routes=app.routes
    )
    schemas = document["components"]["schemas"]
    for form in (ANALYZE, CLASSIFY, EXPLAIN):
        content = form.json_schema(ref_template="#/components/schemas/{model}")
        schemas |= content.get("$defs", {})
    if has_keys:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                if path.startswith(("/v1/", "/metrics")):
                    operation["security"] = [{"key": []}]
    return document
