"""Initialize vocabularies and networks: new ones from data, saved ones from bundles."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch.nn import functional

from capsar.bundle import (
    CONFIG,
    ENCODER,
    OPINIONS,
    THEMES,
    TOKENIZER,
    WEIGHTS,
    find_bundle,
    name_of,
    open_bundle,
)
from capsar.config import ModelConfig, from_dict
from capsar.data.catalog import datasets, find_file, identify
from capsar.errors import ArtifactError, ConfigError
from capsar.inference.engine import read_number
from capsar.model.bert_pair import BertPairClassifier
from capsar.model.embeddings import WordVectors, load_vectors, vector_words
from capsar.model.encoders import (
    Pretrained,
    Transformer,
    load_pretrained,
    make_transformer,
)
from capsar.model.losses import TARGET_NORM, aspect_vector
from capsar.model.network import Capsar
from capsar.tokenizer import SubwordTokenizer, WordTokenizer, build_vocabulary, load_tokenizer
from capsar.training.batches import collate, encode_examples
from capsar.training.export import read_matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from capsar.bundle import Bundle
    from capsar.config import DataConfig, RunConfig
    from capsar.data.catalog import Dataset
    from capsar.schema import Example
    from capsar.tokenizer import TextTokenizer
    from capsar.training.loop import Network

RANDOM = "random"
"""The source of vectors that were not pre-trained."""
_BATCH_SIZE = 64
IN_GRAPH = "weights_in_graph"
"""The key of a bundle's configuration that names the weights stored in its encoder graph only."""
FINE_TUNE_TRAIN = {
    "learning_rate": 3e-4,
    "encoder_learning_rate": 3e-5,
    "batch_size": 16,
    "max_epochs": 10,
    "patience": 10,
    "warmup_ratio": 0.1,
    "max_grad_norm": 1.0,
    "aspect_dropout": 0.1,
}
"""Default settings for fine-tuning on few rows: low rates preserve the model's knowledge."""
FINE_TUNE_VALIDATION_RATIO = 0.2
"""A tenth of few rows would be too few to select an epoch."""
_LOSS_SETTINGS = {"input_dropout", "state_dropout", "reconstruction_weight"}
"""Settings that may change when a network is fine-tuned: its weights have the same shapes."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer and the vectors of its words or subwords."""

    tokenizer: TextTokenizer
    vectors: Tensor
    """The initial vector of every word or subword (V, E)."""
    num_trained: int
    """How many of them, from the first, are in the training texts and can be trained."""
    source: str
    license: str
    encoder: Pretrained | None = None
    """The pre-trained encoder, if the model has one."""
    scale: float = 1.0
    """Factor of the vectors of a pre-trained encoder, for reconstruction."""


def collect_vocabulary(
    data_config: DataConfig,
    model_config: ModelConfig,
    examples: list[Example],
    *,
    more_texts: Sequence[str] = (),
    seed: int,
) -> Vocabulary:
    """Return the vocabulary of the training texts, or of a pre-trained encoder.

    Args:
        data_config: Names the vectors.
        model_config: Names the pre-trained encoder, if there is one.
        examples: The training examples.
        more_texts: Training texts without an aspect.
        seed: Seed of random vectors.
    """
    if model_config.encoder:
        reads_aspect = model_config.aspect_encoding == "pair"
        encoder = load_pretrained(model_config.encoder, reads_aspect=reads_aspect)
        norm = aspect_norm(examples, encoder.tokenizer, encoder.table)
        scale = TARGET_NORM / norm if norm else 1.0
        source = f"input embeddings of {encoder.name}"
        return Vocabulary(encoder.tokenizer, encoder.table, 0, source, "", encoder, scale)
    texts = list(dict.fromkeys([*(example.text for example in examples), *more_texts]))
    name = data_config.vectors
    path = (find_file(name, "vectors") if name in datasets() else Path(name)) if name else None
    some = vector_words(path, data_config.max_vector_words) if path else []
    tokenizer = WordTokenizer.build(build_vocabulary(texts, some))
    loaded = load_vectors(path, tokenizer.vocabulary()) if path else None
    published = find_published(name) if path else None
    return Vocabulary(
        tokenizer,
        _initial_vectors(tokenizer, loaded, word_dim=data_config.word_dim, seed=seed),
        len(build_vocabulary(texts)) + 2,
        path.name if path else RANDOM,
        published.license if published else "",
    )


def aspect_norm(examples: list[Example], tokenizer: TextTokenizer, vectors: Tensor) -> float:
    """Return the mean norm of the examples' aspect vectors, the targets of reconstruction."""
    encoded = encode_examples(examples, tokenizer)
    norms = []
    for start in range(0, len(encoded), _BATCH_SIZE):
        batch = collate(encoded[start : start + _BATCH_SIZE])
        words = functional.embedding(batch.ids, vectors)  # (B, T, E)
        norms.append(aspect_vector(words, batch.aspect_mask).norm(dim=-1))  # (B)
    return float(torch.cat(norms).mean())


def find_published(source: str) -> Dataset | None:
    """Return the dataset of the catalog with this name, or whose file has the same content."""
    known = datasets().get(source.partition(":")[0])
    if known is None:
        found = identify(Path(source))
        known = found[0] if found else None
    return known


def _initial_vectors(
    tokenizer: WordTokenizer, loaded: WordVectors | None, *, word_dim: int, seed: int
) -> Tensor:
    """Return the initial vector of every word (V, E): pre-trained, or random of the same spread."""
    words = tokenizer.vocabulary()
    some = loaded is not None and len(loaded.words) > 0
    dim = loaded.matrix.shape[1] if loaded is not None else word_dim
    spread = float(loaded.matrix.std()) if loaded is not None and some else 0.4
    table = np.zeros((len(words), dim), dtype=np.float32)
    rows = {word: row for row, word in enumerate(words)}
    if loaded is not None and some:
        table[1] = loaded.matrix.mean(0)  # the unknown word
        for word, vector in zip(loaded.words, loaded.matrix, strict=True):
            table[rows.pop(word)] = vector
    generator = np.random.default_rng(seed)
    first = 2 if some else 1  # padding is zero
    for row in sorted(row for row in rows.values() if row >= first):
        table[row] = generator.normal(0, spread, dim)
    return torch.from_numpy(table)


def new_network(model_config: ModelConfig, vocabulary: Vocabulary) -> Capsar | BertPairClassifier:
    """Return an untrained network."""
    if vocabulary.encoder is None:
        return Capsar(model_config, vocabulary.vectors, num_trained=vocabulary.num_trained)
    transformer = vocabulary.encoder.model
    if model_config.head != "capsules":
        return BertPairClassifier(model_config, transformer)
    return Capsar(
        model_config,
        vocabulary.vectors,
        transformer=transformer,
        vector_scale=vocabulary.scale,
    )


def restore_bundled(
    bundle: Bundle,
    weights: dict[str, Tensor] | None = None,
    model_config: ModelConfig | None = None,
) -> Capsar | BertPairClassifier:
    """Return the network that a bundle describes, with its own weights and settings or these.

    Raises:
        ArtifactError: If the bundle has no weights, or they do not fit its configuration.
    """
    weights = read_weights(bundle) if weights is None else weights
    try:
        model_config = model_config or from_dict(ModelConfig, bundle.config.get("model"))
        transformer = None
        if model_config.encoder:
            transformer = make_transformer(bundle.config["transformer"])
        if model_config.head == "capsules":
            return Capsar.from_weights(model_config, weights, transformer=transformer)
        model = BertPairClassifier(model_config, transformer)
        model.load_state_dict(weights)
    except (ArtifactError, ConfigError, KeyError, RuntimeError, TypeError) as error:
        raise _wrong_weights(bundle, error) from error
    return model


def read_weights(bundle: Bundle) -> dict[str, Tensor]:
    """Return the weights of a bundle, including those stored in its encoder graph only.

    Raises:
        ArtifactError: If they are missing.
    """
    try:
        weights = {k: v.float() for k, v in load(bundle.path(WEIGHTS).read_bytes()).items()}
        stored = bundle.config.get(IN_GRAPH, {})
        matrices = read_matrices(bundle.path(ENCODER).read_bytes()) if stored else {}
        for name, entry in stored.items():
            matrix = matrices[entry["tensor"]]
            own = matrix.T if entry["transposed"] else matrix
            weights[name] = torch.from_numpy(own.copy())
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise _wrong_weights(bundle, error) from error
    return weights


def _wrong_weights(bundle: Bundle, error: Exception) -> ArtifactError:
    return ArtifactError(
        f"{str(bundle.path(WEIGHTS))!r} does not hold the weights of the network in {CONFIG}: "
        f"{error}. Get the bundle again."
    )


def load_network(folder: Path) -> tuple[Capsar | BertPairClassifier, TextTokenizer]:
    """Load the network and the tokenizer of a bundle, for evaluation or fine-tuning.

    Raises:
        ArtifactError: If the bundle is damaged or has no weights.
    """
    bundle = open_bundle(folder)
    tokenizer = load_tokenizer(bundle.path(TOKENIZER), bundle.config)
    return restore_bundled(bundle).eval(), tokenizer


def trained_weights(model: Network) -> dict[str, Tensor]:
    """Return the weights that training changes: all but fixed vectors."""
    return {k: v.detach() for k, v in model.state_dict().items() if k != model.frozen_key}


def load_trained_weights(model: Network, weights: dict[str, Tensor]) -> None:
    """Load what `trained_weights` returned; fixed vectors stay as they are."""
    own, key = model.state_dict(), model.frozen_key
    model.load_state_dict(({key: own[key]} if key else {}) | weights)


@dataclass(frozen=True, slots=True)
class OpinionGraph:
    """The opinion head of a bundle."""

    content: bytes
    bias: float
    calibration: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class InitialModel:
    """A trained model to fine-tune."""

    name: str
    """Its name, without folders of this machine."""
    network: Capsar
    tokenizer: TextTokenizer
    trained_on: dict[str, Any]
    """The facts of its own training data."""
    fingerprint: str
    """A hash of all its files."""
    span_settings: dict[str, Any]
    """The bias, the threshold and the calibration of its span extraction head."""
    opinions: OpinionGraph | None = None
    """Its opinion head, which fine-tuning keeps as it is."""
    themes: bytes | None = None
    """The content of its theme head, which fine-tuning keeps as it is."""

    def vocabulary(self) -> Vocabulary:
        """Return its vocabulary and vectors."""
        encoder = self.network.encoder
        vectors = self.network.fixed_vectors.detach().clone()
        source, license_ = (str(self.trained_on.get(k, "")) for k in ("vectors", "vectors_license"))
        if not isinstance(encoder, Transformer):
            learnt = self.network.learnt
            number = 0 if learnt is None else learnt.num_embeddings
            return Vocabulary(self.tokenizer, vectors, number, source, license_)
        if not isinstance(self.tokenizer, SubwordTokenizer):
            raise ArtifactError(
                f"The model {self.name!r} has a pre-trained encoder but not a subword tokenizer"
            )
        pretrained = Pretrained(self.network.model_config.encoder, encoder.model, self.tokenizer)
        scale = float(self.network.vector_scale)
        return Vocabulary(self.tokenizer, vectors, 0, source, license_, pretrained, scale)


def load_initial_model(run_config: RunConfig) -> InitialModel | None:
    """Load the model that a run fine-tunes, if it names one.

    Raises:
        ConfigError: If the run describes a different network.
        ArtifactError: If there is no such model, or it has no weights.
    """
    source = run_config.train.init_from
    if not source:
        return None
    bundle = find_bundle(source)
    described = from_dict(ModelConfig, bundle.config.get("model"))
    own, given = asdict(described), asdict(run_config.model)
    changed = {name for name in own if own[name] != given[name]} - _LOSS_SETTINGS
    if changed:
        other = [f"{name} is {own[name]!r}" for name in own if name in changed]
        raise ConfigError(
            f"Fine-tuning keeps the network of {source!r}, in which {', '.join(other)}; "
            "remove these settings, or train without train.init_from"
        )
    network = restore_bundled(bundle, model_config=run_config.model)
    if not isinstance(network, Capsar):
        raise ConfigError(f"{source!r} is a baseline without capsules: it cannot be fine-tuned")
    return InitialModel(
        name_of(source),
        network,
        load_tokenizer(bundle.path(TOKENIZER), bundle.config),
        dict(bundle.config.get("trained_on", {})),
        bundle.fingerprint(),
        {
            name: bundle.config[name]
            for name in ("span_bias", "span_threshold", "calibration")
            if name in bundle.config
        },
        _read_opinions(bundle),
        bundle.path(THEMES).read_bytes() if THEMES in bundle.files else None,
    )


def _read_opinions(bundle: Bundle) -> OpinionGraph | None:
    if OPINIONS not in bundle.files:
        return None
    calibration = bundle.config.get("calibration", {}).get("opinion")
    bias = read_number(bundle, "opinion_bias", 0.0)
    return OpinionGraph(bundle.path(OPINIONS).read_bytes(), bias, calibration)


def fine_tune_settings(source: str) -> dict[str, dict[str, Any]]:
    """Return the default settings for fine-tuning a model, by section.

    Raises:
        ArtifactError: If there is no such model, or it cannot be fine-tuned.
    """
    bundle = find_bundle(source)
    if WEIGHTS not in bundle.files:
        raise ArtifactError(f"The model {source!r} has no weights, so it cannot be fine-tuned")
    return {
        "data": {"validation_ratio": FINE_TUNE_VALIDATION_RATIO},
        "model": asdict(from_dict(ModelConfig, bundle.config.get("model"))),
        "train": FINE_TUNE_TRAIN | {"init_from": source},
    }
