"""`Example`: the one record between files, training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsar.errors import AspectNotFoundError, DataError
from capsar.text import cuts_word

if TYPE_CHECKING:
    from capsar.labels import Polarity


MAX_MENTIONS = 10_000
"""Of one aspect in one text."""


@dataclass(frozen=True, slots=True, order=True)
class AspectSpan:
    """Where an aspect stands: half-open character offsets into the untouched text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise DataError(
                f"An aspect span needs 0 <= start < end, got start={self.start}, end={self.end}"
            )


@dataclass(frozen=True, slots=True)
class Example:
    """One judgement: what is felt about one aspect of one sentence.

    A sentence with three aspects is three examples that share its text. `spans` marks every mention
    of the aspect. A sentence in which nothing is judged has neither spans nor polarity; an aspect
    that is judged but not named in the text has a polarity and no spans.

    >>> from capsar import Polarity
    >>> example = Example("The soup was cold.", (AspectSpan(4, 8),), Polarity.NEGATIVE)
    >>> example.aspect
    'soup'
    """

    text: str
    """The text exactly as the file holds it: nothing stripped, nothing normalised."""
    spans: tuple[AspectSpan, ...] = ()
    """Every mention of the aspect, in text order."""
    polarity: Polarity | None = None
    id: str = ""
    """The record's name in its file."""
    group: str = ""
    """What belongs together: the sentence's name; in ARTS the original sentence and aspect."""
    category: str = ""
    """The aspect's category, in datasets that have one."""

    def __post_init__(self) -> None:
        for span in self.spans:
            if span.end > len(self.text):
                raise DataError(
                    f"Aspect span {span.start}:{span.end} ends outside the text, "
                    f"which has {len(self.text)} characters"
                )

    @property
    def aspect(self) -> str | None:
        """The aspect's first mention as it stands in the text."""
        return self.text[self.spans[0].start : self.spans[0].end] if self.spans else None


def find_spans(text: str, aspect: str) -> tuple[AspectSpan, ...]:
    """Return every occurrence of an aspect in a text, matched by exact characters.

    Occurrences that are whole words win; only where there is none do those inside words count
    ("menu" in "menus").

    >>> find_spans("art at the party, art", "art")
    (AspectSpan(start=0, end=3), AspectSpan(start=18, end=21))

    Raises:
        AspectNotFoundError: If there is no occurrence.
    """
    spans: list[AspectSpan] = []
    start = text.find(aspect) if aspect.strip() else -1
    while start >= 0:
        spans.append(AspectSpan(start, start + len(aspect)))
        if len(spans) > MAX_MENTIONS:
            raise DataError(f"Aspect {_shorten(aspect)!r} occurs more than {MAX_MENTIONS} times")
        start = text.find(aspect, start + len(aspect))
    if not spans:
        place = text.lower().find(aspect.lower()) if aspect.strip() else -1
        there = text[place : place + len(aspect)] if place >= 0 else ""
        # Some letters are longer in lower case: only what is the same but for case is told.
        told = f", as {_shorten(there)!r}" if there.lower() == aspect.lower() and there else ""
        raise AspectNotFoundError(
            f"Aspect {_shorten(aspect)!r} does not occur in the text. Aspects are matched by exact "
            f"characters; write it as it stands there{told}."
        )
    whole = [s for s in spans if not (cuts_word(text, s.start) or cuts_word(text, s.end))]
    return tuple(whole or spans)


def whole_words(text: str, span: AspectSpan) -> AspectSpan:
    """Return a span drawn out to the ends of the words it cuts.

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
