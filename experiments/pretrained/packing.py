"""Pack a bundle for distribution: matrices in 8 bits, each stored once.

Fine-tuning reads the word vectors and the encoder's matrices from the encoder's graph. Only the
other weights are in `model.safetensors`, in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CARD, CONFIG, ENCODER, MANIFEST, WEIGHTS, open_bundle, write_bundle
from capsar.errors import ConfigError
from capsar.training.export import read_matrices, store_int8
from capsar.training.initialize import IN_GRAPH, read_weights, restore_bundled
from capsar.training.trainer import export_graphs

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor


def pack_bundle(source: Path, out: Path, *, card: str, settings: dict[str, Any]) -> None:
    """Write a smaller bundle that predicts like the source, up to rounding.

    Args:
        source: A bundle with weights.
        out: The folder of the smaller bundle; an existing one is replaced atomically.
        card: Its model card.
        settings: Entries that are added to or replaced in `config.json`.

    Raises:
        ArtifactError: If the source is damaged, or `out` cannot be written.
        ConfigError: If the source is a baseline without graphs.
    """
    bundle = open_bundle(source)
    weights = read_weights(bundle)
    graphs = export_graphs(restore_bundled(bundle, weights))
    if not graphs:
        raise ConfigError(
            "A network with the head 'bert-pair' has no graphs; pack one with the head 'capsules'"
        )
    in_graph = find_matrices(weights, read_matrices(graphs[ENCODER]))
    rest = {
        name: value.half().contiguous() for name, value in weights.items() if name not in in_graph
    }
    files = {
        name: bundle.path(name).read_bytes()
        for name in bundle.files
        if name not in (CONFIG, MANIFEST)
    }
    files |= {name: store_int8(content) for name, content in graphs.items()}
    files |= {WEIGHTS: save(rest), CARD: card.encode()}
    own = {"capsar_version": __version__, "store": "int8", IN_GRAPH: in_graph}
    write_bundle(out, bundle.config | own | settings, files)


def find_matrices(
    weights: dict[str, Tensor], matrices: dict[str, NDArray[np.float32]]
) -> dict[str, dict[str, Any]]:
    """Return the tensor of a graph that equals each weight, as it is or transposed."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in weights.items():
        if value.dim() != 2:
            continue
        own = value.float().numpy()
        for tensor, matrix in matrices.items():
            is_equal, is_transposed = np.array_equal(own, matrix), np.array_equal(own.T, matrix)
            if is_equal or is_transposed:
                found[name] = {"tensor": tensor, "transposed": not is_equal}
                break
    return found
