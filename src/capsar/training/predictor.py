"""The network in training, seen as a `Predictor`: examples -> capsule lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from capsar.labels import CLASSES
from capsar.training.batches import collate, encode_examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from capsar.data.example import Example
    from capsar.model.first_token import FirstToken
    from capsar.model.network import Capsar
    from capsar.pieces import SentenceTokenizer


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
        order = sorted(range(len(encoded)), key=lambda index: len(encoded[index].ids))
        lengths = np.zeros((len(encoded), len(CLASSES)), dtype=np.float32)
        was_training = self._model.training
        device = next(self._model.parameters()).device
        self._model.eval()
        with torch.inference_mode():
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                batch = collate([encoded[row] for row in rows]).to(device)
                lengths[rows] = self._model(batch).lengths.float().cpu().numpy()
        self._model.train(was_training)
        return lengths
