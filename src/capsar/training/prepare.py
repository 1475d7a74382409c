"""What training needs of its data: parts, vocabulary, first vectors, and a fingerprint of all."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import ModelConfig, list_sources
from capsar.data.catalog import datasets, digest_file
from capsar.data.example import Example
from capsar.errors import DataError
from capsar.labels import CLASSES
from capsar.training.parts import read_parts
from capsar.training.vocabulary import find_published, gather_known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from capsar.config import DataConfig, Sources
    from capsar.evaluation.extraction import TermSentence
    from capsar.model.transformer import Pretrained
    from capsar.pieces import SentenceTokenizer
    from capsar.training.start import Start
    from capsar.training.vocabulary import Known

FEW_DEV_EXAMPLES = 30
"""With fewer, whoever trains is told."""
_LOG = logging.getLogger(__name__)


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
    polarity_only: list[Example] = field(default_factory=list)
    """Examples of sentences of which not every term is marked."""

    @property
    def tagged_train(self) -> list[Example]:
        """The training examples, and one of no polarity for each sentence that has none."""
        judged = {example.text for example in self.train}
        others = (s.text for s in self.train_sentences if s.text not in judged)
        return [*self.all_train, *map(Example, others)]

    @property
    def all_train(self) -> list[Example]:
        """Every example that polarity is learnt from."""
        return [*self.train, *self.polarity_only]


def prepare_data(
    data_config: DataConfig,
    model_config: ModelConfig | None = None,
    *,
    seed: int = 0,
    start: Start | None = None,
    fold: int | None = None,
) -> Prepared:
    """Read the training data, cut or read the dev part, and build vocabulary and vectors.

    Args:
        data_config: What is trained on.
        model_config: Of the network; it need not be given for a recurrent one.
        seed: Of random vectors.
        start: The model that is trained further, which gives vocabulary and vectors.
        fold: Which part of a cross-validation is the dev part; without, all is trained on.

    Raises:
        DataError: If there is nothing to train on.
    """
    parts = read_parts(data_config, fold)
    train_part, dev_part = parts.train, parts.dev
    cuts_dev = data_config.dev or (data_config.dev_share and not data_config.folds)
    if not train_part or (not dev_part and cuts_dev):
        raise DataError(
            f"{data_config.train!r} has {len(train_part)} examples to train on and {len(dev_part)} "
            "to choose the epoch on; each needs an aspect in its text and a polarity of "
            f"{', '.join(CLASSES)}. `capsar data check` tells what a file holds"
        )
    if 0 < len(dev_part) < FEW_DEV_EXAMPLES and fold is None:
        _LOG.warning(
            "Only %d examples choose the epoch and tell how sure answers are: that is little more "
            "than a guess. Label more, or set data.dev_share (now %g) higher.",
            len(dev_part), data_config.dev_share,
        )  # fmt: skip
    finds = model_config is not None and model_config.span_weight > 0 and data_config.all_marked
    sentences = parts.train_sentences if finds else []
    more = [*(s.text for s in sentences), *(e.text for e in parts.polarity_only)]
    known = (
        start.known()
        if start
        else gather_known(
            data_config, model_config or ModelConfig(), train_part, more_texts=more, seed=seed
        )
    )
    facts = {
        "train": _shown(data_config.train),
        **_published((*list_sources(data_config.train), *list_sources(data_config.polarity_only))),
        "train_examples": len(train_part),
        "dev": _shown(data_config.dev),
        "dev_examples": len(dev_part),
        "shared_sentences_dropped": sum(parts.shared.values()),
        "test_sentences_dropped": parts.held_by_test_sets,
        "shared_by_kind": {str(kind): count for kind, count in parts.shared.items()},
        "vectors": known.source,
        "vectors_licence": known.licence,
        "words": len(known.tokenizer),
    }
    files = _digests(data_config, start)
    if files:
        facts["files_sha256"] = files
    if start:
        facts["started_from"] = start.name
        facts["start_trained_on"] = start.trained_on.get("train", "")
        facts["start_licence"] = start.trained_on.get("licence", "")
    if data_config.folds:
        facts["folds"] = data_config.folds
    if data_config.polarity_only:
        facts["polarity_only"] = _shown(data_config.polarity_only)
        facts["polarity_only_examples"] = len(parts.polarity_only)
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
        _fingerprint((*train_part, *dev_part, *parts.polarity_only), known, sentences, start),
        known.encoder,
        known.scale,
        parts.train_sentences,
        parts.dev_sentences,
        parts.polarity_only,
    )


def _fingerprint(
    examples: Sequence[Example], known: Known, sentences: list[TermSentence], start: Start | None
) -> str:
    """A hash of everything training sees of its data: a changed file must not be mixed with."""
    digest = hashlib.sha256()
    for example in examples:
        row = repr((example.text, example.spans, example.polarity))
        digest.update(row.encode("utf-8", "surrogatepass"))
    for sentence in sentences:
        row = repr((sentence.text, sorted(sentence.terms)))
        digest.update(row.encode("utf-8", "surrogatepass"))
    digest.update(known.tokenizer.content())
    digest.update(known.table.numpy().tobytes())
    digest.update(start.digest.encode() if start else b"")
    return digest.hexdigest()


def _shown(sources: Sources) -> str:
    """Names of datasets, and of files without the folders of this machine."""
    return ", ".join(
        source if source.partition(":")[0] in datasets() else Path(source).name
        for source in list_sources(sources)
    )


def _digests(data_config: DataConfig, start: Start | None) -> list[str]:
    """The sha256 of every file that was read, so that it is known when it is judged on."""
    sources = [data_config.train, data_config.polarity_only, data_config.dev]
    paths = [Path(source) for several in sources for source in list_sources(several)]
    before = start.trained_on.get("files_sha256", []) if start else []
    return sorted({*before, *(digest_file(path) for path in paths if path.is_file())})


def _published(sources: Sequence[str]) -> dict[str, str]:
    """The datasets of the catalog that sources are, and their licences; none if one is no such."""
    found = [find_published(source) for source in sources]
    known = {dataset.name: dataset.licence for dataset in found if dataset}
    if None in found:
        known = {}
    licences = "; ".join(dict.fromkeys(known.values()))
    return {"dataset": ", ".join(known), "licence": licences}
