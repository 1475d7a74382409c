"""Marked-up sentences, as in `The [soup]+ was fine, the [service]- was not`.

A term is in brackets, followed by its polarity: `+` positive, `-` negative, `=` neutral or `~`
conflict. Everything else is the text, character by character. The corpus and the behavioral suite
are written in this form.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capsar.errors import DataError
from capsar.schema import AspectSpan, Polarity

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKS = {
    "+": Polarity.POSITIVE,
    "-": Polarity.NEGATIVE,
    "=": Polarity.NEUTRAL,
    "~": Polarity.CONFLICT,
}
_TERM = re.compile(r"\[([^\[\]]+)\]([-+=~])")
_SYMBOLS = {polarity: mark for mark, polarity in MARKS.items()}

Term = tuple[AspectSpan, Polarity]


def parse_markup(line: str) -> tuple[str, list[Term]]:
    """Return the text of a marked-up sentence and its terms, in text order.

    >>> parse_markup("No [lift]-, though.")
    ('No lift, though.', [(AspectSpan(start=3, end=7), <Polarity.NEGATIVE: 'negative'>)])

    Raises:
        DataError: If a bracket is left over, or a term is empty or has blanks at its ends.
    """
    parts: list[str] = []
    terms: list[Term] = []
    position = length = 0
    for match in _TERM.finditer(line):
        between = line[position : match.start()]
        parts += [between, match[1]]
        start = length + len(between)
        length = start + len(match[1])
        if match[1] != match[1].strip():
            raise DataError(f"The term {match[1]!r} begins or ends with a blank in {line!r}")
        terms.append((AspectSpan(start, length), MARKS[match[2]]))
        position = match.end()
    text = "".join([*parts, line[position:]])
    if "[" in text or "]" in text:
        raise DataError(f"A bracket does not belong to any term in {line!r}; write [term]+")
    return text, terms


def format_markup(text: str, terms: Iterable[Term]) -> str:
    """Return the marked-up form of a sentence: the inverse of `parse_markup`.

    >>> format_markup("No lift, though.", [(AspectSpan(3, 7), Polarity.NEGATIVE)])
    'No [lift]-, though.'

    Raises:
        DataError: If the text holds a bracket, or a term overlaps another one, ends outside the
            text, or has blanks at its ends.
    """
    if "[" in text or "]" in text:
        raise DataError(f"A text with brackets cannot be marked up: {text!r}")
    parts: list[str] = []
    position = 0
    for span, polarity in sorted(terms):
        term = text[span.start : span.end]
        if span.start < position or span.end > len(text) or term != term.strip():
            raise DataError(
                f"The term at {span.start}:{span.end} overlaps another one, ends outside the text "
                f"or has blanks at its ends in {text!r}"
            )
        parts.append(text[position : span.start])
        parts.append(f"[{text[span.start : span.end]}]{_SYMBOLS[polarity]}")
        position = span.end
    return "".join([*parts, text[position:]])
