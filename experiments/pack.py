"""A trained bundle -> one that ships: weights in 8 bits, none of them twice, and its card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.bundle import CARD, open_bundle
from capsar.training.packing import pack_bundle
from shipped import MODELS

if TYPE_CHECKING:
    from pathlib import Path


def pack(name: str, run: Path) -> Path:
    """Pack the bundle of a run under a name of its own."""
    trained = open_bundle(run / "bundle")
    card = trained.path(CARD).read_text(encoding="utf-8")
    pack_bundle(trained.folder, MODELS / name, card=card, settings={})
    return MODELS / name
