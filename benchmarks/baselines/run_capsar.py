"""CAPSAR in an environment with only its wheel: `run_capsar.py MODEL`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from baselines.protocol import Prediction, Span, serve
from capsar import Analyzer, AspectSpan, load


class Capsar:
    """A bundled model, or a bundle."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer

    def extract(self, texts: list[str]) -> list[list[Prediction]]:
        """Extract aspects in the model's default mode."""
        return [
            [(one.start, one.end, str(one.polarity)) for one in found]
            for found in self._analyzer.analyze(texts)
        ]

    def classify(self, texts: list[str], spans: list[list[Span]]) -> list[list[str]]:
        """Classify all aspects of a text at once."""
        aspects = [[AspectSpan(start, end) for start, end in own] for own in spans]
        return [
            [str(one.polarity) for one in found]
            for found in self._analyzer.classify(texts, aspects)
        ]


if __name__ == "__main__":
    serve(Capsar(load(sys.argv[1], threads=1)))
