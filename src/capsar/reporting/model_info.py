"""Metrics and limits of the model that scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capsar.bundle import bundled_models, find_bundle
from capsar.errors import ArtifactError

if TYPE_CHECKING:
    from capsar.bundle import Bundle
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.query import ScoredFolder

_CARD = "README.md"
_LIMITS = [
    "English only, and best on text like its training data.",
    "Irony, comparisons and context outside the sentence are not understood.",
]
"""Of every model of this package."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known about a model."""

    name: str
    metrics: list[tuple[str, str]]
    limits: list[str]


def find_model_info(scored: ScoredFolder, options: ReportOptions) -> ModelInfo:
    """Return the metrics and limits of the model that scored, as far as they are known.

    Raises:
        ArtifactError: If `options.model` does not exist or is not the model that scored.
    """
    sha256 = scored.job.get("model_sha256")
    if options.model is not None:
        bundle = find_bundle(options.model)
        if sha256 and bundle.fingerprint() != sha256:
            raise ArtifactError(
                f"{str(scored.path)!r} was scored by a model other than {str(options.model)!r}. "
                "Pass the model that scored."
            )
        return _read_info(str(options.model), bundle)
    for name in bundled_models() if sha256 else ():
        bundle = find_bundle(name)
        if bundle.fingerprint() == sha256:
            return _read_info(name, bundle)
    return ModelInfo("an unknown model", [], _LIMITS)


def _read_info(name: str, bundle: Bundle) -> ModelInfo:
    return ModelInfo(name, _read_metrics(bundle.config), _read_limits(bundle) or _LIMITS)


def _read_metrics(config: Any) -> list[tuple[str, str]]:  # noqa: ANN401  (nested JSON)
    metrics = []
    for key, name in (("accuracy", "Accuracy, aspects given"), ("macro_f1", "Macro-F1")):
        value = config.get("validation", {}).get(f"validation_{key}")
        low, high = config.get("validation_intervals", {}).get(key, (None, None))
        if value is not None and low is not None:
            metrics.append((f"{name}, validation set", f"{value:.3f} ({low:.3f} to {high:.3f})"))
    joint = config.get("validation_spans", {}).get("joint", {}).get("f1")
    if joint is not None:
        metrics.append(("F1 of extracted aspects with polarity, validation set", f"{joint:.3f}"))
    elif config.get("validation_span_f1") is not None:
        value = config["validation_span_f1"]
        metrics.append(("F1 of aspects found by aspect scores, validation set", f"{value:.3f}"))
    trained_on = config.get("trained_on", {}).get("train")
    if trained_on:
        # Data sets without their files: `bing-liu:train/Canon_G3` is of `bing-liu`.
        names = (name.partition(":")[0].strip() for name in str(trained_on).split(","))
        metrics.append(("Trained on", ", ".join(dict.fromkeys(names))))
    return metrics


def _read_limits(bundle: Bundle) -> list[str]:
    """Return the list under *Limits* in the model card."""
    if _CARD not in bundle.files:
        return []
    card = bundle.path(_CARD).read_text(encoding="utf-8", errors="replace")
    section = card.partition("\n## Limits\n")[2].partition("\n## ")[0]
    # The page shows plain text: drop the marks of Markdown code.
    items = f"\n{section}".replace("`", "").split("\n- ")[1:]
    return [" ".join(item.split("\n\n")[0].split()) for item in items]
