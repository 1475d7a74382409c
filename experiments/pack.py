"""A trained bundle -> one that ships: weights in 8 bits, none of them twice, and its card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.bundle import CARD, open_bundle
from capsar.training.packing import pack_bundle
from ship_card import LICENCE, VECTORS, facts, render_card, set_card
from shipped import MODELS

if TYPE_CHECKING:
    from pathlib import Path


def pack(name: str, run: Path) -> None:
    """Pack the bundle of a run under a name of its own."""
    trained = open_bundle(run / "bundle")
    # Lessons and what a teacher tells are drawn from these two, and from nothing else.
    own = {"dataset": "mams, bing-liu", "licence": LICENCE, "vectors_licence": VECTORS[name]}
    settings = {"trained_on": trained.config["trained_on"] | own, "shipped": facts(name)}
    pack_bundle(trained.folder, MODELS / name, card=_card(name, run), settings=settings)


def write_card(name: str, run: Path) -> None:
    """Write the card of a packed model anew, once it has been judged and timed."""
    set_card(name, _card(name, run))


def _card(name: str, run: Path) -> str:
    return render_card(name, (run / "bundle" / CARD).read_text(encoding="utf-8"))
