"""What is known of the model that scored: its confusion, its figures, its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from capsar.errors import ArtifactError, DataError
from capsar.hub import find_bundle, shipped_models
from capsar.labels import CLASSES
from capsar.reporting.confusion import Confusion, make_confusion, read_confusion

if TYPE_CHECKING:
    from capsar.bundle import Bundle
    from capsar.reporting.options import ReportOptions
    from capsar.reporting.scored import Scored

_CARD = "README.md"
_LIMITS = (
    "English only, and best on text like that it was trained on.",
    "Irony, comparisons and what lies outside the sentence are not understood.",
)
"""Of every model of this package."""
HOW_TO_MEASURE = (
    "Measure it on labelled reviews like these with `capsar evaluate MODEL --data FILE "
    "--json`, and give the result with `--confusion`."
)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What a reader should know before believing a figure."""

    model: str
    """Its name, or that it is not known."""
    confusion: Confusion | None
    uncorrected: str = ""
    """Why there is no confusion, in words."""
    figures: list[tuple[str, str]] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)


def learn(scored: Scored, options: ReportOptions) -> Knowledge:
    """Find what is known of the model that scored.

    Raises:
        ArtifactError: If a model is named and there is none, or it is not the one that scored.
        DataError: If a confusion matrix is named and cannot be used, or is that of another model.
    """
    bundle, name = _bundle(scored, options)
    confusion, reason = _confusion(bundle, name, options)
    _check_same_model(scored, confusion)
    limits = _confusions_in_words(confusion) if confusion else []
    card = _card_limits(bundle) if bundle else []
    return Knowledge(
        name, confusion, reason, _figures(bundle) if bundle else [], [*limits, *(card or _LIMITS)]
    )


def _bundle(scored: Scored, options: ReportOptions) -> tuple[Bundle | None, str]:
    wanted = scored.job.get("model_sha256")
    if options.model is not None:
        bundle = find_bundle(options.model)
        if wanted and bundle.fingerprint() != wanted:
            raise ArtifactError(
                f"{str(scored.path)!r} was scored by another model than {str(options.model)!r}; "
                "what that one gets wrong does not matter here. Name the one that scored."
            )
        return bundle, str(options.model)
    for name in shipped_models():
        bundle = find_bundle(name)
        if wanted and bundle.fingerprint() == wanted:
            return bundle, name
    return None, "a model that is not at hand"


def _confusion(
    bundle: Bundle | None, name: str, options: ReportOptions
) -> tuple[Confusion | None, str]:
    if options.confusion is not None:
        return read_confusion(options.confusion), ""
    if bundle is None:
        return None, (
            f"It was scored by {name}, so what it confuses is not known. Name it with `--model` "
            f"(its folder or hub id): it may say so itself. {HOW_TO_MEASURE}"
        )
    counts = bundle.config.get("dev_confusion")
    if counts is None:
        return None, f"The model {name} does not say how it confuses polarities. {HOW_TO_MEASURE}"
    try:
        return make_confusion(counts, f"the dev part of the model {name}", elsewhere=True), ""
    except DataError as error:
        told = str(error)
        return None, f"{told[0].upper()}{told[1:]} {HOW_TO_MEASURE}"


def _check_same_model(scored: Scored, confusion: Confusion | None) -> None:
    wanted = scored.job.get("model_sha256")
    if confusion and wanted and confusion.model_sha256 not in ("", wanted):
        name = scored.job.get("options", {}).get("model", "MODEL")
        raise DataError(
            f"{confusion.source} was measured with another model than the one that scored "
            f"{str(scored.path)!r}; what that one gets wrong does not matter here. Measure the one "
            f"that scored: `capsar evaluate {name} --data FILE --json > {confusion.source}`."
        )


def _confusions_in_words(confusion: Confusion) -> list[str]:
    told = []
    for polarity, row in zip(CLASSES, confusion.rates, strict=True):
        wrong = [
            f"{round(100 * rate)} as {other}"
            for other, rate in zip(CLASSES, row, strict=True)
            if other != polarity
        ]
        told.append(f"Of 100 {polarity} mentions it tells {' and '.join(wrong)}.")
    return told


def _figures(bundle: Bundle) -> list[tuple[str, str]]:
    config: Any = bundle.config
    figures = []
    for key, name in (("accuracy", "accuracy, aspect given"), ("macro_f1", "macro-F1")):
        value = config.get("dev", {}).get(f"dev_{key}")
        low, high = config.get("dev_intervals", {}).get(key, (None, None))
        if value is not None and low is not None:
            figures.append((f"{name}, on dev", f"{value:.3f} ({low:.3f} to {high:.3f})"))
    spans = config.get("dev_spans", {}).get("joint", {}).get("f1")
    if spans is not None:
        figures.append(("F1 of aspects found with their polarity, on dev", f"{spans:.3f}"))
    elif config.get("dev_span_f1") is not None:
        figures.append(("F1 of aspects that capsules name, on dev", f"{config['dev_span_f1']:.3f}"))
    trained_on = config.get("trained_on", {}).get("train")
    if trained_on:
        figures.append(("trained on", str(trained_on)))
    return figures


def _card_limits(bundle: Bundle) -> list[str]:
    """Return what the model's card says under *Limits*."""
    if _CARD not in bundle.files:
        return []
    card = bundle.path(_CARD).read_text(encoding="utf-8", errors="replace")
    _, _, section = card.partition("\n## Limits\n")
    lines = section.partition("\n## ")[0].splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- ")]
