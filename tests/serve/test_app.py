"""The application without a server: what it does if the model or the queue does not work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from capsar.errors import ArtifactError
from capsar.serve.app import create_app
from capsar.serve.batcher import Batcher
from capsar.serve.metrics import Metrics
from capsar.serve.middleware import RequestMiddleware
from capsar.serve.schemas import AnalyzeRequest
from capsar.serve.settings import Settings
from capsar.themes.schema import Themes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def call(app: ASGIApp, path: str, content: object = None) -> tuple[int, dict[str, str], Any]:
    """Send a request; return status, headers and the parsed body."""
    sent: list[Message] = []
    received: asyncio.Queue[Message] = asyncio.Queue()
    body = json.dumps(content).encode()
    received.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope = {
        "type": "http",
        "method": "GET" if content is None else "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }

    async def send(message: Message) -> None:
        sent.append(message)

    with suppress(ArtifactError):  # the server would log it
        asyncio.run(app(scope, received.get, send))  # type: ignore[arg-type]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(sent[1]["body"])


@pytest.fixture(scope="module")
def app() -> ASGIApp:
    return create_app(Settings(models=("fast",)))


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_broken_model_is_an_internal_error(
    app: ASGIApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("capsar.serve.app.analyze", failing(ArtifactError("/models/x is damaged")))
    status, _, content = call(app, "/v1/analyze", {"text": "Great food."})
    assert (status, content["error"]) == (500, "internal_error")
    assert "damaged" not in content["message"]
    assert "a batch failed" in [record.message for record in caplog.records]


def test_missing_aspect_is_reported_before_the_batch(
    app: ASGIApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Batcher, "submit", failing(AssertionError("this was queued")))
    for path, given, start in (
        ("/v1/classify", {"aspects": ["food", "soup"]}, "aspects[1]: "),
        ("/v1/explain", {"aspect": {"start": 3, "end": 99}}, "aspect: "),
    ):
        status, _, content = call(app, path, {"text": "Great food."} | given)
        assert status == 422
        assert content["message"].startswith(start)


def test_stuck_service_is_reported_and_logged(
    app: ASGIApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Batcher, "is_stuck", lambda *_: True)
    for path in ("/healthz", "/readyz"):
        status, headers, content = call(app, path)
        assert (status, content["error"]) == (503, "not_working")
        assert "retry-after" not in headers
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    documented = call(app, "/v1/openapi.json")[2]["paths"]["/healthz"]["get"]["responses"]["503"]
    assert "headers" not in documented
    assert "restart" in documented["description"]


def test_request_without_a_response_counts_as_an_error() -> None:
    async def silent(_: Scope, __: Receive, ___: Send) -> None:
        pass

    async def play() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        await app(scope, asyncio.Event().wait, None)  # type: ignore[arg-type]

    metrics = Metrics()
    app = RequestMiddleware(silent, metrics, frozenset({"/"}))
    asyncio.run(play())
    assert b'capsar_requests_total{route="/",status="500"} 1.0' in metrics.text()
    assert b"capsar_request_seconds_count" not in metrics.text()


def test_themes_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = Themes.from_dicts

    def from_dicts(*arguments: Any) -> Themes:
        built.append(original(*arguments))
        return built[-1]

    monkeypatch.setattr(Themes, "from_dicts", from_dicts)
    body = AnalyzeRequest.model_validate({"texts": ["a", "b"], "themes": [{"name": "Food"}]})
    tasks = body.tasks("fast")
    assert [task.themes for task in tasks] == [built[0]] * 2
    assert len(built) == 1
    assert tasks[0].chars > tasks[1].chars
