"""A bundle in as little room as it can be trained further from: matrices in 8 bits, none twice.

The encoder's graph holds its matrices, the vectors of words among them. What training needs is read
from there; only the rest is written as weights of its own, in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CARD, CONFIG, ENCODER, MANIFEST, WEIGHTS, open_bundle, write_bundle
from capsar.errors import ConfigError
from capsar.training.finish import graphs_of
from capsar.training.networks import IN_GRAPH, read_weights, restore_bundled
from capsar.training.storage import read_matrices, store_int8

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor


def pack_bundle(source: Path, out: Path, *, card: str, settings: dict[str, Any]) -> None:
    """Write a bundle that answers as the source does, but for rounding, in a fraction of its room.

    Args:
        source: A bundle with weights.
        out: Where the small one will be; a bundle that is there is replaced in one step.
        card: Its model card.
        settings: What `config.json` says beyond or instead of what the source's does.

    Raises:
        ArtifactError: If the source is damaged, or `out` cannot be written.
        ConfigError: If its network is never exported.
    """
    bundle = open_bundle(source)
    weights = read_weights(bundle)
    graphs = graphs_of(restore_bundled(bundle, weights))
    if not graphs:
        raise ConfigError("A network with the head 'first-token' is a baseline: it has no graphs")
    places = find_matrices(weights, read_matrices(graphs[ENCODER]))
    rest = {
        name: value.half().contiguous() for name, value in weights.items() if name not in places
    }
    files = {
        name: bundle.path(name).read_bytes()
        for name in bundle.files
        if name not in (CONFIG, MANIFEST)
    }
    files |= {name: store_int8(content) for name, content in graphs.items()}
    files |= {WEIGHTS: save(rest), CARD: card.encode()}
    own = {"capsar_version": __version__, "store": "int8", IN_GRAPH: places}
    write_bundle(out, bundle.config | own | settings, files)


def find_matrices(
    weights: dict[str, Tensor], matrices: dict[str, NDArray[np.float32]]
) -> dict[str, dict[str, Any]]:
    """Return where weights stand in a graph, as they are or transposed, by their numbers."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in weights.items():
        if value.dim() != 2:  # noqa: PLR2004
            continue
        own = value.float().numpy()
        for tensor, matrix in matrices.items():
            if np.array_equal(own, matrix):
                found[name] = {"tensor": tensor, "transposed": False}
                break
            if np.array_equal(own.T, matrix):
                found[name] = {"tensor": tensor, "transposed": True}
                break
    return found
