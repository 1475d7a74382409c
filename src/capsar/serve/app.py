"""The routes of the service, as one ASGI application."""

from __future__ import annotations

from http import HTTPStatus
from json import dumps
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from capsar.serve.admission import Admission
from capsar.serve.assets import read_assets
from capsar.serve.envelope import Envelope
from capsar.serve.messages import read_analyze, read_classify, read_explain
from capsar.serve.metrics import CONTENT_TYPE
from capsar.serve.models import served_models
from capsar.serve.openapi import OPERATIONS, describe
from capsar.serve.service import Service, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from capsar.serve.settings import Settings


def create_app(settings: Settings) -> ASGIApp:
    """Return the service as an ASGI application."""
    service = Service(settings)
    # FastAPI's own pages of documentation load code from elsewhere.
    app = FastAPI(lifespan=service.lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _failure)
    _add_questions(app, service)
    _add_state(app, service)
    _add_page(app)
    described = dumps(describe(app, has_keys=settings.keys is not None))

    @app.get("/v1/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(described, media_type="application/json")

    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    layers: ASGIApp = Admission(
        app,
        batcher=lambda: service.batcher,
        limits=settings.limits,
        metrics=service.metrics,
        keys=settings.keys,
    )
    if settings.origins:
        layers = CORSMiddleware(
            layers,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["retry-after", "x-request-id"],
        )
    return Envelope(layers, metrics=service.metrics, routes=routes)


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/analyze", **OPERATIONS["analyze"])
    async def analyze(request: Request) -> Response:
        """Tell what is felt, and about what, in one text or several."""
        return await service.reply(request, read_analyze)

    @app.post("/v1/classify", **OPERATIONS["classify"])
    async def classify(request: Request) -> Response:
        """Tell what is felt about given aspects."""
        return await service.reply(request, read_classify)

    @app.post("/v1/explain", **OPERATIONS["explain"])
    async def explain(request: Request) -> Response:
        """Open the capsules of a text: what each sentiment is about, and because of what."""
        return await service.reply(request, read_explain)


def _add_state(app: FastAPI, service: Service) -> None:
    models = dumps(served_models(service.settings))

    @app.get("/v1/models", **OPERATIONS["models"])
    async def models_served() -> Response:
        """Name what is served, and what a request may hold."""
        return Response(models, media_type="application/json")

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", **OPERATIONS["healthz"])
    async def healthz() -> Response:
        """Tell whether the process works; where it does not, start it anew."""
        return _state(is_good=service.is_working)

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", **OPERATIONS["readyz"])
    async def readyz() -> Response:
        """Tell whether requests can be answered: the model is loaded."""
        return _state(is_good=service.is_working)

    @app.get("/metrics", **OPERATIONS["metrics"])
    async def metrics() -> Response:
        """Tell Prometheus the figures of all workers."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _state(*, is_good: bool) -> Response:
    if is_good:
        return Response("ok\n", media_type="text/plain")
    return refusal(503, "Not now.")


def _add_page(app: FastAPI) -> None:
    for path, asset in read_assets().items():
        app.add_api_route(path, asset.respond, methods=["GET"], include_in_schema=False)


async def _http_problem(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    status = error.status_code
    response = refusal(status, f"{HTTPStatus(status).phrase}: see /v1/openapi.json.")
    response.headers.update(error.headers or {})
    return response


async def _failure(_: Request, __: Exception) -> Response:
    return refusal(500, "The answer failed. The fault is ours; the log tells more.")
