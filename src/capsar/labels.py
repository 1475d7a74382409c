"""The sentiment categories, their order in every array, and how data files spell them."""

from __future__ import annotations

from enum import StrEnum

from capsar.errors import DataError


class Polarity(StrEnum):
    """What is felt about an aspect.

    >>> Polarity.POSITIVE == "positive"
    True
    """

    NEGATIVE = "negative"
    NEUTRAL = "neutral"
    POSITIVE = "positive"
    CONFLICT = "conflict"
    """Both at once: a label of some datasets, never a class of the network."""


CLASSES: tuple[Polarity, ...] = (Polarity.NEGATIVE, Polarity.NEUTRAL, Polarity.POSITIVE)
"""The classes of the network; a capsule's index is its place here."""

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
        DataError: If the spelling is not known.
    """
    polarity = _SPELLINGS.get(value.strip().lower())
    if polarity is None:
        known = ", ".join(_SPELLINGS)
        shown = value if len(value) <= 40 else value[:40] + "…"  # noqa: PLR2004
        raise DataError(f"{shown!r} is not a polarity; expected one of: {known} (any case)")
    return polarity
