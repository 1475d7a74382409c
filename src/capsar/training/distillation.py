"""Distillation: soft targets and hidden states of teachers, cached on disk; class weights.

Feature distillation trains the encoder and the word vectors of a recurrent network to predict the
teachers' hidden states before training. A linear layer, discarded afterwards, maps the encoder's
states to theirs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from capsar.bundle import find_bundle
from capsar.config import list_sources
from capsar.errors import ArtifactError
from capsar.inference.analyzer import load
from capsar.model.embeddings import user_cache
from capsar.schema import Example
from capsar.tokenizer import SEGMENTATION, tokenize_words
from capsar.training.batches import collate, encode_examples, epoch_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from capsar.config import Sources, TrainConfig
    from capsar.inference.analyzer import Analyzer
    from capsar.model.network import Batch, Capsar
    from capsar.tokenizer import TextTokenizer
    from capsar.training.batches import EncodedExample

    States = Sequence[NDArray[np.float16]]

_LOG = logging.getLogger(__name__)
_OUTPUTS_PER_FILE = 512
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
    encoded: list[EncodedExample], examples: Sequence[Example], teachers: Sources, weight: float
) -> list[EncodedExample]:
    """Add the teachers' mean capsule lengths as soft targets to the examples with an aspect.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    names = list_sources(teachers)
    rows = [row for row, example in enumerate(examples) if example.spans]
    if not names or not weight or not rows:
        return encoded
    inputs = [examples[row] for row in rows]
    lengths = np.mean([predict_teacher(name, inputs) for name in names], axis=0)
    result = list(encoded)
    for row, own in zip(rows, lengths.tolist(), strict=True):
        result[row] = replace(encoded[row], teacher_lengths=tuple(own), distill_weight=weight)
    return result


def predict_teacher(teacher: str, examples: Sequence[Example]) -> NDArray[np.float32]:
    """Return a teacher's capsule lengths of examples (n, C), from the cache where possible.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    keys = [_example_key(example) for example in examples]
    inputs = dict(zip(keys, examples, strict=True))
    lengths = _cached(teacher, "lengths", inputs, lambda m, some: m.predict_lengths(some)[:, None])
    return np.concatenate([lengths[key] for key in keys])


def cache_teacher_outputs(
    teacher: str, examples: Sequence[Example], lengths: Sequence[Sequence[float]]
) -> None:
    """Add capsule lengths that a teacher predicted elsewhere to the cache."""
    keys = [_example_key(example) for example in examples]
    outputs = list(np.array(lengths, dtype=np.float32)[:, None])
    _write_cache(_cache_folder(teacher, "lengths"), keys, outputs)


def fingerprint_teachers(teachers: Sources) -> str:
    """Return a hash of all files of all teachers, or an empty string without teachers.

    Raises:
        ArtifactError: If there is no such teacher.
    """
    digest = hashlib.sha256()
    for name in list_sources(teachers):
        digest.update(find_bundle(name).fingerprint().encode())
    return digest.hexdigest() if list_sources(teachers) else ""


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
    parts = [read_states(teacher, texts) for teacher in list_sources(train_config.teacher)]
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


def read_states(teacher: str, texts: Sequence[str]) -> States:
    """Return a teacher's hidden states of each text's words (W, H), from the cache where possible.

    The states of a thousand sentences by mpnet take 30 MB in half precision.

    Raises:
        ArtifactError: If there is no such teacher, or the cache is damaged.
    """
    keys = [_key([SEGMENTATION, text]) for text in texts]

    def predict(model: Analyzer, examples: list[Example]) -> list[NDArray[Any]]:
        states = list(model.read_states([example.text for example in examples]))
        if not all((np.abs(some) <= np.finfo(np.float16).max).all() for some in states):
            raise ArtifactError(f"The states of {teacher!r} exceed half precision")
        return [some.astype(np.float16) for some in states]

    inputs = dict(zip(keys, map(Example, texts), strict=True))
    states = _cached(teacher, "states", inputs, predict)
    return [states[key] for key in keys]


def _cached(
    teacher: str,
    kind: str,
    inputs: dict[bytes, Example],
    predict: Callable[[Analyzer, list[Example]], Iterable[NDArray[Any]]],
) -> dict[bytes, NDArray[Any]]:
    """Return the output of each input, and write those that were not cached to files.

    Files are written one by one, so that other seeds, resumed runs and runs with more examples
    never compute an output twice.
    """
    folder = _cache_folder(teacher, kind)
    outputs = _read_cache(folder, inputs.keys())
    new = sorted(inputs.keys() - outputs.keys(), key=lambda key: (len(inputs[key].text), key))
    if not new:
        return outputs
    model = load(teacher)
    for start in range(0, len(new), _OUTPUTS_PER_FILE):
        block = new[start : start + _OUTPUTS_PER_FILE]
        found = list(predict(model, [inputs[key] for key in block]))
        _write_cache(folder, block, found)
        outputs |= zip(block, found, strict=True)
    return outputs


def _cache_folder(teacher: str, kind: str) -> Path:
    digest = hashlib.sha256(find_bundle(teacher).fingerprint().encode())
    return user_cache() / kind / digest.hexdigest()[:32]


def _key(content: object) -> bytes:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32].encode()


def _example_key(example: Example) -> bytes:
    return _key([example.text, [(s.start, s.end) for s in example.spans]])


def _write_cache(folder: Path, keys: Sequence[bytes], outputs: Sequence[NDArray[Any]]) -> None:
    """Write outputs, of any number of rows each, as one file in one atomic step."""
    name = hashlib.sha256(b"".join(keys)).hexdigest()[:32] + ".npz"
    rows = np.array(list(map(len, outputs)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".capsar-", dir=folder) as scratch:
            path = Path(scratch) / name
            np.savez(path, keys=np.array(keys), rows=rows, values=np.concatenate(outputs))
            path.replace(folder / name)
    except OSError as error:
        raise ArtifactError(
            f"Cannot cache teacher outputs in {str(folder)!r}: {error}. Free some space, or set "
            "XDG_CACHE_HOME to another folder; what was cached before is kept."
        ) from error


def _read_cache(folder: Path, wanted: Set[bytes]) -> dict[bytes, NDArray[Any]]:
    outputs: dict[bytes, NDArray[Any]] = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
                keys, rows, values = (content[name] for name in ("keys", "rows", "values"))
            if len(keys) != len(rows) or rows.sum() != len(values):
                raise ValueError(f"{len(keys)} keys of {len(rows)} outputs with {len(values)} rows")
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ArtifactError(f"Delete the damaged cache {str(path)!r}: {error}") from error
        parts = np.split(values, np.cumsum(rows)[:-1])
        found = zip(keys.tolist(), parts, strict=True)
        outputs |= {key: part.copy() for key, part in found if key in wanted}
    return outputs
