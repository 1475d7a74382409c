"""A development part cut by sentence, and training data cleared of what it will be judged on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsar.data.overlap import SentenceIndex, Sharing, content_words
from capsar.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from capsar.data.example import Example


@dataclass(frozen=True, slots=True)
class Split:
    """Training data cut in two, and how."""

    train: tuple[Example, ...]
    dev: tuple[Example, ...]
    share: float
    seed: int


@dataclass(frozen=True, slots=True)
class Cleared:
    """Training data without the sentences of the sets it will be judged on."""

    kept: tuple[Example, ...]
    dropped: dict[Sharing, int]
    """How many distinct sentences were dropped, by how they were found."""


def split_dev(examples: Sequence[Example], *, share: float = 0.1, seed: int = 0) -> Split:
    """Cut a development part from training data, by sentence.

    All examples of a sentence, and of any other with the same words, fall on one side. Which side
    is a function of the seed and the words alone: not of the order of the file, the machine or the
    version of Python.

    Raises:
        ConfigError: If either part would be empty.
    """
    if not 0 < share < 1:
        raise ConfigError(f"The share of the dev part must be between 0 and 1, got {share!r}")
    keys = [_sentence_key(example.text) for example in examples]
    ranked = sorted(set(keys), key=lambda key: _rank(key, seed))
    chosen = set(ranked[: round(share * len(ranked))])
    if not chosen or len(chosen) == len(ranked):
        raise ConfigError(
            f"{len(ranked)} different sentences cannot be cut at a share of {share!r}: "
            "one of the two parts would be empty"
        )
    return Split(
        train=tuple(e for e, key in zip(examples, keys, strict=True) if key not in chosen),
        dev=tuple(e for e, key in zip(examples, keys, strict=True) if key in chosen),
        share=share,
        seed=seed,
    )


def split_fold(examples: Sequence[Example], fold: int, *, folds: int, seed: int = 0) -> Split:
    """Cut one of several parts of equal size off, by sentence, as `split_dev` does.

    Raises:
        ConfigError: If there are fewer sentences than parts.
    """
    keys = [_sentence_key(example.text) for example in examples]
    ranked = sorted(set(keys), key=lambda key: _rank(key, seed))
    if len(ranked) < folds:
        raise ConfigError(f"{len(ranked)} different sentences cannot be cut in {folds} parts")
    chosen = set(ranked[fold::folds])
    return Split(
        train=tuple(e for e, key in zip(examples, keys, strict=True) if key not in chosen),
        dev=tuple(e for e, key in zip(examples, keys, strict=True) if key in chosen),
        share=1 / folds,
        seed=seed,
    )


def drop_shared(examples: Iterable[Example], judged_on: Iterable[str]) -> Cleared:
    """Drop from training every sentence that an evaluation set holds, exactly or nearly.

    Args:
        examples: The training data.
        judged_on: The texts of every dev and test set the model will be judged on.
    """
    index = SentenceIndex()
    index.add("judged on", judged_on)
    found: dict[str, Sharing | None] = {}
    kept: list[Example] = []
    for example in examples:
        if example.text not in found:
            match = index.find(example.text).get("judged on")
            found[example.text] = match.sharing if match else None
        if found[example.text] is None:
            kept.append(example)
    counts = Counter(sharing for sharing in found.values() if sharing is not None)
    return Cleared(tuple(kept), {sharing: counts[sharing] for sharing in Sharing})


def sentence_hash(text: str) -> str:
    """Return what names a sentence without giving it away: equal for sentences of equal words."""
    key = _sentence_key(text).encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:16]


def drop_hashed(examples: Iterable[Example], path: Path) -> tuple[list[Example], int]:
    """Drop the sentences whose hashes a JSON file lists; return the rest, and how many there were.

    So training data can be cleared of what test sets hold without opening a test set.

    Raises:
        DataError: If the file is not such a list.
    """
    try:
        hashes = json.loads(path.read_bytes())["hashes"]
        unwanted = {str(value) for value in hashes}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{str(path)!r} is not a JSON object with a list 'hashes' of sentences: {error!r}"
        ) from error
    found: dict[str, bool] = {}
    kept = []
    for example in examples:
        if example.text not in found:
            found[example.text] = sentence_hash(example.text) in unwanted
        if not found[example.text]:
            kept.append(example)
    return kept, sum(found.values())


def _sentence_key(text: str) -> str:
    return " ".join(content_words(text)) or text


def _rank(key: str, seed: int) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=str(seed).encode()).digest()
