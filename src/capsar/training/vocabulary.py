"""The words or pieces that a network knows, and their first vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from capsar.data.catalog import datasets, find_file, identify
from capsar.model.reconstruction import aspect_vector
from capsar.model.transformer import load_pretrained
from capsar.model.vectors import WordVectors, load_vectors, vector_words
from capsar.text import WordTokenizer, build_vocabulary
from capsar.training.batches import collate, encode_examples
from capsar.training.card import RANDOM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from capsar.config import DataConfig, ModelConfig
    from capsar.data.catalog import Dataset
    from capsar.data.example import Example
    from capsar.model.transformer import Pretrained
    from capsar.pieces import SentenceTokenizer

_EXAMPLES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Known:
    """The words or pieces that a model knows, and their vectors."""

    tokenizer: SentenceTokenizer
    table: Tensor
    num_trained: int
    source: str
    licence: str
    encoder: Pretrained | None = None
    scale: float = 1.0


def gather_known(
    data_config: DataConfig,
    model_config: ModelConfig,
    train_part: list[Example],
    *,
    more_texts: Sequence[str] = (),
    seed: int,
) -> Known:
    """Return vocabulary and first vectors: of the training texts, or of a pre-trained encoder.

    Args:
        data_config: Where vectors come from.
        model_config: Whether there is a pre-trained encoder.
        train_part: Examples that are trained on.
        more_texts: Texts that are trained on without an aspect.
        seed: Of random vectors.
    """
    if model_config.encoder:
        reads_aspect = model_config.aspect_entry == "pair"
        encoder = load_pretrained(model_config.encoder, reads_aspect=reads_aspect)
        norm = aspect_norm(train_part, encoder.tokenizer, encoder.table)
        scale = model_config.target_norm / norm if norm else 1.0
        source = f"input pieces of {encoder.name}"
        return Known(encoder.tokenizer, encoder.table, 0, source, "", encoder, scale)
    texts = list(dict.fromkeys([*(example.text for example in train_part), *more_texts]))
    path = _vectors_path(data_config.vectors) if data_config.vectors else None
    some = vector_words(path, data_config.max_vector_words) if path else []
    tokenizer = WordTokenizer.build(build_vocabulary(texts, some))
    vectors = load_vectors(path, tokenizer.vocabulary()) if path else None
    table = _initial_vectors(tokenizer, vectors, word_dim=data_config.word_dim, seed=seed)
    published = find_published(data_config.vectors) if path else None
    return Known(
        tokenizer,
        table,
        len(build_vocabulary(texts)) + 2,
        path.name if path else RANDOM,
        published.licence if published else "",
    )


def aspect_norm(examples: list[Example], tokenizer: SentenceTokenizer, table: Tensor) -> float:
    """Return the mean norm of the examples' aspect vectors: what reconstruction aims at."""
    encoded = encode_examples(examples, tokenizer)
    norms = []
    for start in range(0, len(encoded), _EXAMPLES_AT_ONCE):
        batch = collate(encoded[start : start + _EXAMPLES_AT_ONCE])
        vectors = functional.embedding(batch.ids, table)  # (B, T, E)
        norms.append(aspect_vector(vectors, batch.aspect_mask).norm(dim=-1))  # (B)
    return float(torch.cat(norms).mean())


def _vectors_path(source: str) -> Path:
    return find_file(source, "vectors") if source in datasets() else Path(source)


def find_published(source: str) -> Dataset | None:
    """Return the dataset of the catalog that a name or a file is, a file judged by its content."""
    known = datasets().get(source.partition(":")[0])
    if known is None:
        found = identify(Path(source))
        known = found[0] if found else None
    return known


def _initial_vectors(
    tokenizer: WordTokenizer,
    vectors: WordVectors | None,
    *,
    word_dim: int,
    seed: int,
) -> Tensor:
    """Return the first vector of every word (V, E): pre-trained, or random of the same spread."""
    words = tokenizer.vocabulary()
    some = vectors is not None and len(vectors.words) > 0
    dim = vectors.matrix.shape[1] if vectors is not None else word_dim
    spread = float(vectors.matrix.std()) if vectors is not None and some else 0.4
    table = np.zeros((len(words), dim), dtype=np.float32)
    rows = {word: row for row, word in enumerate(words)}
    if vectors is not None and some:
        table[1] = vectors.matrix.mean(0)  # any unknown word
        for word, vector in zip(vectors.words, vectors.matrix, strict=True):
            table[rows.pop(word)] = vector
    generator = np.random.default_rng(seed)
    first = 2 if some else 1  # padding is zero
    for row in sorted(row for row in rows.values() if row >= first):
        table[row] = generator.normal(0, spread, dim)
    return torch.from_numpy(table)
