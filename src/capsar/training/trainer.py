"""One training run, from configuration to bundle."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save

from capsar.bundle import (
    CAPSULES,
    CARD,
    CONFIG,
    ENCODER,
    OPINIONS,
    SPANS,
    THEMES,
    TOKENIZER,
    WEIGHTS,
    find_bundle,
    name_of,
    open_bundle,
    write_bundle,
)
from capsar.calibration import FEW_EXAMPLES, MIN_SENTENCES, binary_scores, fit_calibration
from capsar.config import list_sources
from capsar.errors import ArtifactError, ConfigError, MissingExtraError
from capsar.evaluation.confidence import evaluate_calibration
from capsar.evaluation.evaluate import evaluate
from capsar.model.encoders import describe
from capsar.model.network import Capsar
from capsar.schema import CLASSES
from capsar.tokenizer import SEGMENTATION
from capsar.training.cross_validation import cross_validate
from capsar.training.export import (
    STORES,
    export_capsules,
    export_encoder,
    export_spans,
    store_int8,
)
from capsar.training.initialize import (
    IN_GRAPH,
    load_trained_weights,
    read_weights,
    restore_bundled,
)
from capsar.training.model_card import ValidationReport, render_card
from capsar.training.state import (
    Checkpoint,
    RunLog,
    TrainState,
    check_same_run,
    load_checkpoint,
    save_checkpoint,
)
from capsar.training.validation import choose_aspect_threshold, evaluate_span_head
from capsar.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from accelerate import Accelerator

    from capsar.config import RunConfig
    from capsar.evaluation.confidence import CalibrationMetrics
    from capsar.training.loop import Network, Progress, StepInfo, ValidationMetrics
    from capsar.training.validation import SpanValidation, ValidationSet

_LOG = logging.getLogger(__name__)
_TIMEOUT = timedelta(hours=12)
"""How long processes wait for the main one, which queries teachers alone."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a run."""

    bundle: Path
    best_epoch: int
    validation: dict[str, Any]
    """The entry of the best epoch in the history."""
    history: list[dict[str, Any]]
    seconds: float


def train(
    run_config: RunConfig, folder: Path, *, on_step: Callable[[StepInfo], None] | None = None
) -> TrainResult:
    """Train a network and save it as a bundle; a stopped run continues after its last epoch.

    Args:
        run_config: The configuration of the run.
        folder: The folder of the run: `checkpoints/` (and `folds/`, those of a cross-validation),
            `log.jsonl`, TensorBoard's `events/`, and in the end `bundle/`.
        on_step: Called after every step in the main process, to show progress.

    Raises:
        ConfigError: If the folder holds a run with another configuration.
        DataError: If there is nothing to train on.
        ArtifactError: If a checkpoint or the bundle cannot be written.
    """
    accelerator = make_accelerator()
    is_main = accelerator.is_main_process
    state = TrainState(run_config, accelerator)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"Cannot use {str(folder)!r} as a run's folder: {error}") from error
    before = _evaluate_initial(state, run_config) if is_main else None
    folds = None
    if run_config.data.folds:
        folds = cross_validate(run_config, folder, accelerator, on_step)
        _LOG.info(
            "Training the final network on all examples for %d epochs",
            folds.progress.best_epoch + 1,
        )
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is not None:
        check_same_run(checkpoint, state.run, folder)
        state.restore(checkpoint.progress, checkpoint.tensors)
    selection = folds.progress if folds else state.progress
    was_finished = state.progress.finished
    log = RunLog(folder, state.progress) if is_main and not folds else None
    epochs = selection.best_epoch + 1 if folds else 0
    for info in state.steps(epochs=epochs):
        if is_main:
            _record(info, state, folder, log, on_step)
    if is_main and not (was_finished and _is_valid(folder / "bundle")):
        validation_set = folds.validation_set if folds else state.validation_set
        save_model(folder / "bundle", run_config, state, selection, validation_set)
    if before and selection.best_score <= before.score:
        _LOG.warning(
            "The validation score is not better than before fine-tuning: use the initial model, or "
            "train on more sentences"
        )
    accelerator.wait_for_everyone()
    accelerator.end_training()
    best = selection.best_epoch
    seconds = state.progress.seconds + (selection.seconds if folds else 0)
    return TrainResult(folder / "bundle", best, selection.history[best], selection.history, seconds)


def _record(
    info: StepInfo,
    state: TrainState,
    folder: Path,
    log: RunLog | None,
    on_step: Callable[[StepInfo], None] | None,
) -> None:
    """Write a checkpoint and the log after an epoch, and report the step."""
    if info.ends_epoch:
        checkpoint = Checkpoint(state.progress, state.run, state.tensors())
        save_checkpoint(folder / "checkpoints", checkpoint)
        if log:
            log.write()
    if on_step:
        on_step(info)


def make_accelerator() -> Accelerator:
    """Return the accelerator, which selects the device and joins processes.

    Accelerate uses CUDA if available, else MPS, else the CPU; `ACCELERATE_USE_CPU=1` selects the
    CPU. One and several processes on the CPU are tested; CUDA and MPS are not tested on hardware.
    """
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error
    _join_processes()
    # Word vectors are the same in all processes; broadcasting them at every step would be slow.
    handlers = [DistributedDataParallelKwargs(broadcast_buffers=False)]
    # Without `cpu`, Accelerate does not join processes on the CPU.
    return Accelerator(cpu=not torch.accelerator.is_available(), kwargs_handlers=handlers)


def _join_processes() -> None:
    """Under `torchrun`, create the process group with keys that no earlier attempt has used.

    After a restart, torch could otherwise read the addresses of dead processes from the launcher's
    store before the new ones are written.
    """
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if attempt is None or torch.distributed.is_initialized():
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    launcher_has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not launcher_has_store,
    )
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore(f"attempt-{attempt}", store),
        rank=rank,
        world_size=world,
        timeout=_TIMEOUT,
    )


def _evaluate_initial(state: TrainState, run_config: RunConfig) -> ValidationMetrics | None:
    """Evaluate the model that is fine-tuned, before training."""
    validation_set, splits = state.validation_set, state.data.splits
    if run_config.data.folds:  # the initial model was not trained on any of them
        validation_set = replace(
            validation_set, examples=splits.train, sentences=splits.train_sentences
        )
    if state.initial is None or not validation_set.examples:
        return None
    metrics = validation_set.evaluate(with_spans=run_config.trains_spans)
    _LOG.info("%s before fine-tuning: %s", state.initial.name, metrics)
    return metrics


def save_model(
    folder: Path,
    run_config: RunConfig,
    state: TrainState,
    selection: Progress,
    validation_set: ValidationSet,
) -> None:
    """Write the bundle of the best epoch.

    Args:
        folder: The folder of the bundle.
        run_config: The configuration of the run.
        state: The network, with its best weights.
        selection: The progress that chose the epoch.
        validation_set: The set to choose thresholds and to calibrate on.
    """
    facts, vocabulary, initial = state.data.facts, state.data.vocabulary, state.initial
    encoder = vocabulary.encoder
    public = _without_folders(run_config, facts, encoder.name if encoder else "")
    settings: dict[str, Any] = {
        "capsar_version": __version__,
        "segmentation": SEGMENTATION,
        "classes": [str(polarity) for polarity in CLASSES],
        "model": asdict(public.model),
        "trained_on": facts,
        "validation": selection.history[selection.best_epoch],
    }
    if encoder is not None:
        tokenizer = encoder.tokenizer
        subwords = {"window": tokenizer.window, "reads_aspect": tokenizer.reads_aspect}
        settings |= {"transformer": describe(encoder.model), "subwords": subwords}
    load_trained_weights(state.evaluated, state.final_weights)
    model = state.evaluated.cpu().eval()
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    kept = initial.span_settings if initial and not run_config.trains_spans else None
    chosen, report = kept or {}, ValidationReport()
    if validation_set.examples:
        limit = run_config.train.max_false_aspects
        chosen, report = _choose(model, validation_set, kept, limit)
    card = render_card(
        public,
        facts,
        epoch=selection.best_epoch,
        num_epochs=len(selection.history),
        report=report,
    )
    files = {
        **export_graphs(model),
        TOKENIZER: vocabulary.tokenizer.content(),
        WEIGHTS: save(weights),
        CARD: card.encode("utf-8", "backslashreplace"),
    }
    settings |= chosen
    if initial is not None and initial.opinions is not None:
        files[OPINIONS] = initial.opinions.content
        settings["opinion_bias"] = initial.opinions.bias
        if initial.opinions.calibration is not None:
            calibration = settings.get("calibration", {})
            settings["calibration"] = calibration | {"opinion": initial.opinions.calibration}
    if initial is not None and initial.themes is not None:
        files[THEMES] = initial.themes
    write_bundle(folder, settings, files)


def _without_folders(run_config: RunConfig, facts: dict[str, Any], encoder: str) -> RunConfig:
    """Return the configuration with names in place of this machine's folders."""
    teachers = tuple(map(name_of, list_sources(run_config.train.teacher)))
    train = replace(run_config.train, teacher=teachers, init_from=facts.get("init_from", ""))
    model = replace(run_config.model, encoder=encoder)
    return replace(run_config, train=train, model=model)


def _choose(
    model: Network,
    validation_set: ValidationSet,
    kept: dict[str, Any] | None,
    max_false_aspects: float,
) -> tuple[dict[str, Any], ValidationReport]:
    """Choose thresholds and calibration on the validation set, and report metrics.

    Args:
        model: The network.
        validation_set: Data that the network, or those of the folds, was not trained on.
        kept: Settings of an extraction head that this data cannot evaluate, if so.
        max_false_aspects: The limit of false aspects (`TrainConfig`).
    """
    predictor, examples = validation_set.predictor, validation_set.examples
    evaluation = evaluate(predictor, examples)
    settings: dict[str, Any] = {
        "validation_intervals": asdict(evaluation.intervals),
        "validation_confusion": [list(row) for row in evaluation.metrics.confusion],
    }
    if not isinstance(model, Capsar):
        return settings, ValidationReport(evaluation)
    threshold, span_f1 = choose_aspect_threshold(predictor, examples)
    settings |= {"aspect_threshold": threshold, "validation_span_f1": span_f1}
    found = None
    if model.spans is not None and kept is None:
        found = evaluate_span_head(predictor, validation_set.sentences, max_false_aspects)
        settings |= {
            "span_bias": found.bias,
            "span_threshold": found.threshold,
            "validation_spans": found.extraction.as_dict(),
        }
    calibration, metrics = calibrate(validation_set, found)
    calibration = (kept or {}).get("calibration", {}) | calibration
    if calibration:
        settings["calibration"] = calibration
    if "polarity" not in calibration:
        _LOG.warning(
            "Predictions will have no confidence: %d validation sentences are too few to fit a "
            "calibration, %d are needed. Label more, or raise data.validation_ratio.",
            len({example.text for example in examples}), MIN_SENTENCES,
        )  # fmt: skip
    extraction = found.extraction if found else None
    return (kept or {}) | settings, ValidationReport(evaluation, span_f1, extraction, metrics)


def calibrate(
    validation_set: ValidationSet, found: SpanValidation | None
) -> tuple[dict[str, Any], CalibrationMetrics | None]:
    """Fit the calibrations of polarity and, given found spans, of aspects."""
    examples = validation_set.examples
    lengths = validation_set.predictor.predict_lengths(examples)
    truth = np.array([CLASSES.index(e.polarity) for e in examples if e.polarity])
    texts = [example.text for example in examples]
    few = len(texts) < FEW_EXAMPLES
    fitted = fit_calibration(lengths, truth, texts, few=few)
    if fitted is None:
        return {}, None
    if few:
        _LOG.warning(
            "The calibration is fitted on only %d validation examples: confidence is capped at "
            "%.2f.", len(texts), fitted.calibration.max_confidence,
        )  # fmt: skip
    metrics = evaluate_calibration(fitted.probabilities, truth, lengths.argmax(-1))
    settings = {
        "polarity": fitted.calibration.as_dict(),
        "polarity_log_losses": fitted.log_losses,
        "polarity_validation": metrics.as_dict(),
    }
    if found is not None:
        correct = np.array(found.correct, dtype=np.int64)
        spans = fit_calibration(
            binary_scores(np.array(found.scores)), correct, found.texts, few=few
        )
        if spans is not None:
            settings |= {
                "aspect": spans.calibration.as_dict(),
                "aspect_log_losses": spans.log_losses,
            }
    return settings, metrics


def export_graphs(model: Network) -> dict[str, bytes]:
    """Return the ONNX graphs of a network; a baseline without capsules has none."""
    if not isinstance(model, Capsar):
        return {}
    graphs = {ENCODER: export_encoder(model), CAPSULES: export_capsules(model)}
    return graphs if model.spans is None else graphs | {SPANS: export_spans(model, model.spans)}


def export_bundle(source: str | Path, out: Path, *, store: str = STORES[0]) -> None:
    """Export the graphs of a bundle again from its weights, and write a new bundle.

    Args:
        source: A bundle, the folder of a finished run, or a bundled model.
        out: The new bundle; an existing one, even the source, is replaced in one step.
        store: How the graphs store weights: as `float32`, or as `int8`, a quarter of the size,
            converted back to floats when the model is loaded.

    Raises:
        ArtifactError: If the source is damaged or has no weights, or `out` cannot be written.
        ConfigError: If `store` is unknown, or the network cannot be exported.
    """
    if store not in STORES:
        raise ConfigError(f"store must be one of {STORES}, got {store!r}")
    bundle = find_bundle(source)
    weights = read_weights(bundle)
    graphs = export_graphs(restore_bundled(bundle, weights))
    if not graphs:
        raise ConfigError("A network with the head 'bert-pair' is a baseline: it has no graphs")
    if store == "int8":
        graphs = {name: store_int8(content) for name, content in graphs.items()}
    files = {name: bundle.path(name).read_bytes() for name in bundle.files if name != CONFIG}
    files |= graphs
    settings = bundle.config | {"capsar_version": __version__}
    settings.pop("store", None)
    if settings.pop(IN_GRAPH, None):  # the new graphs may name and round their matrices differently
        files[WEIGHTS] = save({name: value.contiguous() for name, value in weights.items()})
    if store != STORES[0]:
        settings["store"] = store
    write_bundle(out, settings, files)


def _is_valid(folder: Path) -> bool:
    try:
        open_bundle(folder)
    except ArtifactError:
        return False
    return True
