"""The end of a run: what is chosen on dev once the weights are, and the bundle."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CAPSULES, CARD, ENCODER, SPANS, TOKENIZER, WEIGHTS, write_bundle
from capsar.calibration import two_sided
from capsar.config import list_sources
from capsar.evaluation.calibration import judge_calibration
from capsar.evaluation.evaluate import evaluate
from capsar.hub import name_of
from capsar.labels import CLASSES
from capsar.model.network import Capsar
from capsar.text import SEGMENTATION
from capsar.training.calibrate import FEW_EXAMPLES, FEWEST_SENTENCES, fit_calibration
from capsar.training.card import DevReport, render_card
from capsar.training.export import export_capsules, export_encoder
from capsar.training.held_back import HeldBack
from capsar.training.networks import Network, encoder_settings, restore_network
from capsar.training.predictor import NetworkPredictor
from capsar.training.span_graph import export_spans
from capsar.training.tune import choose_about_threshold, judge_spans

if TYPE_CHECKING:
    from pathlib import Path

    from capsar.config import RunConfig
    from capsar.evaluation.calibration import CalibrationFigures
    from capsar.training.checkpoint import Progress
    from capsar.training.learner import Learner
    from capsar.training.tune import JudgedSpans

_LOG = logging.getLogger(__name__)


def finish(
    folder: Path, run_config: RunConfig, learner: Learner, progress: Progress,
    held_back: HeldBack | None = None,
) -> None:  # fmt: skip
    """Write the bundle of the best epoch.

    Args:
        folder: Where it will be.
        run_config: Of the run.
        learner: The network, whose best weights are kept.
        progress: Of the choice of the epoch.
        held_back: What is judged and calibrated on, if not the learner's own dev part.
    """
    prepared, start = learner.prepared, learner.start
    shown = run_config
    if "started_from" in prepared.facts:
        named = replace(run_config.train, start_from=prepared.facts["started_from"])
        shown = replace(run_config, train=named)
    teachers = tuple(map(name_of, list_sources(run_config.train.teacher)))
    shown = replace(shown, train=replace(shown.train, teacher=teachers))
    if prepared.encoder is not None:  # no folder of this machine
        known = replace(run_config.model, encoder=prepared.encoder.name)
        shown = replace(shown, model=known)
    settings: dict[str, Any] = {
        "capsar_version": __version__,
        "segmentation": SEGMENTATION,
        "classes": [str(polarity) for polarity in CLASSES],
        "model": asdict(shown.model),
        "trained_on": prepared.facts,
        "dev": progress.history[progress.best_epoch],
    } | encoder_settings(prepared)
    given = learner.model.given
    weights = ({given: prepared.vectors} if given else {}) | learner.best
    contiguous = {name: value.cpu().contiguous() for name, value in weights.items()}
    model = restore_network(run_config.model, contiguous, settings.get("transformer"))
    kept = start.found_by_its_head if start and not run_config.teaches_spans else None
    reader = NetworkPredictor(model, prepared.tokenizer)
    held_back = held_back or HeldBack(reader, prepared.dev, prepared.dev_sentences)
    chosen, report = kept or {}, DevReport()
    if held_back.examples:
        chosen, report = _choose(model, held_back, kept)
    card = render_card(
        shown,
        prepared.facts,
        epoch=progress.best_epoch,
        num_epochs=len(progress.history),
        report=report,
    )
    files = {
        **graphs_of(model),
        TOKENIZER: prepared.tokenizer.content(),
        WEIGHTS: save(contiguous),
        CARD: card.encode("utf-8", "backslashreplace"),
    }
    write_bundle(folder, settings | chosen, files)


def graphs_of(model: Network) -> dict[str, bytes]:
    """Return the graphs of a network; one without capsules has none."""
    if not isinstance(model, Capsar):
        return {}
    graphs = {ENCODER: export_encoder(model), CAPSULES: export_capsules(model)}
    return graphs if model.spans is None else graphs | {SPANS: export_spans(model, model.spans)}


def _choose(
    model: Network, held_back: HeldBack, kept: dict[str, Any] | None
) -> tuple[dict[str, Any], DevReport]:
    """Choose thresholds and calibrations on dev, and say how the model does there.

    Args:
        model: The network.
        held_back: What it, or networks like it, did not learn from.
        kept: What was chosen before for a head that this data cannot judge, if that is so.
    """
    reader, examples = held_back.reader, held_back.examples
    dev = evaluate(reader, examples)
    settings: dict[str, Any] = {
        "dev_intervals": asdict(dev.intervals),
        "dev_confusion": [list(row) for row in dev.figures.confusion],
    }
    if not isinstance(model, Capsar):
        return settings, DevReport(dev)
    threshold, span_f1 = choose_about_threshold(reader, examples)
    settings |= {"about_threshold": threshold, "dev_span_f1": span_f1}
    found = None
    if model.spans is not None and kept is None:
        found = judge_spans(reader, held_back.sentences)
        settings |= {"span_bias": found.bias, "dev_spans": found.extraction.as_dict()}
    calibration, figures = calibrate(held_back, found)
    before = (kept or {}).get("calibration", {})
    if calibration or before:
        settings["calibration"] = before | calibration
    if "polarity" not in before | calibration:
        _LOG.warning(
            "Answers will have no confidences: %d dev sentences are too few to fit them on, %d are "
            "needed. Label more, or set data.dev_share higher.",
            len({example.text for example in examples}), FEWEST_SENTENCES,
        )  # fmt: skip
    return (kept or {}) | settings, DevReport(
        dev, span_f1, found.extraction if found else None, figures
    )


def calibrate(
    held_back: HeldBack, found: JudgedSpans | None
) -> tuple[dict[str, Any], CalibrationFigures | None]:
    """Fit what makes probabilities of capsule lengths, and of how sure found spans are."""
    examples = held_back.examples
    lengths = held_back.reader.predict_lengths(examples)
    truth = np.array([CLASSES.index(e.polarity) for e in examples if e.polarity])
    texts = [example.text for example in examples]
    few = len(texts) < FEW_EXAMPLES
    fitted = fit_calibration(lengths, truth, texts, few=few)
    if fitted is None:
        return {}, None
    if few:
        _LOG.warning(
            "Confidences are fitted on %d dev examples: no polarity is told more surely than %.2f, "
            "as so few can show no more.",
            len(texts), fitted.calibration.most,
        )  # fmt: skip
    figures = judge_calibration(fitted.probabilities, truth, lengths.argmax(-1))
    settings = {
        "polarity": fitted.calibration.as_dict(),
        "polarity_log_losses": fitted.log_losses,
        "polarity_dev": figures.as_dict(),
    }
    if found is not None:
        is_aspect = np.array(found.right, dtype=np.int64)
        sides = two_sided(np.array(found.scores))
        spans = fit_calibration(sides, is_aspect, found.texts, few=few)
        if spans is not None:
            settings |= {
                "aspect": spans.calibration.as_dict(),
                "aspect_log_losses": spans.log_losses,
            }
    return settings, figures
