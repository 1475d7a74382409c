"""Words by gradient times input: how much a small step of each word's vector moves a capsule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capsar.errors import DataError
from capsar.model.transformer import Transformer
from capsar.training.batches import collate, encode_examples
from capsar.training.run import load_network

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from capsar.data.example import Example
    from capsar.pieces import SentenceTokenizer

_BATCH = 64


class GradientRanker:
    """The words of examples, scored by gradient times input; a rival of *because*.

    The score is the dot product of a word's input vector and the gradient of the capsule's length:
    to first order, what the length would lose without the vector. Of several pieces, the sum.

    Args:
        model: The network.
        tokenizer: Its tokenizer.
        by_norm: Whether the score is the norm of the products of both vectors' numbers instead of
            their sum: how much the word matters, be it for or against.
    """

    def __init__(
        self, model: nn.Module, tokenizer: SentenceTokenizer, *, by_norm: bool = False
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._by_norm = by_norm
        self._inputs: list[Tensor] = []

    @classmethod
    def load(cls, bundle: Path, *, by_norm: bool = False) -> GradientRanker:
        """Load the network of a bundle.

        Raises:
            ArtifactError: If it is damaged or holds no weights.
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
                    raise DataError("Gradients are taken of sentences that fit in one window")
                inputs = self._inputs.pop()
                (gradient,) = torch.autograd.grad(lengths.sum(), inputs)
                products = (gradient * inputs).detach()  # (B, T, E)
                reduced = products.norm(dim=-1) if self._by_norm else products.sum(-1)  # (B, T)
                scores += _of_words(reduced.numpy(), batch.words.numpy())
        finally:
            hook.remove()
            self._inputs.clear()
        return scores

    def _watch(self) -> Any:  # noqa: ANN401  (torch does not name its handles)
        """Make the encoder's input vectors leaves of the graph, and keep them."""

        def keep(vectors: Tensor) -> Tensor:
            self._inputs.append(vectors.detach().requires_grad_())
            return self._inputs[-1]

        encoder = self._model.encoder
        if isinstance(encoder, Transformer):
            table = encoder.model.get_input_embeddings()
            return table.register_forward_hook(lambda _, __, vectors: keep(vectors))
        return encoder.register_forward_pre_hook(lambda _, given: (keep(given[0]), *given[1:]))  # type: ignore[union-attr]


def _of_words(products: NDArray[np.float32], words: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    """Sum the scores of pieces (B, T) by word."""
    found = []
    for row, places in zip(products, words, strict=True):
        total = np.zeros(places.max(initial=-1) + 1, dtype=np.float32)
        np.add.at(total, places[places >= 0], row[places >= 0])
        found.append(total)
    return found
