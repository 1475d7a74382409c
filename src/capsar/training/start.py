"""Going on from a trained model: its words, its weights and its sizes are those of the new one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from capsar.bundle import TOKENIZER, WEIGHTS
from capsar.config import ModelConfig, from_dict
from capsar.errors import ArtifactError, ConfigError
from capsar.hub import find_bundle, name_of
from capsar.model.network import Capsar
from capsar.model.transformer import Pretrained, Transformer
from capsar.pieces import PieceTokenizer, load_tokenizer
from capsar.training.networks import bundled_network
from capsar.training.vocabulary import Known

if TYPE_CHECKING:
    from capsar.config import RunConfig
    from capsar.pieces import SentenceTokenizer

GENTLE = {
    "learning_rate": 3e-4,
    "encoder_learning_rate": 3e-5,
    "batch_size": 16,
    "max_epochs": 10,
    "patience": 10,
    "warmup_share": 0.1,
    "clip_norm": 1.0,
    "no_aspect_share": 0.1,
}
"""How a trained model is trained further, unless told otherwise: few rows should not undo it."""

DEV_SHARE = 0.2
"""Of few rows, a tenth would be too few to choose an epoch on."""


@dataclass(frozen=True, slots=True)
class Start:
    """A trained model that another one goes on from."""

    name: str
    """Without the folders of this machine."""
    network: Capsar
    tokenizer: SentenceTokenizer
    trained_on: dict[str, Any]
    digest: str
    """Of all its files."""
    found_by_its_head: dict[str, Any]
    """What was chosen for its extraction head: its bias, and how sure it is of what."""

    def known(self) -> Known:
        """Return the words or pieces that it knows, and their vectors."""
        encoder = self.network.encoder
        table = self.network.fixed_vectors.detach().clone()
        source, licence = (str(self.trained_on.get(k, "")) for k in ("vectors", "vectors_licence"))
        if not isinstance(encoder, Transformer):
            learnt = self.network.learnt
            number = 0 if learnt is None else learnt.num_embeddings
            return Known(self.tokenizer, table, number, source, licence)
        if not isinstance(self.tokenizer, PieceTokenizer):
            raise ArtifactError(
                f"The model {self.name!r} reads pieces but has a tokenizer of words"
            )
        pretrained = Pretrained(self.network.model_config.encoder, encoder.model, self.tokenizer)
        scale = float(self.network.vector_scale)
        return Known(self.tokenizer, table, 0, source, licence, pretrained, scale)


def load_start(run_config: RunConfig) -> Start | None:
    """Load the model that a run goes on from, if it names one.

    Raises:
        ConfigError: If the run describes another network than that model's.
        ArtifactError: If there is no such model, or it holds no weights.
    """
    source = run_config.train.start_from
    if not source:
        return None
    bundle = find_bundle(source)
    described = from_dict(ModelConfig, bundle.config.get("model"))
    if described != run_config.model:
        own, asked = asdict(described), asdict(run_config.model)
        other = [f"{name} is {own[name]!r}" for name in own if own[name] != asked[name]]
        raise ConfigError(
            f"A run that goes on from {source!r} keeps its network, of which {', '.join(other)}; "
            "leave these settings out, or train anew"
        )
    network = bundled_network(bundle)
    if not isinstance(network, Capsar):
        raise ConfigError(f"{source!r} is a baseline without capsules: nothing goes on from it")
    return Start(
        name_of(source),
        network,
        load_tokenizer(bundle.path(TOKENIZER), bundle.config),
        dict(bundle.config.get("trained_on", {})),
        bundle.fingerprint(),
        _found_by_head(bundle.config),
    )


def _found_by_head(config: dict[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("span_bias", "calibration") if name in config}


def further(source: str) -> dict[str, dict[str, Any]]:
    """Return what a run that goes on from a model sets, section by section.

    Raises:
        ArtifactError: If there is no such model, or it cannot be trained further.
    """
    bundle = find_bundle(source)
    if WEIGHTS not in bundle.files:
        raise ArtifactError(f"The model {source!r} ships without weights to train further from")
    model = asdict(from_dict(ModelConfig, bundle.config.get("model")))
    train = GENTLE | {"start_from": source}
    return {"data": {"dev_share": DEV_SHARE}, "model": model, "train": train}
