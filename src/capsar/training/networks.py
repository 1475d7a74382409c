"""Making networks: new ones, from prepared data, and saved ones, from a bundle's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from capsar.bundle import CONFIG, ENCODER, WEIGHTS
from capsar.config import ModelConfig, from_dict
from capsar.errors import ArtifactError, ConfigError
from capsar.model.first_token import FirstToken
from capsar.model.network import Capsar
from capsar.model.transformer import describe, make_transformer
from capsar.training.storage import read_matrices

if TYPE_CHECKING:
    from torch import Tensor

    from capsar.bundle import Bundle
    from capsar.training.prepare import Prepared

Network = Capsar | FirstToken
IN_GRAPH = "weights_in_graph"
"""Under this name a bundle's configuration says which weights only its encoder's graph holds."""


def new_network(model_config: ModelConfig, prepared: Prepared) -> Network:
    """Return a network to be trained on prepared data."""
    if prepared.encoder is None:
        return Capsar(model_config, prepared.vectors, num_trained=prepared.num_trained)
    if model_config.head == "first-token":
        return FirstToken(model_config, prepared.encoder.model)
    return Capsar(
        model_config,
        prepared.vectors,
        transformer=prepared.encoder.model,
        vector_scale=prepared.vector_scale,
    )


def encoder_settings(prepared: Prepared) -> dict[str, Any]:
    """Return what a bundle's configuration says of a pre-trained encoder, if there is one."""
    if prepared.encoder is None:
        return {}
    tokenizer = prepared.encoder.tokenizer
    return {
        "transformer": describe(prepared.encoder.model),
        "pieces": {"window": tokenizer.window, "reads_aspect": tokenizer.reads_aspect},
    }


def restore_network(
    model_config: ModelConfig, weights: dict[str, Tensor], description: object = None
) -> Network:
    """Return the network that saved these weights.

    Raises:
        ArtifactError: If they are not those of such a network.
    """
    if not model_config.encoder:
        return Capsar.from_weights(model_config, weights)
    if not isinstance(description, dict):
        raise ArtifactError("a network with a pre-trained encoder needs its description")
    transformer = make_transformer(description)
    if model_config.head == "capsules":
        return Capsar.from_weights(model_config, weights, transformer=transformer)
    model = FirstToken(model_config, transformer)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ArtifactError(f"The weights do not fit the configuration: {error}") from error
    return model


def bundled_network(bundle: Bundle) -> Network:
    """Return the network of a verified bundle.

    Raises:
        ArtifactError: If it holds no weights of the network it describes.
    """
    return restore_bundled(bundle, read_weights(bundle))


def restore_bundled(bundle: Bundle, weights: dict[str, Tensor]) -> Network:
    """Return the network that a bundle describes, with these weights.

    Raises:
        ArtifactError: If they are not those of such a network.
    """
    try:
        model_config = from_dict(ModelConfig, bundle.config.get("model"))
        return restore_network(model_config, weights, bundle.config.get("transformer"))
    except (ArtifactError, ConfigError) as error:
        raise ArtifactError(_not_its_weights(bundle, error)) from error


def read_weights(bundle: Bundle) -> dict[str, Tensor]:
    """Return the weights of a bundle, those that only its encoder's graph holds included.

    Raises:
        ArtifactError: If they are not there.
    """
    try:
        weights = {k: v.float() for k, v in load(bundle.path(WEIGHTS).read_bytes()).items()}
        places = bundle.config.get(IN_GRAPH, {})
        matrices = read_matrices(bundle.path(ENCODER).read_bytes()) if places else {}
        for name, place in places.items():
            matrix = matrices[place["tensor"]]
            own = matrix.T if place["transposed"] else matrix
            weights[name] = torch.from_numpy(own.copy())
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(_not_its_weights(bundle, error)) from error
    return weights


def _not_its_weights(bundle: Bundle, error: Exception) -> str:
    return (
        f"{str(bundle.path(WEIGHTS))!r} does not hold the weights of the network in {CONFIG}: "
        f"{error}. Get the bundle again."
    )


def trained_weights(model: Network) -> dict[str, Tensor]:
    """Return what training changes: not the vectors, which data or encoder give again."""
    return {k: v.detach() for k, v in model.state_dict().items() if k != model.given}
