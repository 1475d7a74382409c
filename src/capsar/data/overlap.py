"""Sentences that sets share, exactly or nearly: what must not be trained on and judged on."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from capsar.text import segment, spelling

if TYPE_CHECKING:
    from collections.abc import Iterable

GRAM_WORDS = 5
NEAR_SHARE = 0.5
MAX_HOLDERS = 50
"""Sentences remembered for one 5-gram: a phrase as common as that proves nothing, and time would
grow with the square of templated reviews. Equal sentences are found all the same."""


class Sharing(StrEnum):
    """How a sentence is found in another set."""

    EXACT = "exact"
    """The same words in the same order, case and punctuation aside."""
    NEAR = "near"
    """Half or more of the word 5-grams of the shorter sentence stand in the other one."""


@dataclass(frozen=True, slots=True)
class Match:
    """A sentence of a set that holds another sentence."""

    sharing: Sharing
    number: int
    """Of the sentence in its set, in the order it was added, from 0."""


class SentenceIndex:
    """The sentences of one or more sets, ready to be asked which of them hold another sentence.

    >>> index = SentenceIndex()
    >>> index.add("test", ["The soup was cold and the staff were lovely!"])
    >>> index.find("the soup was cold, and the staff were lovely")
    {'test': Match(sharing=<Sharing.EXACT: 'exact'>, number=0)}
    >>> index.find("My soup was cold and the staff were rude")
    {'test': Match(sharing=<Sharing.NEAR: 'near'>, number=0)}
    """

    def __init__(self) -> None:
        self._exact: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._holders: defaultdict[int, list[int]] = defaultdict(list)
        self._sizes: list[int] = []  # number of 5-grams of each sentence
        self._places: list[tuple[str, int]] = []  # the set of each sentence, its number there

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add the sentences of a set."""
        for number, text in enumerate(texts):
            words = _key(text)
            if not words or name in self._exact[hash(words)]:
                continue
            self._exact[hash(words)][name] = number
            grams = _grams(words)
            for gram in grams:
                holders = self._holders[gram]
                if len(holders) < MAX_HOLDERS:
                    holders.append(len(self._sizes))
            self._sizes.append(len(grams))
            self._places.append((name, number))

    def find(self, text: str) -> dict[str, Match]:
        """Say which sets hold a sentence, and how."""
        words = _key(text)
        grams = _grams(words)
        shared = Counter(holder for gram in grams for holder in self._holders.get(gram, ()))
        found: dict[str, Match] = {}
        for holder, count in shared.items():
            if count >= NEAR_SHARE * min(len(grams), self._sizes[holder]):
                name, number = self._places[holder]
                found.setdefault(name, Match(Sharing.NEAR, number))
        for name, number in self._exact.get(hash(words), {}).items():
            found[name] = Match(Sharing.EXACT, number)
        return found


def content_words(text: str) -> tuple[str, ...]:
    """Return a text's words as a vocabulary spells them, without punctuation."""
    words = (text[start:end] for start, end in segment(text))
    return tuple(_spelling(word) for word in words if any(map(str.isalnum, word)))


def _key(text: str) -> tuple[str, ...]:
    """What a sentence is compared by; where it has no words (emoji only), its own characters."""
    stripped = text.strip()
    return content_words(text) or ((stripped,) if stripped else ())


@lru_cache(maxsize=2**16)
def _spelling(word: str) -> str:
    return spelling(word)


def _grams(words: tuple[str, ...]) -> set[int]:
    """Hashes of all runs of five words; a shorter sentence can only be found exactly."""
    return {hash(words[i : i + GRAM_WORDS]) for i in range(len(words) - GRAM_WORDS + 1)}
