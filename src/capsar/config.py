"""Configuration: frozen dataclasses, checked once, read from TOML."""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from capsar.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
Sources = str | tuple[str, ...]
"""One source of data or several; in TOML a string or a list of them. An empty one is none."""
_SOURCES = (str, list, tuple)
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Sources": _SOURCES,
}


def _check(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {expected}, got {value!r}")


def _check_sources(config: object, name: str) -> None:
    """Check the names of sources; what TOML gives as a list is kept as a tuple."""
    value = getattr(config, name)
    known = all(isinstance(source, str) for source in value)
    _check(known, name, value, "the name of a source, or a list of names")
    if isinstance(value, list):
        object.__setattr__(config, name, tuple(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes and choices of the network. Defaults are the paper's, or our reading of it."""

    cell: str = "gru"
    """`gru` or `lstm`."""
    units: int = 150
    """State size of each direction."""
    input_dropout: float = 0.5
    """Share of input features dropped, one mask a sentence."""
    state_dropout: float = 0.0
    """Share of features dropped from the hidden states, one mask a sentence."""
    train_embeddings: bool = True
    """Whether word vectors are trained further."""
    alpha: float = 3.0
    beta: float = 10.0
    gamma: float = 1.0
    """Of location proximity (eq. 2)."""
    proximity_scale: str = "none"
    """`none`, as in the paper, or `one`: weights are divided by the largest one of a sentence."""
    kernel_width: int = 3
    """Words seen by the convolution that makes primary capsules; odd. Not given in the paper."""
    activation: str = "relu"
    """Of that convolution: `relu`, `tanh` or `linear`. Not given in the paper."""
    squash_primary: bool = False
    """Whether primary capsules are squashed. Not given in the paper."""
    capsules_per_word: int = 6
    primary_dim: int = 50
    intermediate_capsules: int = 30
    """0 leaves the intermediate layer out: the paper's ablation *w/o H*."""
    intermediate_dim: int = 150
    class_dim: int = 300
    routing_iterations: int = 3
    upper_margin: float = 1.0
    lower_margin: float = 0.1
    reconstruction_weight: float = 0.003
    """Lambda of eq. 8; 0 leaves reconstruction out: the paper's ablation *w/o R*."""
    encoder: str = ""
    """Empty for a recurrent encoder; else a pre-trained transformer: a hub id, a folder, or the
    name of a folder below `CAPSAR_ENCODERS`."""
    head: str = "capsules"
    """`capsules`, or `first-token`: a linear layer on the transformer's first state, the paper's
    BERT baseline."""
    aspect_entry: str = "proximity"
    """How a transformer learns of the aspect: by `proximity` only, or also as a second segment,
    `pair`."""
    freeze_embeddings: bool = True
    """Whether a transformer's input vectors stay as they are; detection then shares their table."""
    target_norm: float = 6.53
    """What a transformer's input vectors are scaled to for reconstruction: the mean norm of an
    aspect's vector. GloVe's has this one (840B, SemEval-2014 Restaurants training data)."""
    span_weight: float = 0.0
    """What the loss of the extraction head counts for; 0 leaves the head out, as in the paper."""
    span_units: int = 128
    """Size of the head's hidden layer."""

    def __post_init__(self) -> None:
        heads, entries = ("capsules", "first-token"), ("proximity", "pair")
        _check(self.head in heads, "head", self.head, f"one of {heads}")
        known = self.aspect_entry in entries
        _check(known, "aspect_entry", self.aspect_entry, f"one of {entries}")
        if not self.encoder:
            needs = "'{}' without a pre-trained encoder"
            _check(self.head == heads[0], "head", self.head, needs.format(heads[0]))
            only = self.aspect_entry == entries[0]
            _check(only, "aspect_entry", self.aspect_entry, needs.format(entries[0]))
        elif self.head == "first-token":
            knows = self.aspect_entry == "pair"
            _check(knows, "aspect_entry", self.aspect_entry, "'pair' with the head 'first-token'")
        _check(self.span_weight >= 0, "span_weight", self.span_weight, "0 or more")
        finds = not self.span_weight or (self.head, self.aspect_entry) == (heads[0], entries[0])
        needs = f"0 unless head is '{heads[0]}' and aspect_entry '{entries[0]}'"
        _check(finds, "span_weight", self.span_weight, needs)
        _check(self.target_norm > 0, "target_norm", self.target_norm, "above 0")
        _check(self.cell in ("gru", "lstm"), "cell", self.cell, "'gru' or 'lstm'")
        activations = ("relu", "tanh", "linear")
        known = self.activation in activations
        _check(known, "activation", self.activation, f"one of {activations}")
        _check(self.kernel_width % 2 == 1, "kernel_width", self.kernel_width, "odd")
        _check(0 <= self.input_dropout < 1, "input_dropout", self.input_dropout, "in [0, 1)")
        _check(0 <= self.state_dropout < 1, "state_dropout", self.state_dropout, "in [0, 1)")
        _check(self.beta > 0, "beta", self.beta, "above 0")
        scales = ("none", "one")
        known = self.proximity_scale in scales
        _check(known, "proximity_scale", self.proximity_scale, f"one of {scales}")
        for name in (
            "units",
            "kernel_width",
            "capsules_per_word",
            "primary_dim",
            "intermediate_dim",
            "class_dim",
            "routing_iterations",
            "span_units",
        ):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        _check(
            self.intermediate_capsules >= 0,
            "intermediate_capsules",
            self.intermediate_capsules,
            "0 or more",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How a network is trained."""

    seed: int = 0
    """Of weights, order and dropout; every step's randomness is a function of it and the step."""
    batch_size: int = 64
    """Of all processes together."""
    learning_rate: float = 1e-3
    encoder_learning_rate: float = 3e-5
    """Of a pre-trained encoder's last layer."""
    layer_decay: float = 1.0
    """What the rate is multiplied by from each of its layers to the one below."""
    warmup_share: float = 0.0
    """Share of all steps (of `max_epochs`) in which rates rise from 0, to fall to 0 again at the
    last one; 0 keeps them as they are."""
    weight_decay: float = 0.0
    """Decoupled, of matrices only, not of biases and norms."""
    max_epochs: int = 30
    patience: int = 6
    """Epochs without a better dev macro-F1 before training stops; a network that gives every dev
    example the same answer is not stopped, nor a run that keeps its last epoch."""
    keep: str = "best"
    """`best`: the weights of the epoch with the best dev macro-F1, with an extraction head the best
    mean of it and the F1 of spans; or `last`: for rates that fall to 0 and a small dev part."""
    no_aspect_share: float = 0.0
    """Share of batches trained with proximity dropped, so that one model serves with and without a
    given aspect."""
    class_balance: float = 0.0
    """How far classes are evened out: an example's polarity counts for the share of its class to
    the power of minus this, scaled to one on average."""
    average: float = 0.0
    """Decay, at each step, of the running mean of weights that is judged and kept instead of the
    last ones; 0 keeps the last ones."""
    teacher: Sources = ()
    """Trained models, by name or folder, whose capsule lengths are learnt beside the labels; of
    several, the mean."""
    teacher_share: float = 0.5
    """Share of them in the loss of an example."""
    imitate_epochs: int = 0
    """Epochs, before all others, in which a recurrent encoder learns to foresee the hidden states
    of its teachers."""
    clip_norm: float = 0.0
    """Largest norm of the gradient; 0 does not clip."""
    mixed_precision: str = "no"
    """`no` or `bf16`."""
    checkpoint_steps: int = 0
    """Steps between checkpoints; 0 writes one at the end of each epoch."""
    start_from: str = ""
    """A trained model to go on from: one that ships, a bundle's folder, or a hub id. The run then
    keeps its network and the words that it knows."""

    def __post_init__(self) -> None:
        _check(0 <= self.seed < 2**32, "seed", self.seed, "from 0 to 2**32 - 1")
        for name in ("batch_size", "max_epochs", "patience"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("learning_rate", "encoder_learning_rate"):
            _check(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        _check(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "above 0, at most 1")
        _check(0 <= self.warmup_share < 1, "warmup_share", self.warmup_share, "in [0, 1)")
        _check(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")
        _check(0 <= self.no_aspect_share <= 1, "no_aspect_share", self.no_aspect_share, "in [0, 1]")
        _check(0 <= self.class_balance <= 1, "class_balance", self.class_balance, "in [0, 1]")
        _check(0 <= self.average < 1, "average", self.average, "in [0, 1)")
        _check(0 <= self.teacher_share <= 1, "teacher_share", self.teacher_share, "in [0, 1]")
        _check_sources(self, "teacher")
        _check(self.imitate_epochs >= 0, "imitate_epochs", self.imitate_epochs, "0 or more")
        _check(self.clip_norm >= 0, "clip_norm", self.clip_norm, "0 or more")
        _check(self.checkpoint_steps >= 0, "checkpoint_steps", self.checkpoint_steps, "0 or more")
        for name, known in (("keep", ("best", "last")), ("mixed_precision", ("no", "bf16"))):
            _check(getattr(self, name) in known, name, getattr(self, name), f"one of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What a network is trained on."""

    train: Sources
    """Datasets of the catalog by name (`mams`, or one part, `mams:dev`, or one file of an archive,
    `bing-liu:train/Canon_G3`), or paths of files; one or several."""
    polarity_only: Sources = ()
    """Further sources, in which not every aspect is marked: they teach what is felt about those
    that are, and nothing about where aspects stand."""
    all_marked: bool = True
    """Whether every aspect of the training sentences is marked. Where not, a model that goes on
    from another one keeps what that knows of where aspects stand."""
    dev: Sources = ""
    """Sources of their own for choosing the epoch; if none, a part of the training data is cut."""
    without: str = ""
    """A JSON file of hashes of sentences that are dropped first: those that test sets hold."""
    dev_share: float = 0.1
    """0 cuts none: all data is trained on for `max_epochs`, and the last weights are kept."""
    dev_seed: int = 0
    folds: int = 0
    """Cross-validation in place of a dev part: the sentences are cut in so many parts, and as many
    networks are trained, each without one of them. Together they choose the epoch and tell how sure
    answers are; the network that is kept learns from everything."""
    train_share: float = 1.0
    """Share of the sentences left for training that is used: for learning curves."""
    vectors: str = ""
    """The name of vectors in the catalog, or the path of a GloVe file; empty for random vectors."""
    word_dim: int = 300
    """Size of random vectors."""
    max_vector_words: int = 50_000
    """How many words of the vector file are known beyond those of the training texts, the first
    ones of the file; each is a row of the bundle."""
    text_column: str = "text"
    aspect_column: str = "aspect"
    polarity_column: str = "polarity"
    encoding: str = "utf-8"
    """Of CSV, JSONL, three-line and plain files."""

    def __post_init__(self) -> None:
        for name in ("train", "polarity_only", "dev"):
            _check_sources(self, name)
        _check(0 <= self.dev_share < 1, "dev_share", self.dev_share, "at least 0 and below 1")
        _check(self.folds == 0 or self.folds > 1, "folds", self.folds, "0, or at least 2")
        _check(not (self.folds and self.dev), "folds", self.folds, "0 where there is a dev source")
        _check(0 < self.train_share <= 1, "train_share", self.train_share, "above 0, at most 1")
        _check(self.word_dim >= 1, "word_dim", self.word_dim, "at least 1")
        _check(self.max_vector_words >= 0, "max_vector_words", self.max_vector_words, "0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a training run needs to be repeated."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        told = not self.model.span_weight or self.data.all_marked or bool(self.train.start_from)
        needs = "true for a model that learns where aspects stand (model.span_weight)"
        _check(told, "all_marked", self.data.all_marked, needs)
        learns = self.model.head == "capsules" or not self.train.teacher
        _check(learns, "teacher", self.train.teacher, "none with a head that has no capsules")
        new = not self.model.encoder and not self.train.start_from
        can = bool(list_sources(self.train.teacher)) and new
        needs = "0 unless there is a teacher, and a new recurrent encoder to imitate it"
        epochs = self.train.imitate_epochs
        _check(can or not epochs, "imitate_epochs", epochs, needs)

    @property
    def teaches_spans(self) -> bool:
        """Whether there is an extraction head, and the data can teach it."""
        return self.model.span_weight > 0 and self.data.all_marked

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as JSON or TOML would hold it."""
        return {name: _plain(values) for name, values in asdict(self).items()}


def list_sources(sources: Sources) -> tuple[str, ...]:
    """Return sources one by one.

    >>> list_sources("mams"), list_sources(("mams", "mine.csv")), list_sources("")
    (('mams',), ('mams', 'mine.csv'), ())
    """
    several = (sources,) if isinstance(sources, str) else sources
    return tuple(source for source in several if source)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def read_config(path: Path) -> RunConfig:
    """Read a run's configuration from TOML.

    Raises:
        ConfigError: If the file cannot be read, or a name or value in it is wrong.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration {str(path)!r}: {error}") from error
    return run_config(content)


def run_config(content: dict[str, Any]) -> RunConfig:
    """Make a run's configuration from its sections `data`, `model` and `train`.

    Raises:
        ConfigError: If a name or value is wrong.
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
        ConfigError: If a name or value is wrong.
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
