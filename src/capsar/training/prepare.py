"""What training needs of its data: parts, vocabulary, first vectors, and a fingerprint of all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from capsar.data.catalog import TEST, datasets, find_file, identify, training_examples
from capsar.data.formats.tables import Columns
from capsar.data.readers import read_examples
from capsar.data.splits import drop_shared, split_dev
from capsar.errors import ConfigError, DataError
from capsar.evaluation.evaluate import judgeable
from capsar.labels import CLASSES
from capsar.model.vectors import WordVectors, load_vectors, vector_words
from capsar.text import WordTokenizer, build_vocabulary
from capsar.training.card import RANDOM

if TYPE_CHECKING:
    from torch import Tensor

    from capsar.config import DataConfig
    from capsar.data.catalog import Dataset
    from capsar.data.example import Example
    from capsar.data.overlap import Sharing


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything training needs of its data."""

    train: list[Example]
    dev: list[Example]
    tokenizer: WordTokenizer
    vectors: Tensor
    """The initial vector of every word (V, E)."""
    num_trained: int
    facts: dict[str, Any]
    """What the model card says of the data."""
    fingerprint: str


def prepare_data(data_config: DataConfig, *, seed: int = 0) -> Prepared:
    """Read the training data, cut or read the dev part, and build vocabulary and vectors.

    Raises:
        DataError: If there is nothing to train on.
    """
    examples = judgeable(_read(data_config.train, data_config, default_part="train"))
    dropped: dict[Sharing, int] = {}
    if data_config.dev:
        dev_part = judgeable(_read(data_config.dev, data_config, default_part="dev"))
        cleared = drop_shared(examples, (example.text for example in dev_part))
        train_part, dropped = list(cleared.kept), cleared.dropped
    elif not data_config.dev_share:
        train_part, dev_part = examples, []
    else:
        split = split_dev(examples, share=data_config.dev_share, seed=data_config.dev_seed)
        train_part, dev_part = list(split.train), list(split.dev)
    if data_config.train_share < 1:
        rest = split_dev(train_part, share=data_config.train_share, seed=data_config.dev_seed + 1)
        train_part = list(rest.dev)
    if not train_part or (not dev_part and (data_config.dev or data_config.dev_share)):
        raise DataError(
            f"{data_config.train!r} has {len(train_part)} examples to train on and {len(dev_part)} "
            "to choose the epoch on; each needs an aspect in its text and a polarity of "
            f"{', '.join(CLASSES)}"
        )
    texts = list(dict.fromkeys(example.text for example in train_part))
    path = _vectors_path(data_config.vectors) if data_config.vectors else None
    known = vector_words(path, data_config.max_vector_words) if path else []
    tokenizer = WordTokenizer.build(build_vocabulary(texts, known))
    vectors = load_vectors(path, tokenizer.vocabulary()) if path else None
    table = _initial_vectors(tokenizer, vectors, word_dim=data_config.word_dim, seed=seed)
    published = _published(data_config.train)
    published_vectors = _published(data_config.vectors) if path else None
    facts = {
        "train": _shown(data_config.train),
        "dataset": published.name if published else "",
        "licence": published.licence if published else "",
        "train_examples": len(train_part),
        "dev": _shown(data_config.dev) if data_config.dev else "",
        "dev_examples": len(dev_part),
        "shared_sentences_dropped": sum(dropped.values()),
        "shared_by_kind": {str(kind): count for kind, count in dropped.items()},
        "vectors": path.name if path else RANDOM,
        "vectors_licence": published_vectors.licence if published_vectors else "",
        "words": len(tokenizer),
    }
    return Prepared(
        train_part,
        dev_part,
        tokenizer,
        table,
        len(build_vocabulary(texts)) + 2,
        facts,
        _fingerprint(train_part, dev_part, tokenizer, table),
    )


def _fingerprint(
    train_part: list[Example], dev_part: list[Example], tokenizer: WordTokenizer, table: Tensor
) -> str:
    """A hash of everything training sees of its data: a changed file must not be mixed with."""
    digest = hashlib.sha256()
    for part in (train_part, dev_part):
        for example in part:
            row = repr((example.text, example.spans, example.polarity))
            digest.update(row.encode("utf-8", "surrogatepass"))
    digest.update(tokenizer.content())
    digest.update(table.numpy().tobytes())
    return digest.hexdigest()


def _read(source: str, data_config: DataConfig, *, default_part: str) -> list[Example]:
    """Read a named dataset's part, or a file; never a test part, under whatever name."""
    name, _, part = source.partition(":")
    if name in datasets():
        return training_examples(name, part or default_part)
    path = Path(source)
    known = identify(path) if "\0" not in source and path.is_file() else None
    if known and known[1].part == TEST:
        raise ConfigError(
            f"{source!r} is the test part of {known[0].name!r}: it is not for training or tuning; "
            "only evaluation opens it"
        )
    columns = Columns(
        text=data_config.text_column,
        aspect=data_config.aspect_column,
        polarity=data_config.polarity_column,
    )
    return list(read_examples(path, columns=columns))


def _vectors_path(source: str) -> Path:
    return find_file(source, "vectors") if source in datasets() else Path(source)


def _shown(source: str) -> str:
    """A dataset's name, or a file's without the folders of this machine."""
    return source if source.partition(":")[0] in datasets() else Path(source).name


def _published(source: str) -> Dataset | None:
    """The dataset of the catalog that a name or a file is, the file judged by its content."""
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
