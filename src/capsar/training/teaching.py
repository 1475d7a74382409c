"""What an example counts for, and what trained models tell of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from capsar.analyze import load
from capsar.config import list_sources
from capsar.hub import find_bundle
from capsar.training.told import cache_of, keep_block, kept_blocks, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.config import Sources
    from capsar.data.example import Example
    from capsar.training.batches import EncodedExample

_BLOCK = 2048
"""Questions whose answers are kept together."""


def balance_classes(encoded: list[EncodedExample], balance: float) -> list[EncodedExample]:
    """Let each example count for the share of its class to the power of minus `balance`.

    Weights are one on average. Examples of no class, there for their tags, are left as they are.
    """
    counts = Counter(example.polarity for example in encoded if example.polarity >= 0)
    raw = {polarity: count**-balance for polarity, count in counts.items()}
    mean = sum(raw[p] * count for p, count in counts.items()) / max(1, counts.total())
    if not balance:
        return encoded
    return [
        replace(example, weight=raw[example.polarity] / mean) if example.polarity >= 0 else example
        for example in encoded
    ]


def be_told(
    encoded: list[EncodedExample], examples: Sequence[Example], teachers: Sources, share: float
) -> list[EncodedExample]:
    """Add what teachers tell of the examples that have an aspect: their mean capsule lengths.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    names = list_sources(teachers)
    asked = [number for number, example in enumerate(examples) if example.spans]
    if not names or not share or not asked:
        return encoded
    questions = [examples[number] for number in asked]
    told = np.mean([ask(name, questions) for name in names], axis=0)
    taught = list(encoded)
    for number, lengths in zip(asked, told.tolist(), strict=True):
        taught[number] = replace(encoded[number], told=tuple(lengths), told_share=share)
    return taught


def ask(teacher: str, questions: Sequence[Example]) -> NDArray[np.float32]:
    """Return the capsule lengths that a teacher tells of examples (n, C).

    Each is kept in the user's cache as soon as its block is told, for the next seed, for the rest
    of a stopped run and for one of more examples: no question is asked twice.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    folder = cache_of(teacher, "told")
    keys = [_key(question) for question in questions]
    known: dict[bytes, NDArray[np.float32]] = {}
    for old, told in kept_blocks(folder, "told"):
        known |= zip(old, told, strict=True)
    new = {key: q for key, q in zip(keys, questions, strict=True) if key not in known}
    if new:
        model = load(teacher)
        for start in range(0, len(new), _BLOCK):
            block = dict(islice(new.items(), start, start + _BLOCK))
            told = model.predict_lengths(list(block.values()))
            keep_block(folder, list(block), told=told)
            known |= zip(block, told, strict=True)
    return np.array([known[key] for key in keys], dtype=np.float32)


def keep_told(teacher: str, questions: Sequence[Example], told: Sequence[Sequence[float]]) -> None:
    """Keep capsule lengths that a teacher told elsewhere, as if it had been asked for them."""
    keys = [_key(question) for question in questions]
    keep_block(cache_of(teacher, "told"), keys, told=np.array(told, dtype=np.float32))


def _key(question: Example) -> bytes:
    return key_of(json.dumps([question.text, [(s.start, s.end) for s in question.spans]]))


def digest_teachers(teachers: Sources) -> str:
    """Return a hash of all files of all teachers, or nothing if there is none.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    digest = hashlib.sha256()
    for name in list_sources(teachers):
        digest.update(find_bundle(name).fingerprint().encode())
    return digest.hexdigest() if list_sources(teachers) else ""
