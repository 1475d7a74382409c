"""Before a recurrent encoder learns what is felt, it learns to foresee its teachers' states.

A teacher's capsule lengths are three numbers a sentence; its hidden states are some hundred for
each word. A linear layer, thrown away afterwards, reads them off the encoder's own states.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from capsar.analyze import load
from capsar.config import list_sources
from capsar.data.example import Example
from capsar.errors import ArtifactError
from capsar.text import SEGMENTATION, segment
from capsar.training.batches import collate, encode_examples, epoch_batches
from capsar.training.told import cache_of, keep_block, kept_blocks, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from capsar.config import TrainConfig
    from capsar.model.batch import Batch
    from capsar.model.network import Capsar
    from capsar.pieces import SentenceTokenizer

    States = Sequence[NDArray[np.float16]]

_LOG = logging.getLogger(__name__)
_RATE = 2e-3
_RISING_STEPS = 50
_BLOCK = 512
"""Texts whose states are kept together."""
_LEAST_DEVIATION = 1e-3


def imitate(
    model: Capsar, texts: Sequence[str], tokenizer: SentenceTokenizer, train_config: TrainConfig
) -> None:
    """Train the encoder and the word vectors of a network to foresee teachers' states of texts.

    The rate rises for a few steps and falls to nothing; randomness is a function of the seed.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    texts = [text for text in dict.fromkeys(texts) if segment(text)]
    _LOG.info("The encoder first learns to foresee its teacher's states of %d texts", len(texts))
    states = _joined(
        [read_states(teacher, texts) for teacher in list_sources(train_config.teacher)]
    )
    encoded = encode_examples([Example(text) for text in texts], tokenizer)
    target = Target(states)
    device = model.fixed_vectors.device
    torch.manual_seed(train_config.seed)
    reader = nn.Linear(model.encoder.hidden_dim, target.size).to(device)
    own = [
        *model.encoder.parameters(),
        *([] if model.learnt is None else model.learnt.parameters()),
    ]
    optimizer = torch.optim.Adam([*own, *reader.parameters()], lr=_RATE)
    sizes = [len(example.ids) for example in encoded]
    epochs, seed = train_config.imitate_epochs, train_config.seed
    batches = [
        batch
        for epoch in range(epochs)
        for batch in epoch_batches(
            sizes, batch_size=train_config.batch_size, seed=seed, epoch=epoch
        )
    ]
    model.train()
    losses = []
    for step, indices in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(1, (step + 1) / _RISING_STEPS) * (1 - step / len(batches))
        batch = collate([encoded[i] for i in indices]).to(device)
        loss = imitation_loss(model, reader, batch, target.of(indices, batch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    last = losses[-(len(losses) // epochs) :]
    foreseen = 1 - sum(last) / len(last)
    _LOG.info("After %d epochs it foresees %.3f of their variance", epochs, foreseen)


def _joined(told: list[States]) -> States:
    """The states of all teachers, one after the other."""
    if len(told) == 1:
        return told[0]
    return [np.concatenate(each, axis=1) for each in zip(*told, strict=True)]


def imitation_loss(model: Capsar, reader: nn.Linear, batch: Batch, target: Tensor) -> Tensor:
    """Return the mean squared distance of what is foreseen from the states of words (B, T, H)."""
    states = model.encode(batch.ids, model.fixed(batch.ids), batch.mask)
    distance = (reader(states) - target).square().mean(-1)  # (B, T)
    mean: Tensor = (distance * batch.mask).sum() / batch.mask.sum()
    return mean


class Target:
    """States of words, each feature of mean zero and deviation one over all of them."""

    def __init__(self, states: States) -> None:
        self._states = states
        number = sum(map(len, states))
        mean = sum(some.sum(0, dtype=np.float64) for some in states) / number
        squares = sum(((some - mean) ** 2).sum(0) for some in states) / number
        self._mean = mean.astype(np.float32)
        self._deviation = (np.sqrt(squares) + _LEAST_DEVIATION).astype(np.float32)
        self.size = len(mean)

    def of(self, indices: Sequence[int], batch: Batch) -> Tensor:
        """Return those of some sentences (B, T, H); zero on padding."""
        target = np.zeros((*batch.ids.shape, self.size), np.float32)
        for row, index in enumerate(indices):
            own = self._states[index]
            target[row, : len(own)] = (own - self._mean) / self._deviation
        return torch.from_numpy(target).to(batch.ids.device)


def read_states(teacher: str, texts: Sequence[str]) -> States:
    """Return a teacher's states of each text's words (W, H), in half precision.

    They are kept in the user's cache, block by block: a stopped run or another seed reads on. A
    thousand sentences of mpnet's states are 30 MB.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    folder = cache_of(teacher, "states")
    keys = [key_of(json.dumps([SEGMENTATION, text])) for text in texts]
    known = _recall(folder, set(keys))
    new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if new:
        model = load(teacher)
        order = sorted(new, key=lambda key: len(new[key]))
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            states = [s.astype(np.float16) for s in model.read_states([new[key] for key in block])]
            together = np.concatenate(states)
            if not np.isfinite(together).all():
                raise ArtifactError(f"The states of {teacher!r} go beyond half precision")
            keep_block(folder, block, words=np.array(list(map(len, states))), states=together)
            known |= zip(block, states, strict=True)
    return [known[key] for key in keys]


def _recall(folder: Path, wanted: set[bytes]) -> dict[bytes, NDArray[np.float16]]:
    known: dict[bytes, NDArray[np.float16]] = {}
    for keys, words, states in kept_blocks(folder, "words", "states"):
        if words.sum() != len(states):
            told = f"{len(states)} states of {words.sum()} words"
            raise ArtifactError(f"Delete the damaged cache {str(folder)!r}: {told}")
        parts = np.split(states, np.cumsum(words)[:-1])
        known |= {k: part.copy() for k, part in zip(keys, parts, strict=True) if k in wanted}
    return known
