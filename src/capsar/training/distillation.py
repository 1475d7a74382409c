"""Distillation: soft targets of teachers for polarity and tags; weights of classes and sources.

Feature distillation trains the encoder and the word vectors of a recurrent network to predict the
teachers' hidden states before training. A linear layer, discarded afterwards, maps the encoder's
states to theirs.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from capsar.config import list_sources
from capsar.inference.decoding import IGNORE_INDEX
from capsar.schema import Example
from capsar.tokenizer import tokenize_words
from capsar.training.batches import collate, encode_examples, epoch_batches
from capsar.training.teachers import is_recorded, predict_tags, predict_teacher, read_states

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from capsar.config import TrainConfig
    from capsar.model.network import Batch, Capsar
    from capsar.tokenizer import TextTokenizer
    from capsar.training.batches import EncodedExample
    from capsar.training.teachers import States

_LOG = logging.getLogger(__name__)
_RATE = 2e-3
_WARMUP_STEPS = 50
_MIN_DEVIATION = 1e-3


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
    probabilities are targets of all examples.

    Args:
        encoded: The encoded examples.
        examples: The same examples.
        train_config: Names the teachers and their weight.
        pseudo_labeled: Texts labelled by teachers, whose outputs have the whole weight there.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    names, weight = list_sources(train_config.teacher), train_config.distill_weight
    rows = [row for row, example in enumerate(examples) if example.spans]
    if not names or not weight or not rows:
        return encoded
    inputs = [examples[row] for row in rows]
    lengths = np.mean([predict_teacher(name, inputs) for name in names], axis=0)
    result = list(encoded)
    for row, own in zip(rows, lengths.tolist(), strict=True):
        share = 1.0 if examples[row].text in pseudo_labeled else weight
        result[row] = replace(encoded[row], teacher_lengths=tuple(own), distill_weight=share)
    if not train_config.distill_tags:
        return result
    texts = list(dict.fromkeys(example.text for example in examples))
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
        for own, example in zip(result, examples, strict=True)
    ]


def distill_features(
    model: Capsar, texts: Sequence[str], tokenizer: TextTokenizer, train_config: TrainConfig
) -> None:
    """Train the encoder and the word vectors to predict the teachers' hidden states of texts.

    The learning rate rises for a few steps and decays to 0; randomness depends on the seed only.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    texts = [text for text in dict.fromkeys(texts) if tokenize_words(text)]
    _LOG.info("Feature distillation on %d texts", len(texts))
    models = [name for name in list_sources(train_config.teacher) if not is_recorded(name)]
    parts = [read_states(teacher, texts) for teacher in models]
    states = parts[0]
    if len(parts) > 1:
        states = [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]
    encoded = encode_examples([Example(text) for text in texts], tokenizer)
    targets = FeatureTargets(states)
    device = model.fixed_vectors.device
    torch.manual_seed(train_config.seed)
    projection = nn.Linear(model.encoder.hidden_dim, targets.size).to(device)
    learnt = [] if model.learnt is None else list(model.learnt.parameters())
    parameters = [*model.encoder.parameters(), *learnt, *projection.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=_RATE)
    sizes = [len(example.ids) for example in encoded]
    epochs, seed, size = (
        train_config.feature_distill_epochs, train_config.seed, train_config.batch_size,
    )  # fmt: skip
    batches = [
        batch
        for epoch in range(epochs)
        for batch in epoch_batches(sizes, batch_size=size, seed=seed, epoch=epoch)
    ]
    model.train()
    losses = []
    for step, indices in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1, (step + 1) / _WARMUP_STEPS) * (1 - step / len(batches))
        batch = collate([encoded[i] for i in indices]).to(device)
        loss = feature_loss(model, projection, batch, targets.batch(indices, batch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    last = losses[-(len(losses) // epochs) :]
    explained = 1 - sum(last) / len(last)
    _LOG.info("After %d epochs, %.3f of the states' variance is explained", epochs, explained)


def feature_loss(model: Capsar, projection: nn.Linear, batch: Batch, targets: Tensor) -> Tensor:
    """Return the mean squared error of the predicted states of words (B, T, H)."""
    states = model.encode(batch, model.embed(batch.ids))
    error = (projection(states) - targets).square().mean(-1)  # (B, T)
    mean: Tensor = (error * batch.mask).sum() / batch.mask.sum()
    return mean


class FeatureTargets:
    """Hidden states of words, standardized to mean zero and deviation one per feature."""

    def __init__(self, states: States) -> None:
        self._states = states
        number = sum(map(len, states))
        mean = sum(some.sum(0, dtype=np.float64) for some in states) / number
        squares = sum(((some - mean) ** 2).sum(0) for some in states) / number
        self._mean = mean.astype(np.float32)
        self._deviation = (np.sqrt(squares) + _MIN_DEVIATION).astype(np.float32)
        self.size = len(mean)

    def batch(self, indices: Sequence[int], batch: Batch) -> Tensor:
        """Return the states of some sentences (B, T, H); zero on padding."""
        targets = np.zeros((*batch.ids.shape, self.size), np.float32)
        for row, index in enumerate(indices):
            own = self._states[index]
            targets[row, : len(own)] = (own - self._mean) / self._deviation
        return torch.from_numpy(targets).to(batch.ids.device)
