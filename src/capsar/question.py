"""`Question`: what is read of a text, the aspects asked about, and how many are asked at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any

from capsar.data.example import AspectSpan, find_spans
from capsar.errors import DataError
from capsar.text import Span, segment, words_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Aspect = str | AspectSpan
"""An aspect as its exact characters (every occurrence counts), or as one place in the text."""

_SENTENCES_A_BATCH = 64
_WORDS_A_BATCH = 8192
_PLACES_AT_ONCE = 2**20
"""Words times mentions of all aspects that are routed together."""
_PLACES_OF_ONE = 2**25
"""The same of one aspect: more would not fit in memory."""


@dataclass(frozen=True, slots=True)
class Question:
    """A text, its words that are read, and the mentions of each aspect (none: no aspect)."""

    text: str
    words: list[Span]
    aspects: list[tuple[AspectSpan, ...]]
    windowed: bool = False
    """Whether the words are those of a window of an overlong sentence."""

    @classmethod
    def make(cls, text: str, aspects: Sequence[Aspect | None]) -> Question:
        """Read a text as one, and find where its aspects stand.

        Raises:
            DataError: If it is no text, or an aspect is not in it.
        """
        check_text(text)
        return cls(text, segment(text), [locate(text, aspect) for aspect in aspects])

    def spelled(self) -> list[str]:
        """Return the words as they are written."""
        return [self.text[start:end] for start, end in self.words]

    def first_mention(self) -> list[str]:
        """Return the words of the first mention of the first aspect; none if there is none."""
        for span in self.aspects[0]:
            touched = words_within(self.words, span.start, span.end)
            if touched:
                places = self.words[touched[0] : touched[-1] + 1]
                return [self.text[start:end] for start, end in places]
        return []

    def first_words(self, spans: tuple[AspectSpan, ...]) -> list[int]:
        """Return the first word of each mention of an aspect."""
        touched = (words_within(self.words, span.start, span.end) for span in spans)
        return [words[0] for words in touched if words]


def as_list(aspects: Aspect | Sequence[Aspect]) -> list[Aspect]:
    """Return the aspects that a caller asks about, one or several.

    Raises:
        DataError: If one of them is none.
    """
    if isinstance(aspects, str | AspectSpan):
        return [aspects]
    asked: Any = aspects  # whatever a caller may give
    given = list(asked) if isinstance(asked, Iterable) else [asked]
    for aspect in given:
        if not isinstance(aspect, str | AspectSpan):
            kind = type(aspect).__name__
            raise DataError(f"An aspect is a string or an AspectSpan, got {kind}")
    return given


def check_text(text: object) -> None:
    """Refuse what is no text.

    Raises:
        DataError: If it is none.
    """
    if not isinstance(text, str):
        shown = f"{shortened(text)} ({type(text).__name__})"
        raise DataError(
            f"A text must be a string, got {shown}. Give '' where there is none; a column of "
            "pandas does so with .fillna('')"
        )


def check_many(given: object, what: str) -> None:
    """Refuse what would be read letter by letter, by its keys, or by the names of its columns.

    Raises:
        DataError: If it is one string, a mapping, a table, or nothing to go through.
    """
    wanted = f"Expected a list of {what}, got"
    if isinstance(given, str | bytes):
        raise DataError(f"{wanted} one string. Put it in a list.")
    if isinstance(given, Mapping):
        raise DataError(f"{wanted} a mapping, whose keys are no {what}. Give its values.")
    if hasattr(given, "columns"):  # of pandas, polars or Arrow
        kind = type(given).__name__
        raise DataError(f"{wanted} a table ({kind}). Give one column of it, as frame['review'].")
    if not isinstance(given, Iterable):
        raise DataError(f"{wanted} {shortened(given)} ({type(given).__name__}).")


def locate(text: str, aspect: Aspect | None) -> tuple[AspectSpan, ...]:
    """Return the mentions of an aspect in a text.

    Raises:
        DataError: If it is not in it.
    """
    if aspect is None:
        return ()
    if isinstance(aspect, AspectSpan):
        if aspect.end > len(text):
            size = len(text)
            raise DataError(f"{aspect} ends outside the text, which has {size} characters")
        return (aspect,)
    if not isinstance(aspect, str):
        raise DataError(f"An aspect is a string or an AspectSpan, got {type(aspect).__name__}")
    return find_spans(text, aspect)


def route_slices(number: int, places_of_one: int) -> Iterator[slice]:
    """Cut aspects into runs that are routed together, in bounded memory."""
    if places_of_one > _PLACES_OF_ONE:
        raise DataError(
            f"An aspect has too many mentions in a text as long as this one ({places_of_one} words "
            f"times mentions; at most {_PLACES_OF_ONE}). Give the places that matter as AspectSpan."
        )
    size = max(1, _PLACES_AT_ONCE // places_of_one)
    for start in range(0, number, size):
        yield slice(start, start + size)


def batches_by_length(order: list[int], sizes: list[int]) -> Iterator[list[int]]:
    """Cut texts in order of length into batches, of few texts where they are long."""
    batch: list[int] = []
    for index in order:
        longest = max(1, sizes[index])  # those before are not longer
        if (batch and (len(batch) + 1) * longest > _WORDS_A_BATCH) or len(
            batch
        ) == _SENTENCES_A_BATCH:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
