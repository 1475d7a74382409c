"""Score words by gradient times input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capsar.errors import DataError
from capsar.model.encoders import Transformer
from capsar.training.batches import collate, encode_examples
from capsar.training.initialize import load_network

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from capsar.schema import Example
    from capsar.tokenizer import TextTokenizer

_BATCH = 64


class GradientRanker:
    """Scores the words of examples by gradient times input, a baseline of attributions.

    The score is the dot product of a word's input vector and the gradient of the capsule's length:
    to first order, the decrease of the length without the vector. Subword scores are summed.

    Args:
        model: The network.
        tokenizer: Its tokenizer.
        by_norm: Whether the score is the norm of the elementwise product instead of its sum, which
            measures importance regardless of sign.
    """

    def __init__(
        self, model: nn.Module, tokenizer: TextTokenizer, *, by_norm: bool = False
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._by_norm = by_norm
        self._inputs: list[Tensor] = []

    @classmethod
    def load(cls, bundle: Path, *, by_norm: bool = False) -> GradientRanker:
        """Load the network of a bundle.

        Raises:
            ArtifactError: If it is damaged or has no weights.
        """
        return cls(*load_network(bundle), by_norm=by_norm)

    def __call__(
        self, examples: Sequence[Example], classes: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Return the score of each word (T) of each example, for the capsule of its class (n)."""
        encoded = encode_examples(examples, self._tokenizer)
        scores: list[NDArray[np.float32]] = []
        hook = self._watch()
        try:
            for start in range(0, len(encoded), _BATCH):
                some = encoded[start : start + _BATCH]
                batch = collate(some)
                rows = torch.arange(len(some))
                chosen = torch.from_numpy(classes[start : start + _BATCH])
                lengths = self._model(batch).lengths[rows, chosen]  # (B)
                if len(self._inputs) != 1:
                    raise DataError("Gradients need sentences that fit in one window")
                inputs = self._inputs.pop()
                (gradient,) = torch.autograd.grad(lengths.sum(), inputs)
                products = (gradient * inputs).detach()  # (B, T, E)
                reduced = products.norm(dim=-1) if self._by_norm else products.sum(-1)  # (B, T)
                scores += _sum_by_word(reduced.numpy(), batch.words.numpy())
        finally:
            hook.remove()
            self._inputs.clear()
        return scores

    def _watch(self) -> Any:  # noqa: ANN401  (torch does not name its handles)
        """Make the encoder's input vectors leaves of the graph and store them in `_inputs`."""

        def keep(vectors: Tensor) -> Tensor:
            self._inputs.append(vectors.detach().requires_grad_())
            return self._inputs[-1]

        encoder = self._model.encoder
        if isinstance(encoder, Transformer):
            table = encoder.model.get_input_embeddings()
            return table.register_forward_hook(lambda _, __, vectors: keep(vectors))
        return encoder.register_forward_pre_hook(lambda _, inputs: (keep(inputs[0]), *inputs[1:]))  # type: ignore[union-attr]


def _sum_by_word(
    products: NDArray[np.float32], words: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """Sum the scores of subwords (B, T) by word."""
    found = []
    for row, positions in zip(products, words, strict=True):
        total = np.zeros(positions.max(initial=-1) + 1, dtype=np.float32)
        np.add.at(total, positions[positions >= 0], row[positions >= 0])
        found.append(total)
    return found
