"""The ASGI application: routes of the API and files of the demo page."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from capsar.serve.metrics import CONTENT_TYPE
from capsar.serve.middleware import AdmissionMiddleware, RequestMiddleware
from capsar.serve.schemas import (
    OPERATIONS,
    openapi_document,
    parse_analyze,
    parse_classify,
    parse_explain,
)
from capsar.serve.service import Service, error_response, served_models

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from capsar.serve.settings import Settings

_FOLDER = Path(__file__).parent / "page"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the demo page, held in memory."""

    content: bytes
    media_type: str
    tag: str

    async def respond(self, request: Request) -> Response:
        """Return the file, or 304 if the browser has cached it."""
        headers = {"etag": self.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def read_assets() -> dict[str, Asset]:
    """Return the files of the page by URL path; the path of the page itself is `/`."""
    assets = {}
    for path in sorted(_FOLDER.iterdir()):
        content = path.read_bytes()
        tag = f'"{sha256(content).hexdigest()[:16]}"'
        name = "" if path.name == "index.html" else f"page/{path.name}"
        assets[f"/{name}"] = Asset(content, _MEDIA_TYPES[path.suffix], tag)
    return assets


def create_app(settings: Settings) -> ASGIApp:
    """Return the service as an ASGI application."""
    service = Service(settings)
    # The documentation pages of FastAPI load scripts from another host.
    app = FastAPI(lifespan=service.lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    _add_api(app, service)
    _add_status(app, service)
    _add_page(app)
    document = dumps(openapi_document(app, has_keys=settings.api_keys is not None))

    @app.get("/v1/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(document, media_type="application/json")

    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    layers: ASGIApp = AdmissionMiddleware(
        app,
        batcher=lambda: service.batcher,
        limits=settings.limits,
        metrics=service.metrics,
        api_keys=settings.api_keys,
    )
    if settings.origins:
        layers = CORSMiddleware(
            layers,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["retry-after", "x-request-id"],
        )
    return RequestMiddleware(layers, metrics=service.metrics, routes=routes)


def _add_api(app: FastAPI, service: Service) -> None:
    @app.post("/v1/analyze", **OPERATIONS["analyze"])
    async def analyze(request: Request) -> Response:
        """Extract the aspects of one or several texts and their sentiment."""
        return await service.handle(request, parse_analyze)

    @app.post("/v1/classify", **OPERATIONS["classify"])
    async def classify(request: Request) -> Response:
        """Predict the sentiment toward given aspects."""
        return await service.handle(request, parse_classify)

    @app.post("/v1/explain", **OPERATIONS["explain"])
    async def explain(request: Request) -> Response:
        """Return aspect scores and attributions: the words that each sentiment depends on."""
        return await service.handle(request, parse_explain)


def _add_status(app: FastAPI, service: Service) -> None:
    models = dumps(served_models(service.settings))

    @app.get("/v1/models", **OPERATIONS["models"])
    async def models_served() -> Response:
        """Return the served model and the limits of a request."""
        return Response(models, media_type="application/json")

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", **OPERATIONS["healthz"])
    async def healthz() -> Response:
        """Report whether the process works; restart it if not."""
        return _status(is_ok=service.is_working)

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", **OPERATIONS["readyz"])
    async def readyz() -> Response:
        """Report whether the model is loaded and requests are accepted."""
        return _status(is_ok=service.is_working)

    @app.get("/metrics", **OPERATIONS["metrics"])
    async def metrics() -> Response:
        """Return the Prometheus metrics of all workers."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _status(*, is_ok: bool) -> Response:
    if is_ok:
        return Response("ok\n", media_type="text/plain")
    return error_response(503, "The service is not ready.")


def _add_page(app: FastAPI) -> None:
    for path, asset in read_assets().items():
        app.add_api_route(path, asset.respond, methods=["GET"], include_in_schema=False)


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    status = error.status_code
    response = error_response(status, f"{HTTPStatus(status).phrase}: see /v1/openapi.json.")
    response.headers.update(error.headers or {})
    return response


async def _internal_error(_: Request, __: Exception) -> Response:
    return error_response(500, "Internal error; the log of the service has details.")
