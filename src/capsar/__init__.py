"""CAPSAR: what is felt, and about what, in a sentence or a whole corpus of reviews.

Names are loaded when first used: importing this package opens no file and no socket and loads
neither torch nor any model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capsar.analyze import Analyzer as Analyzer
    from capsar.analyze import load as load
    from capsar.bulk.job import ScoreOptions as ScoreOptions
    from capsar.bulk.run import score as score
    from capsar.config import ModelConfig as ModelConfig
    from capsar.config import TrainConfig as TrainConfig
    from capsar.data.example import AspectSpan as AspectSpan
    from capsar.data.example import Example as Example
    from capsar.errors import CapsarError as CapsarError
    from capsar.evaluation.evaluate import evaluate as evaluate
    from capsar.labels import Polarity as Polarity
    from capsar.model.network import Capsar as Capsar
    from capsar.reporting.options import ReportOptions as ReportOptions
    from capsar.reporting.run import report as report
    from capsar.schema import AspectSentiment as AspectSentiment
    from capsar.training.run import train as train

__version__ = "0.1.0"

_HOMES = {
    "Analyzer": "capsar.analyze",
    "AspectSentiment": "capsar.schema",
    "AspectSpan": "capsar.data.example",
    "Capsar": "capsar.model.network",
    "CapsarError": "capsar.errors",
    "Example": "capsar.data.example",
    "ModelConfig": "capsar.config",
    "Polarity": "capsar.labels",
    "ReportOptions": "capsar.reporting.options",
    "ScoreOptions": "capsar.bulk.job",
    "TrainConfig": "capsar.config",
    "evaluate": "capsar.evaluation.evaluate",
    "load": "capsar.analyze",
    "report": "capsar.reporting.run",
    "score": "capsar.bulk.run",
    "train": "capsar.training.run",
}
_EXTRAS = {"Capsar": "train", "train": "train", "score": "bulk"}
"""Names that need an extra."""

__all__ = [
    "Analyzer",
    "AspectSentiment",
    "AspectSpan",
    "Capsar",
    "CapsarError",
    "Example",
    "ModelConfig",
    "Polarity",
    "ReportOptions",
    "ScoreOptions",
    "TrainConfig",
    "__version__",
    "evaluate",
    "load",
    "report",
    "score",
    "train",
]


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'capsar' has no attribute {name!r}")
    try:
        value = getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        from capsar.errors import MissingExtraError

        raise MissingExtraError(_EXTRAS[name], f"capsar.{name}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
