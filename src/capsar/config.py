"""Configuration of a training run: frozen dataclasses, checked once, read from TOML."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from capsar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Rule = tuple[Callable[[Any], bool], str]

T = TypeVar("T")
Weights = dict[str, float]
Sources = str | tuple[str, ...]
"""One data source or several; a string or a list of strings in TOML. An empty string means none."""
_SOURCES = (str, list, tuple)
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Sources": _SOURCES,
    "Weights": (dict,),
}


def _one_of(*choices: str) -> Rule:
    return lambda value: value in choices, f"one of {choices}"


_COUNT: Rule = (lambda value: value >= 1, "at least 1")
_POSITIVE: Rule = (lambda value: value > 0, "above 0")
_NOT_NEGATIVE: Rule = (lambda value: value >= 0, "0 or more")
_FRACTION: Rule = (lambda value: 0 <= value <= 1, "in [0, 1]")
_BELOW_ONE: Rule = (lambda value: 0 <= value < 1, "in [0, 1)")
_POSITIVE_FRACTION: Rule = (lambda value: 0 < value <= 1, "above 0 and at most 1")
_RULES: dict[str, Rule] = {
    "units": _COUNT,
    "input_dropout": _BELOW_ONE,
    "state_dropout": _BELOW_ONE,
    "proximity_scale": _one_of("none", "one"),
    "kernel_width": (lambda value: value >= 1 and value % 2 == 1, "odd and at least 1"),
    "activation": _one_of("relu", "tanh", "linear"),
    "primary_dim": _COUNT,
    "intermediate_capsules": _NOT_NEGATIVE,
    "intermediate_dim": _COUNT,
    "class_dim": _COUNT,
    "routing_iterations": _COUNT,
    "head": _one_of("capsules", "bert-pair", "bert-pair-mean"),
    "aspect_encoding": _one_of("proximity", "pair"),
    "span_weight": _NOT_NEGATIVE,
    "seed": (lambda value: 0 <= value < 2**32, "from 0 to 2**32 - 1"),
    "batch_size": _COUNT,
    "batch_by": _one_of("examples", "sentences"),
    "frozen_layers": _NOT_NEGATIVE,
    "learning_rate": _POSITIVE,
    "encoder_learning_rate": _POSITIVE,
    "layer_decay": _POSITIVE_FRACTION,
    "warmup_ratio": _BELOW_ONE,
    "weight_decay": _NOT_NEGATIVE,
    "max_epochs": _COUNT,
    "patience": _COUNT,
    "checkpoint_selection": _one_of("best", "last"),
    "max_false_aspects": _NOT_NEGATIVE,
    "aspect_dropout": _FRACTION,
    "class_balance": _FRACTION,
    "ema_decay": _BELOW_ONE,
    "distill_weight": _FRACTION,
    "max_grad_norm": _NOT_NEGATIVE,
    "mixed_precision": _one_of("no", "bf16"),
    "initial_weight": _BELOW_ONE,
    "validation_ratio": _BELOW_ONE,
    "folds": (lambda value: value == 0 or value > 1, "0, or at least 2"),
    "train_ratio": _POSITIVE_FRACTION,
    "word_dim": _COUNT,
    "max_vector_words": _NOT_NEGATIVE,
}
"""The allowed range of each field of the three configuration classes; field names are unique."""


def _check(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {expected}, got {value!r}")


def _check_fields(config: object) -> None:
    """Check each field against its rule; convert lists of sources to tuples."""
    for entry in fields(config):  # type: ignore[arg-type]
        name, value = entry.name, getattr(config, entry.name)
        if entry.type == "Sources":
            named = all(isinstance(source, str) for source in value)
            _check(named, name, value, "the name of a source, or a list of names")
            if isinstance(value, list):
                object.__setattr__(config, name, tuple(value))
        elif name in _RULES:
            accepts, expected = _RULES[name]
            _check(accepts(value), name, value, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The architecture of the network. Defaults are the paper's, or our reading of it."""

    units: int = 150
    """State size of each direction of the recurrent encoder."""
    input_dropout: float = 0.5
    """Dropout of input features, one mask per sentence."""
    state_dropout: float = 0.0
    """Dropout of features of the hidden states, one mask per sentence."""
    train_embeddings: bool = True
    """Whether word vectors are fine-tuned."""
    alpha: float = 3.0
    """Reach of location proximity, in words (eq. 2)."""
    proximity_scale: str = "none"
    """`none`, as in the paper, or `one`: divide the weights by the largest one of the sentence."""
    kernel_width: int = 3
    """Width in words of the convolution that makes primary capsules; odd. Not in the paper."""
    activation: str = "relu"
    """Activation of that convolution: `relu`, `tanh` or `linear`. Not in the paper."""
    squash_primary: bool = False
    """Whether primary capsules are squashed. Not in the paper."""
    primary_dim: int = 50
    intermediate_capsules: int = 30
    """0 removes the intermediate layer: the paper's ablation *w/o H*."""
    intermediate_dim: int = 150
    class_dim: int = 300
    routing_iterations: int = 3
    reconstruction_weight: float = 0.003
    """Lambda of eq. 8; 0 removes reconstruction: the paper's ablation *w/o R*."""
    encoder: str = ""
    """Empty for a recurrent encoder; otherwise a pre-trained transformer: a hub id, a folder, or
    the name of a folder in `CAPSAR_ENCODERS`."""
    head: str = "capsules"
    """`capsules`, or `bert-pair`: a linear layer on the state of the transformer's first token, the
    paper's BERT baseline; `bert-pair-mean` is the same on the mean state of all tokens."""
    aspect_encoding: str = "proximity"
    """How the aspect is given to a transformer: by `proximity` only, or also as a second segment,
    `pair`."""
    span_weight: float = 0.0
    """Weight of the loss of the span extraction head; 0 removes the head, as in the paper."""

    def __post_init__(self) -> None:
        _check_fields(self)
        head, entry = self.head, self.aspect_encoding
        if not self.encoder:
            needs = "'{}' without a pre-trained encoder"
            _check(head == "capsules", "head", head, needs.format("capsules"))
            _check(entry == "proximity", "aspect_encoding", entry, needs.format("proximity"))
        elif head != "capsules":
            _check(entry == "pair", "aspect_encoding", entry, f"'pair' with the head {head!r}")
        extracts = not self.span_weight or (head, entry) == ("capsules", "proximity")
        needs = "0 unless head is 'capsules' and aspect_encoding 'proximity'"
        _check(extracts, "span_weight", self.span_weight, needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How a network is trained."""

    seed: int = 0
    """Seed of weights, order and dropout; the randomness of a step depends on it and the step."""
    batch_size: int = 64
    """Examples or sentences per step, of all processes together."""
    batch_by: str = "examples"
    """`examples`, as in the paper: one aspect each. `sentences`: all aspects of a sentence are in
    one batch, where the encoder reads it once, which saves time."""
    learning_rate: float = 1e-3
    encoder_learning_rate: float = 3e-5
    """Learning rate of the last layer of a pre-trained encoder."""
    layer_decay: float = 1.0
    """Factor of the learning rate from each encoder layer to the one below."""
    frozen_layers: int = 0
    """How many of the lowest layers of a pre-trained encoder are not trained, nor what is below
    them; fine-tuning is then faster."""
    warmup_ratio: float = 0.0
    """Fraction of all steps (of `max_epochs`) with rising learning rates, which then fall linearly
    to 0; 0 keeps them constant."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices, not of biases and norms."""
    max_epochs: int = 30
    patience: int = 6
    """Epochs without a better validation macro-F1 before training stops. Training does not stop
    while the network predicts one class for every validation example, nor with
    `checkpoint_selection = "last"`."""
    checkpoint_selection: str = "best"
    """`best`: keep the epoch with the best validation macro-F1, or with a span extraction head the
    best mean of it and the span F1. `last`: keep the last epoch, for schedules that decay to 0 and
    small validation sets."""
    max_false_aspects: float = 0.0
    """With a span extraction head: the bias and the threshold of its spans are those with the best
    F1 that find at most so many aspects in 100 validation sentences without any; 0 for no limit."""
    aspect_dropout: float = 0.0
    """Fraction of batches trained without proximity weights, so that one model works with and
    without a given aspect."""
    class_balance: float = 0.0
    """Exponent of class weighting: an example is weighted by the frequency of its class to the
    power of minus this, scaled to mean 1."""
    ema_decay: float = 0.0
    """Decay per step of the exponential moving average of weights, which is validated and saved
    instead of the last weights; 0 disables it."""
    teacher: Sources = ()
    """Trained models, by name or folder, or files of their recorded outputs (`.npz`), whose mean
    capsule lengths are soft targets."""
    distill_weight: float = 0.5
    """Weight of the soft targets in the loss of a labeled example; the labels have the rest."""
    distill_tags: bool = False
    """Whether the teachers' tag probabilities are soft targets of the span extraction head too."""
    max_grad_norm: float = 0.0
    """Gradient clipping norm; 0 does not clip."""
    mixed_precision: str = "no"
    """`no` or `bf16`."""
    init_from: str = ""
    """A trained model to fine-tune: a bundled model, the folder of a bundle, or a hub id. Its
    network and vocabulary are kept."""
    initial_weight: float = 0.0
    """Share of the initial weights in the saved ones, which are the mean of initial and fine-tuned
    weights: with 0.5, a model keeps more of what it knew of other domains. Epochs are validated
    with the fine-tuned weights alone; thresholds and calibration are chosen with the mean."""

    def __post_init__(self) -> None:
        _check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The data a network is trained on."""

    train: Sources
    """Names of datasets in the catalog (`mams`, one part, `mams:dev`, or one file of an archive,
    `bing-liu:train/Canon_G3`), or paths of files; one or several."""
    partially_annotated: Sources = ()
    """Further sources in which not every aspect is marked: used for polarity, not for span
    extraction."""
    pseudo_labeled: Sources = ()
    """Further sources, labeled by teachers: with `train.teacher`, soft targets replace these
    labels."""
    weights: Weights = field(default_factory=dict)
    """Weights of training sources in the loss, by their names in `train`,
    `partially_annotated` and `pseudo_labeled`; 1 if not given."""
    exhaustive: bool = True
    """Whether every aspect of the training sentences is marked. If not, a fine-tuned model keeps
    the span extraction head of `train.init_from` unchanged."""
    validation: Sources = ""
    """Validation sources; if none, a validation set is split from the training data."""
    partially_annotated_validation: Sources = ()
    """Further validation sources in which not every aspect is marked: for polarity only."""
    exclude_hashes: str = ""
    """A JSON file of hashes of sentences to exclude, such as those of test sets."""
    validation_ratio: float = 0.1
    """Fraction of sentences split off for validation; 0 trains on all data for `max_epochs` and
    keeps the last weights."""
    validation_seed: int = 0
    folds: int = 0
    """Cross-validation instead of a validation set: train this many networks, each without one
    fold. Their predictions together choose the epoch and fit the calibration; the saved network is
    trained on everything."""
    train_ratio: float = 1.0
    """Fraction of the training sentences to use, for learning curves."""
    vectors: str = ""
    """Name of word vectors in the catalog, or path of a GloVe file; empty for random vectors."""
    word_dim: int = 300
    """Size of random vectors."""
    max_vector_words: int = 50_000
    """Number of words of the vector file to include beyond those of the training texts, in the
    order of the file; each adds a row to the bundle."""
    text_column: str = "text"
    aspect_column: str = "aspect"
    polarity_column: str = "polarity"
    encoding: str = "utf-8"
    """Encoding of CSV, JSONL, three-line and plain files."""

    def __post_init__(self) -> None:
        _check_fields(self)
        named = (self.train, self.partially_annotated, self.pseudo_labeled)
        known = {source for several in named for source in list_sources(several)}
        for name, weight in self.weights.items():
            _check(name in known, "weights", name, "named by training sources")
            _check(
                type(weight) in {int, float} and weight > 0, f"weights.{name}", weight, "above 0"
            )
        _check(
            bool(self.validation) or not self.partially_annotated_validation,
            "partially_annotated_validation", self.partially_annotated_validation,
            "empty without data.validation",
        )  # fmt: skip
        _check(not (self.folds and self.validation), "folds", self.folds, "0 with data.validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything needed to repeat a training run."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        data, model, train = self.data, self.model, self.train
        trainable = not model.span_weight or data.exhaustive or bool(train.init_from)
        needs = "true for a model with a span extraction head (model.span_weight)"
        _check(trainable, "exhaustive", data.exhaustive, needs)
        has_capsules = model.head == "capsules" or not train.teacher
        _check(has_capsules, "teacher", train.teacher, "empty with a head without capsules")
        can_mix = not train.initial_weight or (bool(train.init_from) and not data.folds)
        needs = "0 without train.init_from or with data.folds"
        _check(can_mix, "initial_weight", train.initial_weight, needs)

    @property
    def trains_spans(self) -> bool:
        """Whether there is a span extraction head and the data can train it."""
        return self.model.span_weight > 0 and self.data.exhaustive

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON and TOML represent it."""
        return {
            section: {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
            for section, values in asdict(self).items()
        }


def list_sources(sources: Sources) -> tuple[str, ...]:
    """Return sources as a tuple.

    >>> list_sources("mams"), list_sources(("mams", "mine.csv")), list_sources("")
    (('mams',), ('mams', 'mine.csv'), ())
    """
    several = (sources,) if isinstance(sources, str) else sources
    return tuple(source for source in several if source)


def read_config(path: Path) -> RunConfig:
    """Read a run's configuration from TOML.

    Raises:
        ConfigError: If the file cannot be read, or has an unknown name or a wrong value.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration {str(path)!r}: {error}") from error
    return run_config(content)


def run_config(content: dict[str, Any]) -> RunConfig:
    """Make a run's configuration from its sections `data`, `model` and `train`.

    Raises:
        ConfigError: If a name is unknown or a value is wrong.
    """
    sections = {"data": DataConfig, "model": ModelConfig, "train": TrainConfig}
    unknown = set(content) - set(sections)
    if unknown:
        raise ConfigError(f"Unknown sections {sorted(unknown)}; known are {list(sections)}")
    made: dict[str, Any] = {
        name: from_dict(kind, content.get(name, {})) for name, kind in sections.items()
    }
    return RunConfig(**made)


def from_dict(kind: type[T], values: Any) -> T:  # noqa: ANN401
    """Make a configuration dataclass from plain values, checking names and types.

    Raises:
        ConfigError: If a name is unknown or a value is wrong.
    """
    if not isinstance(values, dict):
        raise ConfigError(f"{kind.__name__} needs a table of settings, got {values!r:.60}")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = set(values) - set(known)
    if unknown:
        raise ConfigError(
            f"{kind.__name__} has no {sorted(unknown)}; it has: {', '.join(sorted(known))}"
        )
    for name, value in values.items():
        accepted = _TYPES[str(known[name].type)]
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            kind_name = "str, or a list of them" if accepted == _SOURCES else known[name].type
            raise ConfigError(f"{name} must be of type {kind_name}, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} must be a finite number, got {value!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error
