"""CAPSAR: what is felt, and about what, in a sentence or a whole corpus of reviews.

Names are loaded when first used: importing this package opens no file and no socket and loads
neither torch nor any model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capsar.data.example import AspectSpan as AspectSpan
    from capsar.data.example import Example as Example
    from capsar.errors import CapsarError as CapsarError
    from capsar.labels import Polarity as Polarity

__version__ = "0.1.0"

_HOMES = {
    "AspectSpan": "capsar.data.example",
    "CapsarError": "capsar.errors",
    "Example": "capsar.data.example",
    "Polarity": "capsar.labels",
}

__all__ = ["AspectSpan", "CapsarError", "Example", "Polarity", "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'capsar' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
