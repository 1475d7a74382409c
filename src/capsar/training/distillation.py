"""Distillation: soft targets of teachers for polarity and tags; weights of classes and sources."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from capsar.config import list_sources
from capsar.errors import ArtifactError
from capsar.inference.decoding import IGNORE_INDEX
from capsar.training.teachers import (
    LENGTHS,
    TAGS,
    example_key,
    has_outputs,
    predict_tags,
    predict_teacher,
    text_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from capsar.config import TrainConfig
    from capsar.schema import Example
    from capsar.training.batches import EncodedExample

_LOG = logging.getLogger(__name__)


def balance_classes(encoded: list[EncodedExample], balance: float) -> list[EncodedExample]:
    """Weight each example by the frequency of its class to the power of minus `balance`.

    The mean weight is one. Unlabeled examples, which are there for their tags, stay as they are.
    """
    counts = Counter(example.polarity for example in encoded if example.polarity >= 0)
    if not balance or not counts:
        return encoded
    raw = {polarity: count**-balance for polarity, count in counts.items()}
    mean = sum(raw[p] * count for p, count in counts.items()) / counts.total()
    return [
        replace(example, weight=raw[example.polarity] / mean) if example.polarity >= 0 else example
        for example in encoded
    ]


def weight_sources(
    encoded: list[EncodedExample], examples: Sequence[Example], weights: Mapping[str, float]
) -> list[EncodedExample]:
    """Multiply the weights of each example's polarity and tags by the weight of its text."""
    return [
        replace(own, weight=own.weight * factor, tag_weight=own.tag_weight * factor)
        if (factor := weights.get(example.text, 1.0)) != 1
        else own
        for own, example in zip(encoded, examples, strict=True)
    ]


def add_teacher_targets(
    encoded: list[EncodedExample],
    examples: Sequence[Example],
    train_config: TrainConfig,
    pseudo_labeled: Set[str] = frozenset(),
) -> list[EncodedExample]:
    """Add the teachers' mean outputs as soft targets.

    Capsule lengths are targets of the examples with an aspect; with `train.distill_tags`, tag
    probabilities are targets of all examples. Examples that a file of recorded outputs does not
    have are trained on their labels alone.

    Args:
        encoded: The encoded examples.
        examples: The same examples.
        train_config: Names the teachers and their weight.
        pseudo_labeled: Texts labeled by teachers, whose outputs have the whole weight there.

    Raises:
        ArtifactError: If there is no such teacher, or it has no output of any example.
    """
    names, weight = list_sources(train_config.teacher), train_config.distill_weight
    if not names or not weight:
        return encoded
    result = list(encoded)
    rows = [row for row, example in enumerate(examples) if example.spans]
    found = _with_outputs(names, LENGTHS, [example_key(examples[row]) for row in rows])
    rows = [rows[index] for index in found]
    inputs = [examples[row] for row in rows]
    lengths = np.mean([predict_teacher(name, inputs) for name in names], axis=0).tolist()
    for row, own in zip(rows, lengths, strict=True):
        share = 1.0 if examples[row].text in pseudo_labeled else weight
        result[row] = replace(encoded[row], teacher_lengths=tuple(own), distill_weight=share)
    if not train_config.distill_tags:
        return result
    texts = list(dict.fromkeys(example.text for example in examples))
    texts = [texts[index] for index in _with_outputs(names, TAGS, list(map(text_key, texts)))]
    predicted = zip(*(predict_tags(name, texts) for name in names), strict=True)
    tags = {text: np.mean(own, axis=0) for text, own in zip(texts, predicted, strict=True)}
    return [
        replace(
            own,
            teacher_tags=tags[example.text],
            tag_distill_weight=1.0
            if example.text in pseudo_labeled or set(own.tags or ()) <= {IGNORE_INDEX}
            else weight,
        )
        if example.text in tags
        else own
        for own, example in zip(result, examples, strict=True)
    ]


def _with_outputs(names: Sequence[str], kind: str, keys: Sequence[bytes]) -> list[int]:
    """Return the positions of the inputs that every teacher has outputs of."""
    known = np.logical_and.reduce([has_outputs(name, kind, keys) for name in names])
    if not known.any():
        raise ArtifactError(
            f"The teachers {', '.join(map(repr, names))} have no {kind} of any of the {len(keys)} "
            "training inputs: record them with the teacher, or train without it"
        )
    if not known.all():
        count = len(keys) - np.count_nonzero(known)
        _LOG.warning("The teachers have no %s of %d of %d inputs", kind, count, len(keys))
    return list(np.flatnonzero(known))
