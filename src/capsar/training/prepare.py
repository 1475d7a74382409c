"""What training needs of its data: parts, vocabulary, first vectors, and a fingerprint of all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import ModelConfig
from capsar.data.catalog import datasets
from capsar.data.example import Example
from capsar.errors import DataError
from capsar.labels import CLASSES
from capsar.training.parts import read_parts
from capsar.training.vocabulary import find_published, gather_known

if TYPE_CHECKING:
    from torch import Tensor

    from capsar.config import DataConfig
    from capsar.evaluation.extraction import TermSentence
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
    train_sentences: list[TermSentence] = field(default_factory=list)
    """Every sentence of the training part with all its terms: those of *conflict* too, and
    sentences without any."""
    dev_sentences: list[TermSentence] = field(default_factory=list)

    @property
    def tagged_train(self) -> list[Example]:
        """The training examples, and one of no polarity for each sentence that has none."""
        judged = {example.text for example in self.train}
        others = (s.text for s in self.train_sentences if s.text not in judged)
        return [*self.train, *map(Example, others)]


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
    parts = read_parts(data_config)
    train_part, dev_part = parts.train, parts.dev
    if not train_part or (not dev_part and (data_config.dev or data_config.dev_share)):
        raise DataError(
            f"{data_config.train!r} has {len(train_part)} examples to train on and {len(dev_part)} "
            "to choose the epoch on; each needs an aspect in its text and a polarity of "
            f"{', '.join(CLASSES)}"
        )
    finds = model_config is not None and model_config.span_weight > 0
    sentences = parts.train_sentences if finds else []
    known = gather_known(
        data_config,
        model_config or ModelConfig(),
        train_part,
        more_texts=[sentence.text for sentence in sentences],
        seed=seed,
    )
    published = find_published(data_config.train)
    facts = {
        "train": _shown(data_config.train),
        "dataset": published.name if published else "",
        "licence": published.licence if published else "",
        "train_examples": len(train_part),
        "dev": _shown(data_config.dev) if data_config.dev else "",
        "dev_examples": len(dev_part),
        "shared_sentences_dropped": sum(parts.shared.values()),
        "test_sentences_dropped": parts.held_by_test_sets,
        "shared_by_kind": {str(kind): count for kind, count in parts.shared.items()},
        "vectors": known.source,
        "vectors_licence": known.licence,
        "words": len(known.tokenizer),
    }
    if finds:
        facts["train_sentences"] = len(sentences)
        facts["train_sentences_without_terms"] = sum(not s.terms for s in sentences)
    return Prepared(
        train_part,
        dev_part,
        known.tokenizer,
        known.table,
        known.num_trained,
        facts,
        _fingerprint(train_part, dev_part, known.tokenizer, known.table, sentences),
        known.encoder,
        known.scale,
        parts.train_sentences,
        parts.dev_sentences,
    )


def _fingerprint(
    train_part: list[Example],
    dev_part: list[Example],
    tokenizer: SentenceTokenizer,
    table: Tensor,
    sentences: list[TermSentence],
) -> str:
    """A hash of everything training sees of its data: a changed file must not be mixed with."""
    digest = hashlib.sha256()
    for part in (train_part, dev_part):
        for example in part:
            row = repr((example.text, example.spans, example.polarity))
            digest.update(row.encode("utf-8", "surrogatepass"))
    for sentence in sentences:
        row = repr((sentence.text, sorted(sentence.terms)))
        digest.update(row.encode("utf-8", "surrogatepass"))
    digest.update(tokenizer.content())
    digest.update(table.numpy().tobytes())
    return digest.hexdigest()


def _shown(source: str) -> str:
    """A dataset's name, or a file's without the folders of this machine."""
    return source if source.partition(":")[0] in datasets() else Path(source).name
