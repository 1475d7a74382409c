"""What is found -> `AspectSentiment`: by a given aspect, by opened capsules, or by tagged words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capsar.calibration import Calibration, two_sided
from capsar.data.example import AspectSpan
from capsar.evaluation.detection import active_capsules
from capsar.labels import CLASSES, Polarity
from capsar.schema import AspectSentiment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.text import Span

SPANS_MODE, CAPSULES_MODE = MODES = ("spans", "capsules")
"""How aspects are found when nobody names them: by the extraction head, or, as in the paper, by
opening the capsules."""


@dataclass(frozen=True, slots=True)
class FoundSpans:
    """What the extraction head found in a sentence, and what the capsules say of each."""

    places: list[tuple[int, int]]
    """Words of each span: the first, and one past the last."""
    lengths: NDArray[np.float32]
    """Capsule lengths of each (A, C)."""
    scores: NDArray[np.float64]
    """How sure its tags are (A)."""

    def aspects(
        self, text: str, words: Sequence[Span], confidences: Confidences
    ) -> list[AspectSentiment]:
        """Return the aspects, in the order of the text."""
        spans = [AspectSpan(words[first][0], words[end - 1][1]) for first, end in self.places]
        told = confidences.sentiments(text, spans, self.lengths)
        sure = confidences.of_aspects(self.scores)
        return [replace(a, aspect_confidence=c) for a, c in zip(told, sure, strict=True)]


@dataclass(frozen=True, slots=True)
class Confidences:
    """What makes probabilities of capsule lengths and of found spans, where a bundle has it."""

    polarity: Calibration | None = None
    aspect: Calibration | None = None

    @classmethod
    def of(cls, config: dict[str, Any]) -> Confidences:
        """Read the calibrations of a bundle's configuration.

        Raises:
            ArtifactError: If they are damaged.
        """
        content = config.get("calibration")
        known = content if isinstance(content, dict) else {}
        polarity, aspect = known.get("polarity"), known.get("aspect")
        return cls(
            None if polarity is None else Calibration.from_dict(polarity, len(CLASSES)),
            None if aspect is None else Calibration.from_dict(aspect, 2),
        )

    def sentiments(
        self, text: str, spans: Sequence[AspectSpan], lengths: NDArray[np.float32]
    ) -> list[AspectSentiment]:
        """Return what capsules of these lengths (A, C) say of places, and how surely."""
        sure: list[float | None] = [None] * len(spans)
        if self.polarity is not None and len(spans):
            longest = lengths.argmax(-1)
            sure = self.polarity.apply(lengths)[np.arange(len(spans)), longest].tolist()
        return [
            replace(sentiment_of(text, span, own), confidence=confidence)
            for span, own, confidence in zip(spans, lengths, sure, strict=True)
        ]

    def of_aspects(self, scores: NDArray[np.float64]) -> list[float | None]:
        """Return the probability of each found span (A) being an aspect."""
        if self.aspect is None or not len(scores):
            return [None] * len(scores)
        known: list[float | None] = self.aspect.apply(two_sided(scores))[:, 1].tolist()
        return known


def find_aspects(
    text: str,
    words: Sequence[Span],
    lengths: NDArray[np.float32],
    about: NDArray[np.float32],
    *,
    threshold: float,
) -> list[AspectSentiment]:
    """Return what the active capsules are about: words that score at least `threshold`.

    Every active capsule (or, if none is, the longest) claims the words it is about, and in any case
    the one it is most about; a word that several claim goes to the one for which length times score
    is largest. Neighbouring words of one capsule are one aspect. Punctuation is never an aspect.

    Args:
        text: The text.
        words: Its words.
        lengths: Of the sentiment capsules (C).
        about: The score of each capsule and word (C, T or more).
        threshold: The least score of a word of an aspect.
    """
    named = np.array([any(map(str.isalnum, text[start:end])) for start, end in words], dtype=bool)
    if not named.any():
        return []
    active = np.isin(np.arange(len(CLASSES)), active_capsules(lengths)[0])  # (C)
    able = np.where(named, about[:, : len(words)], -np.inf)  # (C, T)
    wanted = (able >= threshold) | (able == able.max(1, keepdims=True))
    claims = wanted & named & active[:, None]
    scores = np.where(claims, able * lengths[:, None], -np.inf)  # (C, T)
    owner = np.where(claims.any(0), scores.argmax(0), -1)  # (T)
    aspects: list[AspectSentiment] = []
    previous = -1
    for (start, end), capsule in zip(words, owner, strict=True):
        if capsule >= 0 and capsule == previous:
            start = aspects.pop().start  # noqa: PLW2901  (the aspect goes on)
        if capsule >= 0:
            span = AspectSpan(start, end)
            aspects.append(sentiment_of(text, span, lengths, CLASSES[int(capsule)]))
        previous = int(capsule)
    return aspects


def sentiment_of(
    text: str, span: AspectSpan, lengths: NDArray[np.float32], polarity: Polarity | None = None
) -> AspectSentiment:
    """Return what capsules of these lengths (C) say of one place; by default the longest rules."""
    return AspectSentiment(
        text=text[span.start : span.end],
        start=span.start,
        end=span.end,
        polarity=polarity or CLASSES[int(lengths.argmax())],
        scores=dict(zip(CLASSES, lengths.tolist(), strict=True)),
    )
