"""Validation splits by sentence, and sentences that two data sets share.

A sentence that is in both the training and the evaluation data, exactly or nearly, would make the
evaluation too optimistic: `decontaminate` removes it from the training data.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from capsar.errors import ConfigError, DataError
from capsar.tokenizer import spelling, tokenize_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from capsar.schema import Example

NGRAM_WORDS = 5
NEAR_RATIO = 0.5
MAX_POSTINGS = 50
"""Sentences indexed per 5-gram: more frequent phrases are not evidence of overlap, and templated
reviews would take quadratic time. Exact matches do not depend on it."""


class MatchKind(StrEnum):
    """How a sentence matches another one."""

    EXACT = "exact"
    """The same words in the same order, ignoring case and punctuation."""
    NEAR = "near"
    """At least half of the word 5-grams of the shorter sentence are in the other one."""


@dataclass(frozen=True, slots=True)
class Match:
    """A sentence of an indexed set that matches a query."""

    kind: MatchKind
    number: int
    """Position of the sentence in its set, from 0."""


class SentenceIndex:
    """An index of the sentences of one or more sets, for exact and near matches.

    >>> index = SentenceIndex()
    >>> index.add("test", ["The soup was cold and the staff were lovely!"])
    >>> index.find("the soup was cold, and the staff were lovely")
    {'test': Match(kind=<MatchKind.EXACT: 'exact'>, number=0)}
    >>> index.find("My soup was cold and the staff were rude")
    {'test': Match(kind=<MatchKind.NEAR: 'near'>, number=0)}
    """

    def __init__(self) -> None:
        self._exact: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._postings: defaultdict[int, list[int]] = defaultdict(list)
        self._num_ngrams: list[int] = []  # of each indexed sentence
        self._sources: list[tuple[str, int]] = []  # its set, and its number in that set

    def add(self, name: str, texts: Iterable[str]) -> None:
        """Add the sentences of a set."""
        for number, text in enumerate(texts):
            words = _match_key(text)
            if not words or name in self._exact[hash(words)]:
                continue
            self._exact[hash(words)][name] = number
            ngrams = _ngrams(words)
            for ngram in ngrams:
                postings = self._postings[ngram]
                if len(postings) < MAX_POSTINGS:
                    postings.append(len(self._num_ngrams))
            self._num_ngrams.append(len(ngrams))
            self._sources.append((name, number))

    def find(self, text: str) -> dict[str, Match]:
        """Return the match of a sentence in each set that holds it."""
        words = _match_key(text)
        ngrams = _ngrams(words)
        shared = Counter(i for ngram in ngrams for i in self._postings.get(ngram, ()))
        found: dict[str, Match] = {}
        for i, count in shared.items():
            if count >= NEAR_RATIO * min(len(ngrams), self._num_ngrams[i]):
                name, number = self._sources[i]
                found.setdefault(name, Match(MatchKind.NEAR, number))
        for name, number in self._exact.get(hash(words), {}).items():
            found[name] = Match(MatchKind.EXACT, number)
        return found


def content_words(text: str) -> tuple[str, ...]:
    """Return the normalized words of a text, without punctuation."""
    words = (text[start:end] for start, end in tokenize_words(text))
    return tuple(_normalize(word) for word in words if any(map(str.isalnum, word)))


_normalize = lru_cache(maxsize=2**16)(spelling)


def _match_key(text: str) -> tuple[str, ...]:
    """Return the words of a sentence; of one without words (emoji only), its characters."""
    stripped = text.strip()
    return content_words(text) or ((stripped,) if stripped else ())


def _ngrams(words: tuple[str, ...]) -> set[int]:
    """Return the hashes of all 5-grams; a shorter sentence has none and can only match exactly."""
    return {hash(words[i : i + NGRAM_WORDS]) for i in range(len(words) - NGRAM_WORDS + 1)}


@dataclass(frozen=True, slots=True)
class Split:
    """Training data divided in two."""

    train: list[Example]
    validation: list[Example]


def split_validation(examples: Sequence[Example], *, ratio: float = 0.1, seed: int = 0) -> Split:
    """Split off a validation set by sentence.

    All examples of a sentence, and of any other with the same words, are in the same part. The part
    depends only on the seed and the words: not on file order, machine or Python version.

    Raises:
        ConfigError: If either part would be empty.
    """
    if not 0 < ratio < 1:
        raise ConfigError(f"The validation ratio must be between 0 and 1, got {ratio!r}")
    keys = _shuffled_keys(examples, seed)
    size = round(ratio * len(keys))
    if not 0 < size < len(keys):
        raise ConfigError(
            f"{len(keys)} different sentences cannot be split with a validation ratio of "
            f"{ratio!r}: one part would be empty"
        )
    return _split(examples, set(keys[:size]))


def split_fold(examples: Sequence[Example], fold: int, *, folds: int, seed: int = 0) -> Split:
    """Split off one of `folds` parts of equal size, by sentence as `split_validation` does.

    Raises:
        ConfigError: If there are fewer sentences than folds.
    """
    keys = _shuffled_keys(examples, seed)
    if len(keys) < folds:
        raise ConfigError(f"{len(keys)} different sentences cannot be split into {folds} folds")
    return _split(examples, set(keys[fold::folds]))


def _shuffled_keys(examples: Iterable[Example], seed: int) -> list[str]:
    """Return the distinct sentence keys in an order that depends only on the keys and the seed."""

    def rank(key: str) -> bytes:
        return hashlib.blake2b(_encode(key), key=str(seed).encode()).digest()

    return sorted({_sentence_key(example.text) for example in examples}, key=rank)


def _split(examples: Iterable[Example], validation_keys: set[str]) -> Split:
    split = Split([], [])
    for example in examples:
        is_validation = _sentence_key(example.text) in validation_keys
        (split.validation if is_validation else split.train).append(example)
    return split


@dataclass(frozen=True, slots=True)
class Decontaminated:
    """Training data without the sentences of evaluation sets."""

    kept: list[Example]
    dropped: dict[MatchKind, int]
    """Number of distinct sentences dropped, by kind of match."""


def decontaminate(examples: Iterable[Example], evaluation_texts: Iterable[str]) -> Decontaminated:
    """Drop every training sentence that is in an evaluation set, exactly or nearly.

    Args:
        examples: The training data.
        evaluation_texts: The texts of every validation and test set of the model.
    """
    index = SentenceIndex()
    index.add("evaluation", evaluation_texts)
    kinds: dict[str, MatchKind | None] = {}
    kept: list[Example] = []
    for example in examples:
        if example.text not in kinds:
            match = index.find(example.text).get("evaluation")
            kinds[example.text] = match.kind if match else None
        if kinds[example.text] is None:
            kept.append(example)
    counts = Counter(kinds.values())
    return Decontaminated(kept, {kind: counts[kind] for kind in MatchKind})


def sentence_hash(text: str) -> str:
    """Return a hash that identifies a sentence by its words without revealing it."""
    return hashlib.sha256(_encode(_sentence_key(text))).hexdigest()[:16]


def drop_hashed(examples: Iterable[Example], path: Path) -> tuple[list[Example], int]:
    """Drop the sentences whose hashes a JSON file lists; return the rest and the number dropped.

    With it, training data can be decontaminated without opening a test set.

    Raises:
        DataError: If the file is not such a list.
    """
    try:
        hashes = {str(value) for value in json.loads(path.read_bytes())["hashes"]}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{str(path)!r} is not a JSON object with a list 'hashes' of sentences: {error!r}"
        ) from error
    is_listed: dict[str, bool] = {}
    kept = []
    for example in examples:
        if example.text not in is_listed:
            is_listed[example.text] = sentence_hash(example.text) in hashes
        if not is_listed[example.text]:
            kept.append(example)
    return kept, sum(is_listed.values())


def _sentence_key(text: str) -> str:
    return " ".join(content_words(text)) or text


def _encode(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
