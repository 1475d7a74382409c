"""What is served: the model by name, and what a request may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capsar.hub import find_bundle, name_of
from capsar.labels import CLASSES
from capsar.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from capsar.serve.settings import Settings

_TOLD_LIMITS = ("queue_chars", "text_chars", "texts", "aspects", "body_bytes")


def served_models(settings: Settings) -> dict[str, Any]:
    """Return what `GET /v1/models` answers with.

    Raises:
        ArtifactError: If the model cannot be used.
    """
    bundle = find_bundle(settings.model)
    config = bundle.config
    trained_on = config.get("trained_on")
    known = trained_on if isinstance(trained_on, dict) else {}
    model = {
        # Where a folder lies is nobody's business.
        "name": name_of(settings.model),
        "sha256": bundle.fingerprint(),
        "classes": [str(polarity) for polarity in CLASSES],
        "capsar_version": str(config.get("capsar_version", "")),
        "trained_on": str(known.get("train", "")),
        "licence": str(known.get("licence", "")),
    }
    limits = {name: getattr(settings.limits, name) for name in _TOLD_LIMITS}
    return {"schema_version": SCHEMA_VERSION, "models": [model], "limits": limits}
