"""The parts of the training data: what is trained on, and what chooses; never a test part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from capsar.config import list_sources
from capsar.data.catalog import TEST, datasets, identify, training_examples
from capsar.data.formats.tables import Columns
from capsar.data.readers import read_examples
from capsar.data.splits import drop_hashed, drop_shared, sentence_hash, split_dev, split_fold
from capsar.errors import ConfigError
from capsar.evaluation.evaluate import judgeable
from capsar.evaluation.extraction import TermSentence, term_sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from capsar.config import DataConfig, Sources
    from capsar.data.example import Example
    from capsar.data.overlap import Sharing


@dataclass(frozen=True, slots=True)
class Parts:
    """Examples with an aspect and a class, and all sentences, with or without terms."""

    train: list[Example]
    dev: list[Example]
    train_sentences: list[TermSentence]
    dev_sentences: list[TermSentence]
    shared: dict[Sharing, int]
    """Training sentences with a judged term that were dropped because dev holds them."""
    held_by_test_sets: int
    """Sentences with a judged term that were dropped because a test set holds them."""
    polarity_only: list[Example] = field(default_factory=list)
    """Examples of sentences of which not every term is marked."""


def read_parts(data_config: DataConfig, fold: int | None = None) -> Parts:
    """Read the training data, and cut or read the dev part.

    Sentences without a judged term are cut apart from the others, so that which examples task A is
    trained and chosen on does not depend on them.

    Args:
        data_config: What is trained on.
        fold: Which part of a cross-validation is held back, if there is one; without, none is.
    """
    everything = _read(data_config.train, data_config, default_part="train")
    judged = judgeable(everything)
    others = _others(everything, judged)
    dev_file: list[Example] = []
    if list_sources(data_config.dev):
        dev_file = _read(data_config.dev, data_config, default_part="dev")
        dev_judged = judgeable(dev_file)
        first = _clear(data_config, judged, dev_judged, dev_judged)
        second = _clear(data_config, others, _others(dev_file, dev_judged), dev_file)
    else:
        first, second = (_cut(data_config, some, fold) for some in (judged, others))
    # Sentences of the same words may be of both kinds: all of them fall where the judged ones did.
    in_train, in_dev = ({sentence_hash(e.text) for e in part} for part in (first.train, first.dev))
    train = {e.text for e in second.train if sentence_hash(e.text) not in in_dev}
    dev = {e.text for e in second.dev if sentence_hash(e.text) not in in_train}
    train |= {e.text for e in first.train}
    dev |= {e.text for e in first.dev}
    further, held = _further(data_config, dev)
    return Parts(
        first.train,
        first.dev,
        term_sentences(e for e in everything if e.text in train),
        term_sentences(e for e in (dev_file or everything) if e.text in dev),
        first.shared,
        first.held_by_test_sets + held,
        further,
    )


def _further(data_config: DataConfig, dev: set[str]) -> tuple[list[Example], int]:
    """The examples that teach polarity only, and how many sentences of them test sets hold."""
    read = _read(data_config.polarity_only, data_config, default_part="train")
    examples, held = _drop_held(data_config, judgeable(read))
    return list(drop_shared(examples, dev).kept), held


def _others(examples: Sequence[Example], judged: Sequence[Example]) -> list[Example]:
    """The examples of sentences that have no judged term."""
    known = {example.text for example in judged}
    return [example for example in examples if example.text not in known]


@dataclass(frozen=True, slots=True)
class _Cut:
    train: list[Example]
    dev: list[Example]
    shared: dict[Sharing, int]
    held_by_test_sets: int


def _clear(
    data_config: DataConfig,
    examples: list[Example],
    dev_part: list[Example],
    judged_on: list[Example],
) -> _Cut:
    """Clear examples of what a dev part of its own holds."""
    examples, held = _drop_held(data_config, examples)
    dev_part, dev_held = _drop_held(data_config, dev_part)
    judged_on, _ = _drop_held(data_config, judged_on)
    cleared = drop_shared(examples, (example.text for example in judged_on))
    train_part = _thinned(data_config, list(cleared.kept))
    return _Cut(train_part, dev_part, cleared.dropped, held + dev_held)


def _cut(data_config: DataConfig, examples: list[Example], fold: int | None) -> _Cut:
    """Cut a dev part off examples, or none."""
    examples, held = _drop_held(data_config, examples)
    if data_config.folds or not data_config.dev_share:
        thinned = _thinned(data_config, examples)
        if fold is None:
            return _Cut(thinned, [], {}, held)
        return _Cut(*_hold_back(thinned, fold, data_config), {}, held)
    train_part, dev_part = _split(examples, data_config.dev_share, data_config.dev_seed)
    return _Cut(_thinned(data_config, train_part), dev_part, {}, held)


def _drop_held(data_config: DataConfig, examples: list[Example]) -> tuple[list[Example], int]:
    """Drop the sentences that test sets hold, as far as they are listed."""
    if not data_config.without:
        return examples, 0
    return drop_hashed(examples, Path(data_config.without))


def _thinned(data_config: DataConfig, train_part: list[Example]) -> list[Example]:
    if data_config.train_share == 1:
        return train_part
    rest, kept = _split(train_part, data_config.train_share, data_config.dev_seed + 1)
    return kept or rest


def _split(examples: list[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Cut a share off examples; sentences without terms that are too few for that stay together."""
    few = not judgeable(examples) and not 0 < round(share * _number(examples)) < _number(examples)
    if few:
        return examples, []
    split = split_dev(examples, share=share, seed=seed)
    return list(split.train), list(split.dev)


def _hold_back(
    examples: list[Example], fold: int, data_config: DataConfig
) -> tuple[list[Example], list[Example]]:
    """Cut one fold off examples; sentences without terms that are too few are all trained on."""
    folds = data_config.folds
    if not judgeable(examples) and _number(examples) < folds:
        return examples, []
    split = split_fold(examples, fold, folds=folds, seed=data_config.dev_seed)
    return list(split.train), list(split.dev)


def _number(examples: list[Example]) -> int:
    """How many sentences of different words there are."""
    return len({sentence_hash(example.text) for example in examples})


def _read(sources: Sources, data_config: DataConfig, *, default_part: str) -> list[Example]:
    """Read one source after the other."""
    return [
        example
        for source in list_sources(sources)
        for example in _read_source(source, data_config, default_part=default_part)
    ]


def _read_source(source: str, data_config: DataConfig, *, default_part: str) -> list[Example]:
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
    return list(read_examples(path, columns=columns, encoding=data_config.encoding))
