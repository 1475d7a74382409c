"""Augmentation of labelled sentences: drop or replace words outside of the aspect.

As in Tang et al. (2019), *Distilling Task-Specific Knowledge from BERT into Simple Neural
Networks*, without parts of speech. A teacher then labels the new sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from capsar import AspectSpan, Example

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

DROPPED = 0.1
REPLACED = 0.15
"""Shares of the words outside of the aspect."""
_WORD = re.compile(r"(\S+)(\s*)")


def augment(example: Example, words: Sequence[str], random: Random) -> Example:
    """Return an unlabelled example with some words dropped or replaced by any of `words`.

    The aspect, which has one mention, is kept.
    """
    (span,) = example.spans
    before = _augment_text(example.text[: span.start], words, random)
    after = _augment_text(example.text[span.end :], words, random)
    moved = AspectSpan(len(before), len(before) + span.end - span.start)
    return Example(before + example.text[span.start : span.end] + after, (moved,))


def _augment_text(text: str, words: Sequence[str], random: Random) -> str:
    def change(match: re.Match[str]) -> str:
        chance = random.random()
        if chance < DROPPED:
            return ""
        return random.choice(words) + match[2] if chance < DROPPED + REPLACED else match[0]

    return _WORD.sub(change, text)
