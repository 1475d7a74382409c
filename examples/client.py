"""A typed client of `capsar serve`, in the standard library alone: copy it, and change it.

`python examples/client.py "Great food, terrible service."`
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TypedDict, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Sequence

Polarity = Literal["negative", "neutral", "positive"]


class Aspect(TypedDict):
    """What is felt about one aspect: `text == document["text"][start:end]`."""

    text: str
    start: int
    end: int
    polarity: Polarity
    scores: dict[Polarity, float]


class Document(TypedDict):
    """A text and its aspects."""

    schema_version: int
    text: str
    aspects: list[Aspect]


class RefusedError(Exception):
    """The service said no; the message tells why."""


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

    def classify(self, text: str, aspects: Sequence[str]) -> Document:
        """Return what is felt about given aspects of a text."""
        return cast("Document", self._ask("/v1/classify", {"text": text, "aspects": list(aspects)}))

    def _ask(self, path: str, content: object) -> dict[str, object]:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = Request(self.url + path, json.dumps(content).encode(), headers)  # noqa: S310
        for attempt in range(1, self.attempts + 1):
            try:
                with urlopen(request, timeout=self.timeout_seconds) as response:  # noqa: S310
                    return cast("dict[str, object]", json.load(response))
            except HTTPError as error:
                with error:
                    if error.code != HTTPStatus.SERVICE_UNAVAILABLE or attempt == self.attempts:
                        raise RefusedError(json.load(error)["message"]) from error
                    time.sleep(int(error.headers.get("Retry-After", "1")))
        raise AssertionError("unreachable: the last attempt returns or raises")


def main() -> None:
    """Print each aspect of the texts given on the command line."""
    for document in Client().analyze(sys.argv[1:]):
        for aspect in document["aspects"]:
            print(f"{aspect['polarity']:<9} {aspect['text']}")  # noqa: T201


if __name__ == "__main__":
    main()
