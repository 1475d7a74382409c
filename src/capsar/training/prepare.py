"""What training needs of its data: parts, vocabulary, first vectors, and a fingerprint of all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import ModelConfig
from capsar.data.catalog import TEST, datasets, identify, training_examples
from capsar.data.formats.tables import Columns
from capsar.data.readers import read_examples
from capsar.data.splits import drop_hashed, drop_shared, split_dev
from capsar.errors import ConfigError, DataError
from capsar.evaluation.evaluate import judgeable
from capsar.labels import CLASSES
from capsar.training.vocabulary import find_published, gather_known

if TYPE_CHECKING:
    from torch import Tensor

    from capsar.config import DataConfig
    from capsar.data.example import Example
    from capsar.data.overlap import Sharing
    from capsar.model.transformer import Pretrained
    from capsar.pieces import SentenceTokenizer


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything training needs of its data."""

    train: list[Example]
    dev: list[Example]
    tokenizer: SentenceTokenizer
    vectors: Tensor
    """The initial vector of every word or piece (V, E)."""
    num_trained: int
    facts: dict[str, Any]
    """What the model card says of the data."""
    fingerprint: str
    encoder: Pretrained | None = None
    """The pre-trained encoder, if the model has one."""
    vector_scale: float = 1.0
    """What its vectors are multiplied by for reconstruction."""


def prepare_data(
    data_config: DataConfig, model_config: ModelConfig | None = None, *, seed: int = 0
) -> Prepared:
    """Read the training data, cut or read the dev part, and build vocabulary and vectors.

    Args:
        data_config: What is trained on.
        model_config: Of the network; it need not be given for a recurrent one.
        seed: Of random vectors.

    Raises:
        DataError: If there is nothing to train on.
    """
    examples = judgeable(_read(data_config.train, data_config, default_part="train"))
    unwanted = Path(data_config.without) if data_config.without else None
    examples, held_by_test_sets = drop_hashed(examples, unwanted) if unwanted else (examples, 0)
    dropped: dict[Sharing, int] = {}
    if data_config.dev:
        dev_part = judgeable(_read(data_config.dev, data_config, default_part="dev"))
        if unwanted:
            dev_part, number = drop_hashed(dev_part, unwanted)
            held_by_test_sets += number
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
    known = gather_known(data_config, model_config or ModelConfig(), train_part, seed=seed)
    published = find_published(data_config.train)
    facts = {
        "train": _shown(data_config.train),
        "dataset": published.name if published else "",
        "licence": published.licence if published else "",
        "train_examples": len(train_part),
        "dev": _shown(data_config.dev) if data_config.dev else "",
        "dev_examples": len(dev_part),
        "shared_sentences_dropped": sum(dropped.values()),
        "test_sentences_dropped": held_by_test_sets,
        "shared_by_kind": {str(kind): count for kind, count in dropped.items()},
        "vectors": known.source,
        "vectors_licence": known.licence,
        "words": len(known.tokenizer),
    }
    return Prepared(
        train_part,
        dev_part,
        known.tokenizer,
        known.table,
        known.num_trained,
        facts,
        _fingerprint(train_part, dev_part, known.tokenizer, known.table),
        known.encoder,
        known.scale,
    )


def _fingerprint(
    train_part: list[Example], dev_part: list[Example], tokenizer: SentenceTokenizer, table: Tensor
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


def _shown(source: str) -> str:
    """A dataset's name, or a file's without the folders of this machine."""
    return source if source.partition(":")[0] in datasets() else Path(source).name
