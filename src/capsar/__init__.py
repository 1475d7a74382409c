"""CAPSAR is a library for aspect-based sentiment analysis.

It finds the aspects mentioned in a review and the sentiment toward each. Public names are imported
on first use: importing this package opens no file and no socket, and loads neither torch nor a
model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from capsar.version import __version__ as __version__

if TYPE_CHECKING:
    from capsar.bulk.job import ScoreOptions as ScoreOptions
    from capsar.bulk.run import score as score
    from capsar.bulk.scoring import score_batch as score_batch
    from capsar.config import ModelConfig as ModelConfig
    from capsar.config import TrainConfig as TrainConfig
    from capsar.errors import CapsarError as CapsarError
    from capsar.evaluation.evaluate import evaluate as evaluate
    from capsar.inference.analyzer import Analyzer as Analyzer
    from capsar.inference.analyzer import load as load
    from capsar.model.network import Capsar as Capsar
    from capsar.reporting.options import ReportOptions as ReportOptions
    from capsar.reporting.run import report as report
    from capsar.schema import AspectSentiment as AspectSentiment
    from capsar.schema import AspectSpan as AspectSpan
    from capsar.schema import Example as Example
    from capsar.schema import Opinion as Opinion
    from capsar.schema import Polarity as Polarity
    from capsar.themes.schema import Theme as Theme
    from capsar.themes.schema import Themes as Themes
    from capsar.themes.schema import read_themes as read_themes
    from capsar.training.trainer import train as train

_MODULES = {
    "Analyzer": "capsar.inference.analyzer",
    "AspectSentiment": "capsar.schema",
    "AspectSpan": "capsar.schema",
    "Capsar": "capsar.model.network",
    "CapsarError": "capsar.errors",
    "Example": "capsar.schema",
    "ModelConfig": "capsar.config",
    "Opinion": "capsar.schema",
    "Polarity": "capsar.schema",
    "ReportOptions": "capsar.reporting.options",
    "ScoreOptions": "capsar.bulk.job",
    "Theme": "capsar.themes.schema",
    "Themes": "capsar.themes.schema",
    "TrainConfig": "capsar.config",
    "evaluate": "capsar.evaluation.evaluate",
    "load": "capsar.inference.analyzer",
    "read_themes": "capsar.themes.schema",
    "report": "capsar.reporting.run",
    "score": "capsar.bulk.run",
    "score_batch": "capsar.bulk.scoring",
    "train": "capsar.training.trainer",
}
_EXTRAS = {"Capsar": "train", "train": "train", "score": "bulk", "score_batch": "bulk"}
"""The extra that a name needs."""

__all__ = [
    "Analyzer",
    "AspectSentiment",
    "AspectSpan",
    "Capsar",
    "CapsarError",
    "Example",
    "ModelConfig",
    "Opinion",
    "Polarity",
    "ReportOptions",
    "ScoreOptions",
    "Theme",
    "Themes",
    "TrainConfig",
    "__version__",
    "evaluate",
    "load",
    "read_themes",
    "report",
    "score",
    "score_batch",
    "train",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'capsar' has no attribute {name!r}")
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS:
            raise
        from capsar.errors import MissingExtraError

        raise MissingExtraError(_EXTRAS[name], f"capsar.{name}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
