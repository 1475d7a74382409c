"""`AspectSentiment`: what every way of asking answers with, and how it is written as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.labels import Polarity
    from capsar.text import Span

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AspectSentiment:
    """What is felt about one aspect of a text."""

    text: str
    """The aspect as it stands in the text: `text == review[start:end]`."""
    start: int
    end: int
    polarity: Polarity
    scores: dict[Polarity, float]
    """The length of each sentiment capsule, from 0 to 1. Not a probability."""
    confidence: float | None = None
    """The probability that the polarity is right; nothing if the model has no calibration, or if
    opened capsules named the aspect."""
    aspect_confidence: float | None = None
    """The probability that this is an aspect, with just these ends; nothing if it was given, or if
    the model has no calibration of that."""
    abstained: bool = False
    """Whether either of them is below the `min_confidence` that was asked for: the polarity is then
    a guess, and not an answer."""
    windowed: bool = False
    """Whether the aspect's sentence was overlong, and read in windows."""

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as JSON holds it."""
        return {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "polarity": str(self.polarity),
            "scores": {str(name): round(score, 6) for name, score in self.scores.items()},
            "confidence": _rounded(self.confidence),
            "aspect_confidence": _rounded(self.aspect_confidence),
            "abstained": self.abstained,
        } | ({"windowed": True} if self.windowed else {})

    def asked(self, min_confidence: float) -> AspectSentiment:
        """Return the answer as somebody gets it who wants one only if it is so sure."""
        known = (self.confidence, self.aspect_confidence)
        unsure = any(value is not None and value < min_confidence for value in known)
        return replace(self, abstained=True) if unsure else self


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def document(
    text: str, aspects: list[AspectSentiment], sentences: Sequence[Span] = ()
) -> dict[str, Any]:
    """Return a text, its sentences and its aspects as one JSON object."""
    return {
        "schema_version": SCHEMA_VERSION,
        "text": text,
        "sentences": [list(sentence) for sentence in sentences],
        "aspects": [aspect.as_dict() for aspect in aspects],
    }
