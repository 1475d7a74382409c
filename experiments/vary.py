"""Labelled sentences with some words left out or changed, for a teacher to tell what is felt now.

As Tang et al. (2019) do it, without parts of speech: *Distilling Task-Specific Knowledge from BERT
into Simple Neural Networks*.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capsar import AspectSpan, Example

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

LEFT_OUT = 0.1
CHANGED = 0.15
"""Shares of the words outside of the aspect."""
_WORD = re.compile(r"(\S+)(\s*)")


def vary(example: Example, words: Sequence[str], random: Random) -> Example:
    """Return an example like one, some of its words left out or changed for any of `words`.

    The aspect, of one mention, stays as it is. No polarity is known any more.
    """
    (span,) = example.spans
    before = _vary_text(example.text[: span.start], words, random)
    after = _vary_text(example.text[span.end :], words, random)
    moved = AspectSpan(len(before), len(before) + span.end - span.start)
    return Example(before + example.text[span.start : span.end] + after, (moved,))


def _vary_text(text: str, words: Sequence[str], random: Random) -> str:
    def change(match: re.Match[str]) -> str:
        chance = random.random()
        if chance < LEFT_OUT:
            return ""
        return random.choice(words) + match[2] if chance < LEFT_OUT + CHANGED else match[0]

    return _WORD.sub(change, text)
