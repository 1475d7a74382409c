"""A typed client of `capsar serve`, in the standard library alone: copy it, and change it.

`python examples/client.py "Great food, terrible service."` asks a service on this machine; the
variable CAPSAR_URL names another one, CAPSAR_KEY holds the key that it asks for.
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


class Place(TypedDict):
    """A place in a text, in characters: `text[start:end]`."""

    start: int
    end: int


class Question(TypedDict):
    """A text and the aspects asked about, as their exact characters or as places."""

    text: str
    aspects: Sequence[str | Place]


class Aspect(TypedDict):
    """What is felt about one aspect: `text == document["text"][start:end]`."""

    text: str
    start: int
    end: int
    polarity: Polarity
    scores: dict[Polarity, float]
    confidence: float | None
    aspect_confidence: float | None
    abstained: bool
    windowed: NotRequired[bool]


class Document(TypedDict):
    """A text, where its sentences start and end, and its aspects."""

    schema_version: int
    text: str
    sentences: list[tuple[int, int]]
    aspects: list[Aspect]


class Explanation(TypedDict):
    """What each sentiment is about, and because of which words."""

    schema_version: int
    text: str
    aspect: str | Place | None
    words: list[tuple[int, int]]
    lengths: dict[Polarity, float]
    about: dict[Polarity, list[float]]
    because: dict[Polarity, list[float]]


class Model(TypedDict):
    """A model that is served; `sha256` tells which one exactly."""

    name: str
    sha256: str
    classes: list[Polarity]
    capsar_version: str
    trained_on: str
    licence: str


class Limits(TypedDict):
    """What a request may hold."""

    queue_chars: int
    text_chars: int
    texts: int
    aspects: int
    body_bytes: int


class Models(TypedDict):
    """What is served, and what a request may hold."""

    schema_version: int
    models: list[Model]
    limits: Limits


class RefusedError(Exception):
    """The service said no: the message tells why, `error` is its name for programs."""

    def __init__(self, status: int, error: str, message: str, request_id: str) -> None:
        super().__init__(f"{message} (status {status}, request {request_id})")
        self.status = status
        self.error = error
        self.request_id = request_id


@dataclass(frozen=True)
class Client:
    """Asks a service, and waits as it is told to when the service is busy."""

    url: str = "http://127.0.0.1:8000"
    key: str = field(default="", repr=False)
    attempts: int = 5
    timeout_seconds: float = 60.0

    def analyze(self, texts: Sequence[str]) -> list[Document]:
        """Return what is felt, and about what, in each text."""
        answer = self._ask("/v1/analyze", {"texts": list(texts)})
        return cast("list[Document]", answer["documents"])

    def classify(self, text: str, aspects: Sequence[str | Place]) -> Document:
        """Return what is felt about given aspects of a text."""
        return cast("Document", self._ask("/v1/classify", {"text": text, "aspects": list(aspects)}))

    def classify_many(self, questions: Sequence[Question]) -> list[Document]:
        """Return what is felt about given aspects of several texts."""
        answer = self._ask("/v1/classify", {"questions": list(questions)})
        return cast("list[Document]", answer["documents"])

    def explain(self, text: str, aspect: str | Place | None = None) -> Explanation:
        """Open the capsules of a text."""
        return cast("Explanation", self._ask("/v1/explain", {"text": text, "aspect": aspect}))

    def models(self) -> Models:
        """Return what is served, and what a request may hold."""
        return cast("Models", self._ask("/v1/models"))

    def _ask(self, path: str, content: object = None) -> dict[str, Any]:
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
                        raise _refused(error) from error
                    time.sleep(int(error.headers.get("Retry-After", "1")))
        raise AssertionError("unreachable: the last attempt returns or raises")


def _refused(error: HTTPError) -> RefusedError:
    request_id = error.headers.get("x-request-id", "-")
    try:
        told = json.load(error)
        return RefusedError(error.code, told["error"], told["message"], request_id)
    except (ValueError, KeyError):  # a proxy said it, not the service
        return RefusedError(error.code, "failed", error.reason, request_id)


def main() -> None:
    """Print each aspect of the texts given on the command line."""
    client = Client(os.environ.get("CAPSAR_URL", Client.url), os.environ.get("CAPSAR_KEY", ""))
    for document in client.analyze(sys.argv[1:]):
        for aspect in document["aspects"]:
            print(f"{aspect['polarity']:<9} {aspect['text']}")  # noqa: T201


if __name__ == "__main__":
    main()
