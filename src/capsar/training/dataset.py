"""Training data: read, split, and combined with a vocabulary. Test sets are never read."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsar.config import ModelConfig, list_sources
from capsar.data.catalog import TEST, datasets, digest_file, identify, training_examples
from capsar.data.readers import read_examples
from capsar.data.splits import (
    Split,
    decontaminate,
    drop_hashed,
    sentence_hash,
    split_fold,
    split_validation,
)
from capsar.data.tables import Columns
from capsar.errors import ConfigError, DataError
from capsar.evaluation.evaluate import labeled
from capsar.evaluation.spans import TermSentence, term_sentences
from capsar.schema import CLASSES, Example
from capsar.training.initialize import Vocabulary, collect_vocabulary, find_published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from capsar.config import DataConfig, Sources
    from capsar.data.splits import MatchKind
    from capsar.training.initialize import InitialModel

FEW_VALIDATION_EXAMPLES = 30
"""With fewer, a warning is logged."""
MANY_SINGLE_TERMS = 0.85
"""With a larger fraction of sentences with one marked term, probably not all are marked. The
fraction is .90 to .99 in published data sampled by row, and at most .34 in whole files."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Splits:
    """Labeled examples, and all sentences with or without aspect terms."""

    train: list[Example]
    validation: list[Example]
    train_sentences: list[TermSentence]
    """Every training sentence with all its terms, also those labeled *conflict*."""
    validation_sentences: list[TermSentence]
    partially_annotated: list[Example]
    """Labeled examples of sentences in which not every term is marked."""
    pseudo_labeled: list[Example]
    """Examples that teachers labeled, and sentences in which they found no aspect."""
    shared: dict[MatchKind, int]
    """Labeled training sentences dropped because they are in the validation set."""
    excluded: int
    """Labeled sentences dropped because of `data.exclude_hashes`."""
    weights: dict[str, float]
    """The weight of each text whose source has a weight other than 1."""

    def training_examples(self, *, with_unlabeled: bool) -> list[Example]:
        """Return all training examples, and optionally one per sentence without a labeled term."""
        pseudo_labeled = labeled(self.pseudo_labeled)
        examples = [*self.train, *self.partially_annotated, *pseudo_labeled]
        if with_unlabeled:
            known = {example.text for example in (*self.train, *pseudo_labeled)}
            others = (s.text for s in self.train_sentences if s.text not in known)
            examples += map(Example, others)
        return examples


def read_splits(data_config: DataConfig, fold: int | None = None) -> Splits:
    """Read the training data, and read or split off the validation set.

    Sentences without a labeled term are split apart from the others: they do not change which
    labeled examples are trained on and which are validated on.

    Args:
        data_config: The data.
        fold: The fold of a cross-validation to validate on, if any.
    """
    everything = _read(data_config.train, data_config, default_part="train")
    with_label, without = _by_label(everything)
    validation: list[Example] = []
    partial_texts: set[str] = set()
    if list_sources(data_config.validation):
        validation = _read(data_config.validation, data_config, default_part="dev")
        own, others = _by_label(validation)
        partial = _read(data_config.partially_annotated_validation, data_config, default_part="dev")
        partial_texts = {e.text for e in partial} - {e.text for e in validation}
        own += labeled(partial)
        first = _decontaminated(data_config, with_label, own, own)
        second = _decontaminated(data_config, without, others, validation)
    else:
        first, second = (_divided(data_config, some, fold) for some in (with_label, without))
    # Sentences with the same words may be in both groups: all follow the labeled ones.
    train_texts = {e.text for e in first.split.train}
    validation_texts = {e.text for e in first.split.validation}
    train_hashes, validation_hashes = (
        {sentence_hash(text) for text in texts} for texts in (train_texts, validation_texts)
    )
    train_texts |= {
        e.text for e in second.split.train if sentence_hash(e.text) not in validation_hashes
    }
    validation_texts |= {
        e.text for e in second.split.validation if sentence_hash(e.text) not in train_hashes
    }
    partial = _read(data_config.partially_annotated, data_config, default_part="train")
    partial, excluded = _drop_excluded(data_config, labeled(partial))
    # Where a sentence is also annotated in full, that annotation is the one to train on.
    complete = {sentence_hash(text) for text in train_texts}
    partial = [e for e in partial if sentence_hash(e.text) not in complete]
    pseudo = _read(data_config.pseudo_labeled, data_config, default_part="train")
    pseudo, _ = _drop_excluded(data_config, pseudo)
    pseudo = decontaminate(pseudo, validation_texts).kept
    complete |= {sentence_hash(e.text) for e in partial}
    pseudo = [e for e in pseudo if sentence_hash(e.text) not in complete]
    annotated = (e for e in everything if e.text in train_texts)
    return Splits(
        first.split.train,
        first.split.validation,
        term_sentences((*annotated, *pseudo)),
        term_sentences(
            e
            for e in (validation or everything)
            if e.text in validation_texts and e.text not in partial_texts
        ),
        decontaminate(partial, validation_texts).kept,
        pseudo,
        first.shared,
        first.excluded + excluded,
        _text_weights(data_config),
    )


def _text_weights(data_config: DataConfig) -> dict[str, float]:
    """Return the weight of each text of the sources in `data.weights`."""
    return {
        example.text: float(weight)
        for source, weight in data_config.weights.items()
        for example in _read_source(source, data_config, "train")
    }


@dataclass(frozen=True, slots=True)
class _Part:
    split: Split
    shared: dict[MatchKind, int]
    excluded: int


def _by_label(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Return the labeled examples, and those of sentences without a labeled term."""
    with_label = labeled(examples)
    texts = {example.text for example in with_label}
    return with_label, [example for example in examples if example.text not in texts]


def _decontaminated(
    data_config: DataConfig,
    examples: list[Example],
    validation: list[Example],
    against: list[Example],
) -> _Part:
    """Pair a validation set with training examples, less those whose sentences are in `against`."""
    examples, excluded = _drop_excluded(data_config, examples)
    validation, also_excluded = _drop_excluded(data_config, validation)
    against, _ = _drop_excluded(data_config, against)
    cleared = decontaminate(examples, (example.text for example in against))
    split = Split(_reduced(data_config, cleared.kept), validation)
    return _Part(split, cleared.dropped, excluded + also_excluded)


def _divided(data_config: DataConfig, examples: list[Example], fold: int | None) -> _Part:
    """Split off a validation set, or one fold, or nothing."""
    examples, excluded = _drop_excluded(data_config, examples)
    ratio, folds, seed = (
        data_config.validation_ratio, data_config.folds, data_config.validation_seed,
    )  # fmt: skip
    if ratio and not folds:
        split = _try(examples, lambda: split_validation(examples, ratio=ratio, seed=seed))
        split = Split(_reduced(data_config, split.train), split.validation)
    else:
        used = _reduced(data_config, examples)
        split = Split(used, [])
        if fold is not None:
            split = _try(used, lambda: split_fold(used, fold, folds=folds, seed=seed))
    return _Part(split, {}, excluded)


def _reduced(data_config: DataConfig, examples: list[Example]) -> list[Example]:
    """Return the fraction `data.train_ratio` of the examples."""
    ratio, seed = data_config.train_ratio, data_config.validation_seed + 1
    if ratio == 1:
        return examples
    split = _try(examples, lambda: split_validation(examples, ratio=ratio, seed=seed))
    return split.validation or split.train


def _try(examples: list[Example], split: Callable[[], Split]) -> Split:
    """Split, or keep all examples together if they are unlabeled and too few."""
    try:
        return split()
    except ConfigError:
        if labeled(examples):
            raise
        return Split(examples, [])


def _drop_excluded(data_config: DataConfig, examples: list[Example]) -> tuple[list[Example], int]:
    if not data_config.exclude_hashes:
        return examples, 0
    return drop_hashed(examples, Path(data_config.exclude_hashes))


def _read(sources: Sources, data_config: DataConfig, *, default_part: str) -> list[Example]:
    return [
        example
        for source in list_sources(sources)
        for example in _read_source(source, data_config, default_part)
    ]


def _read_source(source: str, data_config: DataConfig, default_part: str) -> list[Example]:
    """Read a part of a named dataset, or a file; refuse test sets, also under another name."""
    name, _, part = source.partition(":")
    if name in datasets():
        return training_examples(name, part or default_part)
    path = Path(source)
    known = identify(path) if "\0" not in source and path.is_file() else None
    if known and known[1].part == TEST:
        raise ConfigError(
            f"{source!r} is the test set of {known[0].name!r}: it cannot be used for training or "
            "validation, only for evaluation"
        )
    columns = Columns(
        text=data_config.text_column,
        aspect=data_config.aspect_column,
        polarity=data_config.polarity_column,
    )
    return list(read_examples(path, columns=columns, encoding=data_config.encoding, labeled=True))


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Everything that training needs of its data."""

    splits: Splits
    vocabulary: Vocabulary
    facts: dict[str, Any]
    """What the bundle and the model card record about the data."""
    fingerprint: str
    """A hash of the data, the vocabulary and the initial model: it changes with any of them."""


def prepare_data(
    data_config: DataConfig,
    model_config: ModelConfig | None = None,
    *,
    seed: int = 0,
    initial: InitialModel | None = None,
    fold: int | None = None,
) -> TrainingData:
    """Read and split the data, and collect vocabulary and vectors.

    Args:
        data_config: The data.
        model_config: The network; the default one if not given.
        seed: Seed of random vectors.
        initial: The model to fine-tune, which has a vocabulary and vectors.
        fold: The fold of a cross-validation to validate on; without, everything is trained on.

    Raises:
        DataError: If there is no example to train or to validate on.
    """
    model_config = model_config or ModelConfig()
    splits = read_splits(data_config, fold)
    _check_sizes(splits, data_config, fold)
    trains_spans = model_config.span_weight > 0 and data_config.exhaustive
    sentences = splits.train_sentences if trains_spans else []
    if initial:
        vocabulary = initial.vocabulary()
    else:
        more = [*(s.text for s in sentences), *(e.text for e in splits.partially_annotated)]
        vocabulary = collect_vocabulary(
            data_config, model_config, splits.train, more_texts=more, seed=seed
        )
    files = _digest_files(data_config)
    facts = _describe(data_config, splits, vocabulary, initial, files)
    if trains_spans:
        facts["train_sentences"] = len(sentences)
        facts["train_sentences_without_terms"] = sum(not s.terms for s in sentences)
        single = sum(len(s.terms) == 1 for s in sentences) / len(sentences)
        if initial and single > MANY_SINGLE_TERMS and fold is None:
            _LOG.warning(
                "%.0f %% of the sentences have exactly one marked aspect. If not every aspect is "
                "marked, use --partial-labels (data.exhaustive = false): otherwise the model "
                "learns that the others are not aspects.", 100 * single,
            )  # fmt: skip
    fingerprint = _fingerprint(splits, sentences, vocabulary, initial, files)
    return TrainingData(splits, vocabulary, facts, fingerprint)


def _check_sizes(splits: Splits, data_config: DataConfig, fold: int | None) -> None:
    num_train, num_validation = len(splits.train), len(splits.validation)
    needs = data_config.validation or (data_config.validation_ratio and not data_config.folds)
    if not num_train or (not num_validation and needs):
        raise DataError(
            f"{data_config.train!r} has {num_train} examples for training and {num_validation} for "
            "validation; each needs an aspect in its text and one of the polarities "
            f"{', '.join(CLASSES)}. Run `capsar data check` to see what a file holds"
        )
    if 0 < num_validation < FEW_VALIDATION_EXAMPLES and fold is None:
        _LOG.warning(
            "Only %d validation examples: the choice of the epoch and the confidences are "
            "unreliable. Label more examples, or raise data.validation_ratio (now %g).",
            num_validation, data_config.validation_ratio,
        )  # fmt: skip


def _describe(
    data_config: DataConfig,
    splits: Splits,
    vocabulary: Vocabulary,
    initial: InitialModel | None,
    files: list[str],
) -> dict[str, Any]:
    """Return the facts about the data, without folders of this machine."""
    named = (data_config.train, data_config.partially_annotated, data_config.pseudo_labeled)
    sources = [source for several in named for source in list_sources(several)]
    found = [find_published(source) for source in sources]
    published = {dataset.name: dataset.license for dataset in found if dataset}
    if None in found:  # not all of the data is in the catalog
        published = {}
    facts: dict[str, Any] = {
        "train": _shown(data_config.train),
        "dataset": ", ".join(published),
        "license": "; ".join(dict.fromkeys(published.values())),
        "train_examples": len(splits.train),
        "validation": _shown(data_config.validation),
        "validation_examples": len(splits.validation),
        "shared_sentences_dropped": sum(splits.shared.values()),
        "test_sentences_dropped": splits.excluded,
        "shared_by_kind": {str(kind): count for kind, count in splits.shared.items()},
        "vectors": vocabulary.source,
        "vectors_license": vocabulary.license,
        "words": len(vocabulary.tokenizer),
    }
    before = initial.trained_on.get("files_sha256", []) if initial else []
    if files or before:
        facts["files_sha256"] = sorted({*before, *files})
    if initial:
        facts["init_from"] = initial.name
        facts["init_trained_on"] = initial.trained_on.get("train", "")
        facts["init_license"] = initial.trained_on.get("license", "")
    if data_config.folds:
        facts["folds"] = data_config.folds
    if data_config.partially_annotated:
        facts["partially_annotated"] = _shown(data_config.partially_annotated)
        facts["partially_annotated_examples"] = len(splits.partially_annotated)
    if data_config.pseudo_labeled:
        facts["pseudo_labeled"] = _shown(data_config.pseudo_labeled)
        facts["pseudo_labeled_sentences"] = len({e.text for e in splits.pseudo_labeled})
    return facts


def _shown(sources: Sources) -> str:
    return ", ".join(
        source if source.partition(":")[0] in datasets() else Path(source).name
        for source in list_sources(sources)
    )


def _digest_files(data_config: DataConfig) -> list[str]:
    """Return the sha256 of every file that was read."""
    sources = (
        data_config.train,
        data_config.partially_annotated,
        data_config.pseudo_labeled,
        data_config.validation,
        data_config.partially_annotated_validation,
    )
    paths = [Path(source) for several in sources for source in list_sources(several)]
    return [digest_file(path) for path in paths if path.is_file()]


def _fingerprint(
    splits: Splits,
    sentences: list[TermSentence],
    vocabulary: Vocabulary,
    initial: InitialModel | None,
    files: list[str],
) -> str:
    rows: list[object] = [
        (example.text, example.spans, example.polarity)
        for example in (*splits.train, *splits.validation, *splits.partially_annotated)
    ]
    rows += [(sentence.text, sorted(sentence.terms)) for sentence in sentences]
    rows += sorted(splits.weights.items())
    rows += [(e.text, e.spans, e.polarity) for e in splits.pseudo_labeled]
    rows += [files, initial.fingerprint if initial else ""]
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    digest.update(vocabulary.tokenizer.content())
    digest.update(vocabulary.vectors.cpu().numpy().tobytes())
    return digest.hexdigest()
