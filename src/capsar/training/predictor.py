"""The network in training, seen as a `Predictor`: examples -> capsule lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from capsar.data.example import Example
from capsar.errors import ConfigError
from capsar.labels import CLASSES
from capsar.model.network import Capsar
from capsar.pieces import to_words
from capsar.tagging import NUM_TAGS
from capsar.training.batches import collate, encode_examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from capsar.model.batch import Batch
    from capsar.model.first_token import FirstToken
    from capsar.pieces import SentenceTokenizer
    from capsar.training.batches import EncodedExample

_NOTHING = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)


class NetworkPredictor:
    """Capsule lengths from a network, in batches of like length, in the order of the examples."""

    def __init__(
        self, model: Capsar | FirstToken, tokenizer: SentenceTokenizer, *, batch_size: int = 64
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._batch_size = batch_size

    def predict_lengths(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the capsule lengths of each example (n, C)."""
        encoded = encode_examples(examples, self._tokenizer)
        lengths = np.zeros((len(encoded), len(CLASSES)), dtype=np.float32)
        for rows, batch in self._batches(encoded):
            lengths[rows] = self._model(batch).lengths.float().cpu().numpy()
        return lengths

    def predict_tags(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Return the logits of each text's words (W, 3), by the extraction head.

        Raises:
            ConfigError: If the network has none.
        """
        if not isinstance(self._model, Capsar) or self._model.spans is None:
            raise ConfigError("The network has no extraction head; set model.span_weight")
        untold = dict.fromkeys(texts, ())
        encoded = encode_examples(list(map(Example, texts)), self._tokenizer, terms=untold)
        found = [np.zeros((len(e.tags or ()), NUM_TAGS), dtype=np.float32) for e in encoded]
        for rows, batch in self._batches(encoded):
            logits = self._model(batch).tags.cpu().numpy()
            for row, own in zip(rows, logits, strict=True):
                found[row][:] = own[: len(found[row])]
        return found

    def open_capsules(
        self, examples: Sequence[Example]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return the capsule lengths of each text (C), and its words' *about* scores (C, W).

        Raises:
            ConfigError: If the network has no capsules.
        """
        if not isinstance(self._model, Capsar):
            raise ConfigError("The network has no capsules to open")
        opened: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = [_NOTHING] * len(examples)
        for rows, batch in self._batches(encode_examples(examples, self._tokenizer)):
            alone = batch.without_aspect()
            output = self._model(alone)
            pieces = self._model.about(alone, output).cpu().numpy()
            about = to_words(pieces, alone.words.cpu().numpy(), how="about")
            for row, lengths, scores in zip(rows, output.lengths, about, strict=True):
                opened[row] = lengths.cpu().numpy(), scores
        return opened

    def _batches(self, encoded: Sequence[EncodedExample]) -> Iterator[tuple[list[int], Batch]]:
        """Yield examples in batches of like length, while the network is not in training."""
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index].ids))
        was_training = self._model.training
        device = next(self._model.parameters()).device
        self._model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                yield rows, collate([encoded[row] for row in rows]).to(device)
        self._model.train(was_training)
