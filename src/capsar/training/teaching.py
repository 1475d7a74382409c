"""What an example counts for, and what trained models tell of it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capsar.analyze import load
from capsar.config import list_sources
from capsar.errors import ArtifactError
from capsar.hub import find_bundle
from capsar.model.vectors import user_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.config import Sources
    from capsar.data.example import Example
    from capsar.training.batches import EncodedExample


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
    told = np.mean([_ask(name, questions) for name in names], axis=0)
    taught = list(encoded)
    for number, lengths in zip(asked, told.tolist(), strict=True):
        taught[number] = replace(encoded[number], told=tuple(lengths), told_share=share)
    return taught


def _ask(teacher: str, questions: Sequence[Example]) -> NDArray[np.float32]:
    """Return what a teacher tells (n, C); it is kept, for the next seed or the rest of a run."""
    digest = hashlib.sha256(find_bundle(teacher).fingerprint().encode())
    for question in questions:
        spans = [(span.start, span.end) for span in question.spans]
        digest.update(json.dumps([question.text, spans]).encode())
    kept = user_cache() / "told" / f"{digest.hexdigest()[:32]}.npy"
    if kept.is_file():
        try:
            return np.asarray(np.load(kept, allow_pickle=False), dtype=np.float32)
        except (OSError, ValueError) as error:
            raise ArtifactError(f"Delete the damaged cache {str(kept)!r}: {error}") from error
    told = load(teacher).predict_lengths(questions)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".capsar-", dir=kept.parent) as scratch:
        np.save(Path(scratch) / kept.name, told)
        (Path(scratch) / kept.name).replace(kept)
    return told


def digest_teachers(teachers: Sources) -> str:
    """Return a hash of all files of all teachers, or nothing if there is none.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    digest = hashlib.sha256()
    for name in list_sources(teachers):
        digest.update(find_bundle(name).fingerprint().encode())
    return digest.hexdigest() if list_sources(teachers) else ""
