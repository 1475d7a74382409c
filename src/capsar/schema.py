"""The records of the library: `Polarity`, `AspectSpan`, `Example` and `AspectSentiment`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from capsar.errors import AspectNotFoundError, DataError
from capsar.tokenizer import cuts_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.tokenizer import Span

SCHEMA_VERSION = 1
"""Version of the JSON output."""

MAX_MENTIONS = 10_000
"""Maximum number of mentions of one aspect in one text."""


class Polarity(StrEnum):
    """The sentiment toward an aspect.

    >>> Polarity.POSITIVE == "positive"
    True
    """

    NEGATIVE = "negative"
    NEUTRAL = "neutral"
    POSITIVE = "positive"
    CONFLICT = "conflict"
    """Both positive and negative: a label of some datasets, never a class of the network."""


CLASSES: tuple[Polarity, ...] = (Polarity.NEGATIVE, Polarity.NEUTRAL, Polarity.POSITIVE)
"""The classes of the network, in the order of every array."""

_SPELLINGS = {
    "negative": Polarity.NEGATIVE,
    "neg": Polarity.NEGATIVE,
    "-1": Polarity.NEGATIVE,
    "neutral": Polarity.NEUTRAL,
    "neu": Polarity.NEUTRAL,
    "0": Polarity.NEUTRAL,
    "positive": Polarity.POSITIVE,
    "pos": Polarity.POSITIVE,
    "1": Polarity.POSITIVE,
    "+1": Polarity.POSITIVE,
    "conflict": Polarity.CONFLICT,
}


def parse_polarity(value: str) -> Polarity:
    """Return the polarity that a data file spells as `value`.

    >>> parse_polarity(" Positive ")
    <Polarity.POSITIVE: 'positive'>

    Raises:
        DataError: If the spelling is unknown.
    """
    polarity = _SPELLINGS.get(value.strip().lower())
    if polarity is None:
        raise DataError(
            f"{_shorten(value)!r} is not a polarity; expected one of: {', '.join(_SPELLINGS)} "
            "(any case)"
        )
    return polarity


@dataclass(frozen=True, slots=True, order=True)
class AspectSpan:
    """The position of an aspect: half-open character offsets into the unmodified text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise DataError(
                f"An aspect span needs 0 <= start < end, got start={self.start}, end={self.end}"
            )


@dataclass(frozen=True, slots=True)
class Example:
    """The labeled sentiment toward one aspect of one sentence.

    A sentence with three aspects is three examples that share its text. A sentence without opinions
    has neither spans nor polarity; an aspect that the text does not mention has a polarity and no
    spans.

    >>> from capsar import Polarity
    >>> example = Example("The soup was cold.", (AspectSpan(4, 8),), Polarity.NEGATIVE)
    >>> example.aspect
    'soup'
    """

    text: str
    """The text exactly as in the file, without stripping or normalization."""
    spans: tuple[AspectSpan, ...] = ()
    """Every mention of the aspect, in text order."""
    polarity: Polarity | None = None
    id: str = ""
    """The record's identifier in its file."""
    group: str = ""
    """The identifier shared by related examples: the sentence; in ARTS the original example."""
    category: str = ""
    """The aspect category, in datasets that have one."""

    def __post_init__(self) -> None:
        for span in self.spans:
            if span.end > len(self.text):
                raise DataError(
                    f"Aspect span {span.start}:{span.end} ends outside the text, "
                    f"which has {len(self.text)} characters"
                )

    @property
    def aspect(self) -> str | None:
        """The first mention of the aspect, as written in the text."""
        return self.text[self.spans[0].start : self.spans[0].end] if self.spans else None


def find_mentions(text: str, aspect: str) -> tuple[AspectSpan, ...]:
    """Return every occurrence of an aspect in a text, matched by exact characters.

    Occurrences inside longer words ("menu" in "menus") are used only if no occurrence is a whole
    word.

    >>> find_mentions("art at the party, art", "art")
    (AspectSpan(start=0, end=3), AspectSpan(start=18, end=21))

    Raises:
        AspectNotFoundError: If the aspect does not occur.
    """
    spans: list[AspectSpan] = []
    start = text.find(aspect) if aspect.strip() else -1
    while start >= 0:
        spans.append(AspectSpan(start, start + len(aspect)))
        if len(spans) > MAX_MENTIONS:
            raise DataError(f"Aspect {_shorten(aspect)!r} occurs more than {MAX_MENTIONS} times")
        start = text.find(aspect, start + len(aspect))
    if not spans:
        start = text.lower().find(aspect.lower()) if aspect.strip() else -1
        found = text[start : start + len(aspect)] if start >= 0 else ""
        # Lower-casing can change the length of a text, so the match is checked.
        hint = f", here {_shorten(found)!r}" if found and found.lower() == aspect.lower() else ""
        raise AspectNotFoundError(
            f"Aspect {_shorten(aspect)!r} does not occur in the text. Aspects are matched by exact "
            f"characters; write it as in the text{hint}."
        )
    whole = [s for s in spans if not (cuts_word(text, s.start) or cuts_word(text, s.end))]
    return tuple(whole or spans)


def whole_words(text: str, span: AspectSpan) -> AspectSpan:
    """Return a span extended to the boundaries of the words that it cuts.

    >>> whole_words("great pictures!", AspectSpan(6, 13))
    AspectSpan(start=6, end=14)
    """
    start, end = span.start, span.end
    while cuts_word(text, start):
        start -= 1
    while cuts_word(text, end):
        end += 1
    return AspectSpan(start, end)


def _shorten(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


@dataclass(frozen=True, slots=True)
class Opinion:
    """A phrase that carries the sentiment toward an aspect."""

    text: str
    """The phrase as written in the text: `text == review[start:end]`."""
    start: int
    end: int
    confidence: float | None = None
    """The calibrated probability that exactly this phrase carries the sentiment."""

    def as_dict(self) -> dict[str, Any]:
        """Return the phrase as a JSON object."""
        offsets = {"text": self.text, "start": self.start, "end": self.end}
        return offsets | {"confidence": _rounded(self.confidence)}


@dataclass(frozen=True, slots=True)
class AspectSentiment:
    """The predicted sentiment toward one aspect of a text."""

    text: str
    """The aspect as written in the text: `text == review[start:end]`."""
    start: int
    end: int
    polarity: Polarity
    scores: dict[Polarity, float]
    """The length of each sentiment capsule, from 0 to 1. Not a probability."""
    confidence: float | None = None
    """The calibrated probability that the polarity is correct. None if the model is not calibrated
    or the mode is `capsules`."""
    aspect_confidence: float | None = None
    """The calibrated probability that this span is an aspect. None if the aspect was given or the
    model is not calibrated."""
    abstained: bool = False
    """Whether a confidence is below the requested `min_confidence`."""
    windowed: bool = False
    """Whether the sentence was too long to process at once and was split into windows."""
    opinions: tuple[Opinion, ...] | None = None
    """The phrases that carry the sentiment, in the order of the text; none for a neutral one. None
    if the model has no opinion head."""
    theme: str | None = None
    """The name of the theme, if themes were given; empty if none of them fits."""
    theme_confidence: float | None = None
    """The probability of the theme, or of none; 1 if a listed term decided."""
    implicit: bool = False
    """Whether the sentence evaluates the theme without naming it: `text` is the sentence."""

    def as_dict(self) -> dict[str, Any]:
        """Return the prediction as a JSON object."""
        content: dict[str, Any] = {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "polarity": str(self.polarity),
            "scores": {str(name): round(score, 6) for name, score in self.scores.items()},
            "confidence": _rounded(self.confidence),
            "aspect_confidence": _rounded(self.aspect_confidence),
            "abstained": self.abstained,
        }
        if self.opinions is not None:
            content["opinions"] = [opinion.as_dict() for opinion in self.opinions]
        if self.theme is not None:
            content |= {
                "theme": self.theme,
                "theme_confidence": _rounded(self.theme_confidence),
                "implicit": self.implicit,
            }
        return content | ({"windowed": True} if self.windowed else {})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def document(
    text: str, aspects: list[AspectSentiment], sentences: Sequence[Span] = ()
) -> dict[str, Any]:
    """Return a text, its sentences and its aspects as a JSON object."""
    return {
        "schema_version": SCHEMA_VERSION,
        "text": text,
        "sentences": [list(sentence) for sentence in sentences],
        "aspects": [aspect.as_dict() for aspect in aspects],
    }
