"""Train an opinion head on the frozen encoder of a bundle.

The head is a small network over the encoder's states, which are computed once with the bundle's own
graphs; the other graphs, and so the predictions of aspects and polarities, stay as they are.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from capsar.bundle import CONFIG, MANIFEST, OPINIONS, find_bundle, write_bundle
from capsar.calibration import binary_scores, fit_calibration
from capsar.errors import DataError
from capsar.evaluation.opinions import evaluate_opinions
from capsar.inference.decoding import (
    IGNORE_INDEX,
    aspect_distances,
    decode_opinions,
    decode_spans,
    encode_tags,
)
from capsar.inference.engine import Engine
from capsar.inference.inputs import Request
from capsar.model.opinion_head import OpinionHead
from capsar.schema import AspectSpan
from capsar.tokenizer import tokenize_words
from capsar.training.export import export_opinions, store_int8

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from capsar.evaluation.opinions import OpinionMetrics
    from capsar.tokenizer import Span

_LOG = logging.getLogger(__name__)
_RATE = 2e-3
_WEIGHT_DECAY = 0.01
_WARMUP_STEPS = 100
_BATCH_SIZE = 32
_MAX_WORDS = 128
_BIASES = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class OpinionExample:
    """A term with the phrases that carry the sentiment toward it."""

    text: str
    span: AspectSpan
    phrases: tuple[AspectSpan, ...]
    """Continuous pieces of phrases, without the term."""


@dataclass(frozen=True, slots=True)
class _Features:
    """The inputs of the head for one aspect, and its tags."""

    states: NDArray[np.float16]
    attributions: NDArray[np.float32]
    aspect: NDArray[np.bool_]
    tags: list[int]


def read_opinions(path: Path) -> list[OpinionExample]:
    """Read the positive and negative terms of a JSON Lines file, as in `corpus/opinions/`.

    Raises:
        DataError: If a record is malformed.
    """
    examples = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            for aspect in record["aspects"]:
                if "opinions" in aspect:
                    pieces = (piece for phrase in aspect["opinions"] for piece in phrase["spans"])
                    span = AspectSpan(aspect["start"], aspect["end"])
                    phrases = tuple(sorted({AspectSpan(*piece) for piece in pieces}))
                    examples.append(OpinionExample(record["text"], span, phrases))
        except (KeyError, TypeError, ValueError, DataError) as error:
            raise DataError(f"{str(path)!r}, line {number}: {error!r}") from error
    return examples


def add_opinion_head(
    model: str | Path,
    out: Path,
    examples: Sequence[OpinionExample],
    validation: Sequence[OpinionExample],
    *,
    units: int = 96,
    epochs: int = 6,
    seed: int = 0,
) -> OpinionMetrics:
    """Train an opinion head for a model, and write a bundle with it.

    Args:
        model: The bundle, which may have an opinion head already.
        out: The folder of the new bundle; it may be that of the model.
        examples: The training examples.
        validation: Choose the bias of the tags and fit the calibration.
        units: The size of the head's layers.
        epochs: The number of epochs.
        seed: Of the initial weights and the order of examples.

    Returns:
        The metrics on the validation examples.

    Raises:
        DataError: If there are no examples.
    """
    bundle = find_bundle(model)
    engine = Engine(bundle)
    torch.manual_seed(seed)
    features = list(_read_features(engine, examples))
    held_out = list(_read_features(engine, validation))
    if not features or not held_out:
        raise DataError("There are no opinion phrases to train or to validate on")
    head = OpinionHead(hidden_dim=features[0].states.shape[1], units=units)
    _fit(head, features, epochs, np.random.default_rng(seed))
    logits = list(_tag(head, held_out))
    bias = max(_BIASES, key=lambda bias: _evaluate(held_out, logits, bias).f1)
    metrics = _evaluate(held_out, logits, bias)
    _LOG.info("opinions: bias %.2f, %s", bias, metrics)
    scores, truth, groups = [], [], []
    for number, (own, tags) in enumerate(zip(held_out, logits, strict=True)):
        gold = _gold(own)
        for span, score in decode_opinions(tags[None], ~own.aspect[None], bias)[0]:
            scores.append(score)
            truth.append(int(span in gold))
            groups.append(str(number))
    fitted = fit_calibration(binary_scores(np.array(scores)), np.array(truth), groups)
    calibration = dict(bundle.config.get("calibration", {}))
    calibration.pop("opinion", None)
    if fitted is not None:
        calibration["opinion"] = fitted.calibration.as_dict()
    graph = export_opinions(head)
    stored = store_int8(graph) if bundle.config.get("store") == "int8" else graph
    files = {
        name: bundle.path(name).read_bytes()
        for name in bundle.files
        if name not in (CONFIG, MANIFEST, OPINIONS)
    }
    settings = {"opinion_bias": bias, "validation_opinions": asdict(metrics)}
    config = bundle.config | settings | {"calibration": calibration}
    write_bundle(out, config, files | {OPINIONS: stored})
    return metrics


def _read_features(engine: Engine, examples: Sequence[OpinionExample]) -> Iterator[_Features]:
    """Yield the features of examples whose term is found among the words."""
    pairs = []
    for text, some in groupby(examples, key=lambda example: example.text):
        own = list(some)
        request = Request(text, tokenize_words(text), [(example.span,) for example in own])
        if len(request.words) <= _MAX_WORDS:
            pairs.append((own, request))
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        requests = [request for _, request in chunk]
        states = engine.read_states(requests)
        routed = engine.predict(requests, ("attributions",))
        for (own, request), hidden, rows in zip(chunk, states, routed, strict=True):
            for row, example in enumerate(own):
                mentions = request.mentions(row)
                if not mentions:
                    continue
                aspect = np.zeros(len(request.words), dtype=bool)
                aspect[mentions[0]] = True
                phrases = [(phrase.start, phrase.end) for phrase in example.phrases]
                tags = encode_tags(request.words, phrases)
                scores = rows.scores["attributions"][row]
                yield _Features(hidden.astype(np.float16), scores, aspect, tags)


def _fit(
    head: OpinionHead, features: Sequence[_Features], epochs: int, generator: np.random.Generator
) -> None:
    optimizer = torch.optim.AdamW(head.parameters(), lr=_RATE, weight_decay=_WEIGHT_DECAY)
    num_steps = epochs * len(_batches(features, generator))
    step = 0
    head.train()
    for _ in range(epochs):
        for batch in _batches(features, generator):
            rate = min(1, step / _WARMUP_STEPS) * (1 - step / num_steps)
            for group in optimizer.param_groups:
                group["lr"] = _RATE * rate
            inputs, tags = _collate(batch)
            logits = head(*inputs).transpose(1, 2)  # (B, 3, W)
            loss = functional.cross_entropy(logits, tags, ignore_index=IGNORE_INDEX)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1


def _tag(head: OpinionHead, features: Sequence[_Features]) -> Iterator[NDArray[np.float32]]:
    """Yield the logits of each example (W, 3)."""
    head.eval()
    with torch.no_grad():
        for start in range(0, len(features), _BATCH_SIZE):
            batch = features[start : start + _BATCH_SIZE]
            logits = head(*_collate(batch)[0]).numpy()
            yield from (own[: len(each.tags)] for own, each in zip(logits, batch, strict=True))


def _batches(
    features: Sequence[_Features], generator: np.random.Generator
) -> list[list[_Features]]:
    """Return the examples in random batches of similar length."""
    noise = generator.random(len(features)) * 3
    order = sorted(range(len(features)), key=lambda row: len(features[row].tags) + noise[row])
    starts = np.arange(0, len(order), _BATCH_SIZE)
    generator.shuffle(starts)
    return [[features[row] for row in order[start : start + _BATCH_SIZE]] for start in starts]


def _collate(batch: Sequence[_Features]) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the inputs of the head, padded, and the tags."""
    size = (len(batch), max(len(each.tags) for each in batch))
    states = np.zeros((*size, batch[0].states.shape[1]), np.float32)
    attributions = np.zeros((size[0], batch[0].attributions.shape[0], size[1]), np.float32)
    aspect, mask = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    tags = np.full(size, IGNORE_INDEX, np.int64)
    for row, each in enumerate(batch):
        num_words = len(each.tags)
        states[row, :num_words] = each.states
        attributions[row, :, :num_words] = each.attributions
        aspect[row, :num_words] = each.aspect
        mask[row, :num_words] = True
        tags[row, :num_words] = each.tags
    arrays = (states, aspect, aspect_distances(aspect), attributions, mask)
    return tuple(map(torch.from_numpy, arrays)), torch.from_numpy(tags)


def _gold(features: _Features) -> list[Span]:
    return decode_spans(np.eye(3, dtype=np.float32)[features.tags] * 10)


def _evaluate(
    features: Sequence[_Features], logits: Sequence[NDArray[np.float32]], bias: float
) -> OpinionMetrics:
    found = [
        [span for span, _ in decode_opinions(tags[None], ~own.aspect[None], bias)[0]]
        for own, tags in zip(features, logits, strict=True)
    ]
    return evaluate_opinions(found, [_gold(own) for own in features])
