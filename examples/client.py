"""A typed client of `capsar serve` that needs only the standard library: copy and adapt it.

`python examples/client.py "Great food, terrible service."` calls a service on this machine. Set
CAPSAR_URL for another address and CAPSAR_KEY for an API key.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, NotRequired, TypedDict, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

Polarity = Literal["negative", "neutral", "positive"]


class Offsets(TypedDict):
    """The position of an aspect, in characters: `text[start:end]`."""

    start: int
    end: int


class ClassifyRequest(TypedDict):
    """A text and its aspects, each as its exact characters or as offsets."""

    text: str
    aspects: Sequence[str | Offsets]


class Opinion(TypedDict):
    """A phrase that carries the sentiment."""

    text: str
    start: int
    end: int
    confidence: float | None


class Aspect(TypedDict):
    """The sentiment toward one aspect: `text == document["text"][start:end]`."""

    text: str
    start: int
    end: int
    polarity: Polarity
    scores: dict[Polarity, float]
    confidence: float | None
    aspect_confidence: float | None
    abstained: bool
    opinions: NotRequired[list[Opinion]]
    theme: NotRequired[str]
    theme_confidence: NotRequired[float | None]
    implicit: NotRequired[bool]
    windowed: NotRequired[bool]


class Theme(TypedDict):
    """A topic that mentions are sorted into."""

    name: str
    description: NotRequired[str]
    terms: NotRequired[list[str]]
    excluded: NotRequired[list[str]]
    parent: NotRequired[str]


class Document(TypedDict):
    """A text, the offsets of its sentences, and its aspects."""

    schema_version: int
    text: str
    sentences: list[tuple[int, int]]
    aspects: list[Aspect]


class Explanation(TypedDict):
    """Aspect scores and attributions of each word."""

    schema_version: int
    text: str
    aspect: str | Offsets | None
    words: list[tuple[int, int]]
    lengths: dict[Polarity, float]
    aspect_scores: dict[Polarity, list[float]]
    importance: dict[Polarity, list[float]]
    attributions: dict[Polarity, list[float]]


class Model(TypedDict):
    """A served model; `sha256` identifies its exact files."""

    name: str
    sha256: str
    classes: list[Polarity]
    capsar_version: str
    trained_on: str
    license: str


class Limits(TypedDict):
    """Size limits of a request."""

    queue_chars: int
    text_chars: int
    texts: int
    aspects: int
    body_bytes: int


class Models(TypedDict):
    """The served model and the limits of a request."""

    schema_version: int
    models: list[Model]
    limits: Limits


class ServiceError(Exception):
    """An error response: a readable message, and its machine-readable name `error`."""

    def __init__(self, status: int, error: str, message: str, request_id: str) -> None:
        super().__init__(f"{message} (status {status}, request {request_id})")
        self.status = status
        self.error = error
        self.request_id = request_id


@dataclass(frozen=True)
class Client:
    """Client of a service; it waits and retries when the service is busy."""

    url: str = "http://127.0.0.1:8000"
    key: str = field(default="", repr=False)
    attempts: int = 5
    timeout_seconds: float = 60.0

    def analyze(
        self, texts: Sequence[str], themes: Sequence[Theme] | None = None
    ) -> list[Document]:
        """Extract the aspects of texts and their sentiment, and sort them into themes if given."""
        content: dict[str, Any] = {"texts": list(texts)}
        if themes is not None:
            content["themes"] = list(themes)
        found: list[Document] = self._request("/v1/analyze", content)["documents"]
        return found

    def classify(self, text: str, aspects: Sequence[str | Offsets]) -> Document:
        """Return the sentiment toward given aspects of a text."""
        return cast(
            "Document", self._request("/v1/classify", {"text": text, "aspects": list(aspects)})
        )

    def classify_many(self, requests: Sequence[ClassifyRequest]) -> list[Document]:
        """Return the sentiment toward given aspects of several texts."""
        response = self._request("/v1/classify", {"requests": list(requests)})
        return cast("list[Document]", response["documents"])

    def explain(self, text: str, aspect: str | Offsets | None = None) -> Explanation:
        """Return aspect scores and attributions of a text, for one aspect or the whole text."""
        return cast("Explanation", self._request("/v1/explain", {"text": text, "aspect": aspect}))

    def models(self) -> Models:
        """Return the served model and the limits of a request."""
        return cast("Models", self._request("/v1/models"))

    def _request(self, path: str, content: object = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        body = None if content is None else json.dumps(content).encode()
        request = Request(self.url.rstrip("/") + path, body, headers)  # noqa: S310
        for attempt in range(1, self.attempts + 1):
            try:
                with urlopen(request, timeout=self.timeout_seconds) as response:  # noqa: S310
                    return cast("dict[str, Any]", json.load(response))
            except HTTPError as error:
                with error:
                    if error.code != HTTPStatus.SERVICE_UNAVAILABLE or attempt == self.attempts:
                        raise _service_error(error) from error
                    time.sleep(int(error.headers.get("Retry-After", "1")))
        raise AssertionError("unreachable: the last attempt returns or raises")


def _service_error(error: HTTPError) -> ServiceError:
    request_id = error.headers.get("x-request-id", "-")
    try:
        content = json.load(error)
        return ServiceError(error.code, content["error"], content["message"], request_id)
    except (ValueError, KeyError):  # the response of a proxy
        return ServiceError(error.code, "proxy_error", error.reason, request_id)


def main() -> None:
    """Print each aspect of the texts given on the command line."""
    client = Client(os.environ.get("CAPSAR_URL", Client.url), os.environ.get("CAPSAR_KEY", ""))
    for document in client.analyze(sys.argv[1:]):
        for aspect in document["aspects"]:
            print(f"{aspect['polarity']:<9} {aspect['text']}")  # noqa: T201


if __name__ == "__main__":
    main()
