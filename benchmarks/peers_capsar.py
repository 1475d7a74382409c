"""CAPSAR, asked inside an environment that holds its wheel alone: `peers_capsar.py MODEL`."""

from __future__ import annotations

import sys

from capsar import Analyzer, AspectSpan, load
from peers_answering import Found, Place, answer_requests


class Capsar:
    """A model that ships, or a bundle."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

    def find(self, texts: list[str]) -> list[list[Found]]:
        """Find aspects as the model does by default."""
        return [
            [(one.start, one.end, str(one.polarity)) for one in answers]
            for answers in self._analyzer.analyze(texts)
        ]

    def classify(self, texts: list[str], places: list[list[Place]]) -> list[list[str]]:
        """Classify all aspects of a text at once."""
        asked = [[AspectSpan(start, end) for start, end in own] for own in places]
        return [
            [str(one.polarity) for one in answers]
            for answers in self._analyzer.classify(texts, asked)
        ]


if __name__ == "__main__":
    answer_requests(Capsar(load(sys.argv[1], threads=1)))
