"""Sentences that sets share, exactly or nearly: what must not be trained on and judged on."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from capsar.text import segment, spelling

if TYPE_CHECKING:
    from collections.abc import Iterable

GRAM_WORDS = 5
NEAR_SHARE = 0.5


class Sharing(StrEnum):
    """How a sentence is found in another set."""

    EXACT = "exact"
    """The same words in the same order, case and punctuation aside."""
    NEAR = "near"
    """Half or more of the word 5-grams of the shorter sentence stand in the other one."""


class SentenceIndex:
    """The sentences of one or more sets, ready to be asked which of them hold another sentence.

    >>> index = SentenceIndex()
    >>> index.add("test", ["The soup was cold and the staff were lovely!"])
    >>> index.find("the soup was cold, and the staff were lovely")
    {'test': <Sharing.EXACT: 'exact'>}
    >>> index.find("My soup was cold and the staff were rude")
    {'test': <Sharing.NEAR: 'near'>}
    """

    def __init__(self) -> None:
        self._exact: defaultdict[int, set[str]] = defaultdict(set)
        self._holders: defaultdict[int, list[int]] = defaultdict(list)
        self._sizes: list[int] = []  # number of 5-grams of each sentence
        self._sets: list[str] = []  # the set each sentence belongs to

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add the sentences of a set."""
        for text in texts:
            words = content_words(text)
            if not words or name in self._exact[hash(words)]:
                continue
            self._exact[hash(words)].add(name)
            grams = _grams(words)
            for gram in grams:
                self._holders[gram].append(len(self._sizes))
            self._sizes.append(len(grams))
            self._sets.append(name)

    def find(self, text: str) -> dict[str, Sharing]:
        """Say which sets hold a sentence, and how."""
        words = content_words(text)
        if not words:
            return {}
        grams = _grams(words)
        shared = Counter(holder for gram in grams for holder in self._holders.get(gram, ()))
        found = {
            self._sets[holder]: Sharing.NEAR
            for holder, count in shared.items()
            if count >= NEAR_SHARE * min(len(grams), self._sizes[holder])
        }
        return found | dict.fromkeys(self._exact.get(hash(words), ()), Sharing.EXACT)


def content_words(text: str) -> tuple[str, ...]:
    """Return a text's words as a vocabulary spells them, without punctuation."""
    words = (text[start:end] for start, end in segment(text))
    return tuple(_spelling(word) for word in words if any(map(str.isalnum, word)))


@lru_cache(maxsize=2**16)
def _spelling(word: str) -> str:
    return spelling(word)


def _grams(words: tuple[str, ...]) -> set[int]:
    """Hashes of all runs of five words; a shorter sentence can only be found exactly."""
    return {hash(words[i : i + GRAM_WORDS]) for i in range(len(words) - GRAM_WORDS + 1)}
