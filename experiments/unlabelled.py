"""The sentences of reviews that nobody labelled, for teachers to tell what is felt in them."""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

from capsar.data.catalog import find_file
from capsar.sentences import split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator

UNLABELLED = {
    "yelp-sentences": ("restaurant",),
    "amazon": ("electronics", "camera-photo", "software", "kitchen-housewares"),
}
"""What is read, and which parts of it."""
_FEWEST_CHARACTERS = 12
_MOST_CHARACTERS = 400


def read_unlabelled(name: str, part: str) -> Iterator[str]:
    """Yield the distinct sentences of a part, but for scraps and for what never ends."""
    seen = set()
    for line in find_file(name, part).read_text(encoding="utf-8", errors="replace").splitlines():
        for sentence in _sentences(name, unescape(line)):
            if _FEWEST_CHARACTERS <= len(sentence) <= _MOST_CHARACTERS and sentence not in seen:
                seen.add(sentence)
                yield sentence


def _sentences(name: str, line: str) -> list[str]:
    """The sentences of a line: Yelp's are one each, in the second column."""
    if name == "yelp-sentences":
        return [line.split("\t")[1].strip()]
    return [line[start:end].strip() for start, end in split_sentences(line)]
