"""The ASGI application: routes of the API, inference, and files of the demo page."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from http.client import responses
from itertools import islice, product
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import FileResponse, PlainTextResponse
from starlette.staticfiles import StaticFiles

from capsar.bundle import find_bundle
from capsar.errors import ConfigError, DataError
from capsar.inference.analyzer import load
from capsar.inference.inputs import locate
from capsar.schema import CLASSES, SCHEMA_VERSION, document
from capsar.sentences import split_sentences
from capsar.serve import schemas
from capsar.serve.batcher import Batcher
from capsar.serve.metrics import CONTENT_TYPE, Metrics
from capsar.serve.middleware import LOG_FIELDS, LimitMiddleware, RequestMiddleware, busy_response
from capsar.serve.schemas import error_response
from capsar.serve.settings import API_PATHS
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from starlette.types import ASGIApp

    from capsar.inference.analyzer import Analyzer
    from capsar.serve.batcher import Task
    from capsar.serve.settings import Settings

_LOGGER = logging.getLogger(__name__)
_STUCK_SECONDS = 60.0
_PAGE = Path(__file__).parent / "page"


class Service:
    """The models, and the queue of their requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        sources, backend = settings.sources, settings.backend
        self.analyzers = {name: load(source, backend=backend) for name, source in sources.items()}
        self._pool = ThreadPoolExecutor(1, "capsar-split")  # one: more would delay the event loop
        self.batcher = Batcher(
            self._run_tasks,
            threads=settings.num_threads,
            queue_chars=settings.queue_chars,
            deadline=settings.deadline,
            metrics=self.metrics,
        )

    async def respond(self, request: Request, body: schemas.RequestBody) -> Response:
        """Check a request, run its tasks, and return the response."""
        model = body.model or next(iter(self.analyzers))
        if model not in self.analyzers:
            known = ", ".join(self.analyzers)
            return error_response(422, f"model: this service has {known}, not {model[:100]!r}")
        if isinstance(body, schemas.ExplainRequest):  # it splits a long text into sentences
            tasks = await asyncio.get_running_loop().run_in_executor(self._pool, body.tasks, model)
        else:
            tasks = body.tasks(model)
        chars = sum(task.chars for task in tasks)
        request.scope[LOG_FIELDS] |= {"model": model, "texts": len(tasks), "chars": chars}
        limit = self.settings.queue_chars
        if chars > limit:
            message = f"A request is limited to {limit} characters of work, got {chars}."
            return error_response(413, f"{message} {schemas.WORK} Send fewer texts per request.")
        if not self.batcher.has_room(chars):
            return busy_response(self.batcher)
        if errors := list(islice(_aspect_errors(tasks), schemas.MAX_ERRORS)):
            return error_response(422, "; ".join(errors))
        results = await self._run_queued(request, tasks)
        is_batch = getattr(body, "texts", None) or getattr(body, "requests", None)
        content = join_documents(results) if is_batch else results[0]
        return Response(content, media_type="application/json")

    async def _run_queued(self, request: Request, tasks: Sequence[Task]) -> list[bytes]:
        """Run tasks, until the client disconnects or the deadline is exceeded."""
        work = self.batcher.submit(tasks)
        disconnect = asyncio.ensure_future(request.receive())
        disconnect.add_done_callback(lambda _: work.cancel())
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await work
        except TimeoutError:
            raise HTTPException(504, "The deadline was exceeded. Send fewer texts.") from None
        except asyncio.CancelledError:
            if not disconnect.done():  # the service ends
                raise
            raise HTTPException(499, "The client has disconnected.") from None
        except (ConfigError, DataError) as error:
            raise HTTPException(422, str(error)) from error
        finally:
            disconnect.cancel()

    async def status(self) -> Response:
        """Report whether the service works; restart it if not."""
        if not self.batcher.is_stuck(_STUCK_SECONDS):
            return PlainTextResponse("ok\n")
        _LOGGER.error("the service does not work")
        message = f"A batch has been running for {_STUCK_SECONDS:g} s. Restart the service."
        return error_response(503, message, name="not_working")

    def _run_tasks(self, tasks: Sequence[Task]) -> list[bytes]:
        """Run tasks; return a JSON document for each, as `capsar analyze --json` prints.

        Raises:
            ConfigError: If a model does not support a task; then there is no result for any.
        """
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for index, task in enumerate(tasks):
            groups[task.model, task.explains, task.aspects is None, task.themes].append(index)
        results: dict[int, bytes] = {}
        for indices in groups.values():
            chosen = [tasks[index] for index in indices]
            found = analyze(self.analyzers[chosen[0].model], chosen)
            results.update(zip(indices, found, strict=True))
        return [results[index] for index in range(len(tasks))]


def analyze(analyzer: Analyzer, tasks: Sequence[Task]) -> list[bytes]:
    """Run tasks of one kind and with the same themes, all those for this analyzer."""
    texts, first = [task.text for task in tasks], tasks[0]
    if first.explains:
        return [explain(analyzer, task) for task in tasks]
    if first.aspects is None:
        found = analyzer.analyze(texts, themes=first.themes)
    else:
        found = analyzer.classify(texts, [task.aspects or () for task in tasks])
    documents = map(document, texts, found, map(split_sentences, texts))
    return [dumps(content).encode("ascii") for content in documents]


def _aspect_errors(tasks: Iterable[Task]) -> Iterator[str]:
    """Yield an error with the path in the request for each aspect that is not in its text."""
    for task in tasks:
        for number, aspect in enumerate(task.aspects or ()):
            try:
                locate(task.text, aspect)
            except DataError as error:
                yield f"{task.path.format(number)}: {error}"


def explain(analyzer: Analyzer, task: Task) -> bytes:
    """Return the explanation of a text or of an aspect of it."""
    aspect = task.aspects[0] if task.aspects else None
    explanation = analyzer.explain(task.text, aspect).as_dict()
    content = {"schema_version": SCHEMA_VERSION, "aspect": aspect, **explanation}
    return dumps(content, default=asdict).encode("ascii")


def join_documents(documents: Sequence[bytes]) -> bytes:
    """Return the response to a request of several texts.

    >>> join_documents([b'{"text": "a"}', b'{"text": "b"}']).decode()
    '{"schema_version": 1, "documents": [{"text": "a"}, {"text": "b"}]}'
    """
    return b'{"schema_version": %d, "documents": [%s]}' % (SCHEMA_VERSION, b", ".join(documents))


def describe_models(settings: Settings) -> schemas.ModelsResponse:
    """Return the content of `GET /v1/models`."""
    models = []
    for name, source in settings.sources.items():
        bundle = find_bundle(source)
        facts = {"name": name, "sha256": bundle.fingerprint(), "classes": CLASSES}
        models.append(schemas.ModelInfo.model_validate(bundle.config | facts))
    limits = schemas.RequestLimits(queue_chars=settings.queue_chars)
    return schemas.ModelsResponse(schema_version=SCHEMA_VERSION, models=models, limits=limits)


def create_app(settings: Settings) -> ASGIApp:
    """Load the models and return the service as an ASGI application.

    Raises:
        ArtifactError: If a model cannot be used.
    """
    service = Service(settings)
    app = FastAPI(
        title="CAPSAR",
        version=__version__,
        description=schemas.DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the documentation pages of FastAPI load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_error_handlers(app)
    _add_routes(app, service)
    app.mount("/page", StaticFiles(directory=_PAGE))
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    # Alerts need a value before the first error.
    for path, status in product(API_PATHS, (500, 504)):
        service.metrics.requests.labels(path, status)
    layers: ASGIApp = LimitMiddleware(app, service.batcher, settings)
    if settings.origins:
        layers = CORSMiddleware(
            layers,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["retry-after", "x-request-id"],
        )
    return RequestMiddleware(layers, service.metrics, routes)


def _add_routes(app: FastAPI, service: Service) -> None:
    models = describe_models(service.settings)
    # Only describes the keys in the OpenAPI document; the middleware checks them.
    bearer = Depends(HTTPBearer(scheme_name="key", auto_error=False))
    keys = [bearer] if service.settings.api_keys else []
    unauthorized = schemas.ERROR_RESPONSES[401]
    post = partial(app.post, responses=schemas.ERROR_RESPONSES, dependencies=keys)

    @post("/v1/analyze", response_model=schemas.Document | schemas.Documents)
    async def analyze(request: Request, body: schemas.AnalyzeRequest) -> Response:
        """Extract the aspects of one or several texts and their sentiment."""
        return await service.respond(request, body)

    @post("/v1/classify", response_model=schemas.Document | schemas.Documents)
    async def classify(request: Request, body: schemas.ClassifyRequest) -> Response:
        """Predict the sentiment toward given aspects."""
        return await service.respond(request, body)

    @post("/v1/explain", response_model=schemas.ExplainResponse)
    async def explain(request: Request, body: schemas.ExplainRequest) -> Response:
        """Return the importance, aspect score and attribution of each word."""
        return await service.respond(request, body)

    @app.get("/v1/models", responses={401: unauthorized}, dependencies=keys)
    async def models_served() -> schemas.ModelsResponse:
        """Return the served models and the limits of a request."""
        return models

    @app.get("/metrics", responses={200: schemas.PLAIN, 401: unauthorized}, dependencies=keys)
    async def metrics() -> Response:
        """Return the Prometheus metrics."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return FileResponse(_PAGE / "index.html")

    for path in ("/healthz", "/readyz"):
        app.add_api_route(path, service.status, responses=schemas.HEALTH)
        app.add_api_route(path, service.status, methods=["HEAD"], include_in_schema=False)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        status, message = error.status_code, error.detail
        if message == responses.get(status):
            message += ": see /v1/openapi.json."
        return error_response(status, message, headers=dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> Response:
        return error_response(422, schemas.describe_errors(error))

    @app.exception_handler(Exception)
    async def internal_error(_: Request, __: Exception) -> Response:
        return error_response(500, "Internal error; the log of the service has details.")
