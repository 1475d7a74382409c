"""Static word vectors for themes: the sum of a word's subword vectors, by WordPiece.

The table was distilled from all-MiniLM-L6-v2: each row is the output for one subword, reduced,
weighted by rarity and adapted to themes (`experiments/pretrained/themes.py`). Frequent subwords
have short vectors, so the vector of a text is the plain sum of its words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from capsar.bundle import BUNDLED_MODELS, DEFAULT_MODEL, TOKENIZER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

VECTORS = BUNDLED_MODELS / "themes.safetensors"
_MAX_CACHED = 100_000
"""Words whose vectors are kept in memory."""
_MAX_CHARS = 40
"""Longer words are cut."""


class WordVectors:
    """Vectors of words and texts. Threads may share it."""

    def __init__(self, table: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
        """Make word vectors.

        Args:
            table: A vector per subword of the bundled tokenizer (V, D).
            scales: What each vector is multiplied by (V).
        """
        self._tokenizer = Tokenizer.from_file(str(BUNDLED_MODELS / DEFAULT_MODEL / TOKENIZER))
        self._table, self._scales = table, scales.copy()
        self._scales[self._tokenizer.token_to_id("[UNK]")] = 0  # says nothing
        self._vectors: dict[str, NDArray[np.float32]] = {}

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return int(self._table.shape[1])

    def subwords(self, word: str) -> list[int]:
        """Return the subwords of a word."""
        known = word.encode("utf-8", "replace").decode()  # without lone surrogates
        found: list[int] = self._tokenizer.encode(known, add_special_tokens=False).ids
        return found

    def add_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Return the sum of the vectors of words (D)."""
        total = np.zeros(self.dim, np.float32)
        for word in words:
            total += self._vector(word[:_MAX_CHARS])
        return total

    def _vector(self, word: str) -> NDArray[np.float32]:
        found = self._vectors.get(word)
        if found is None:
            ids = self.subwords(word)
            found = self._scales[ids] @ self._table[ids].astype(np.float32)
            if len(self._vectors) >= _MAX_CACHED:
                self._vectors = {}
            self._vectors[word] = found
        return found


def normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors scaled to length one; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-6), np.float32)


def read_vectors(path: Path = VECTORS) -> tuple[WordVectors, Mapping[str, NDArray[np.float32]]]:
    """Read the word vectors, and the weights of a matcher that uses no states."""
    content = load_file(path)
    table, scales = content.pop("table"), content.pop("scales")
    return WordVectors(table, scales), content
