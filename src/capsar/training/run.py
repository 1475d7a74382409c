"""One training run, from configuration to bundle: prepare, train, checkpoint, log, save."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CONFIG, TOKENIZER, WEIGHTS, open_bundle, write_bundle
from capsar.config import run_config as make_config
from capsar.errors import ArtifactError, ConfigError
from capsar.evaluation.evaluate import compute_predictions
from capsar.evaluation.metrics import compute_figures
from capsar.hub import find_bundle
from capsar.model.network import Capsar
from capsar.pieces import load_tokenizer
from capsar.training.averaging import Average
from capsar.training.batches import EncodedExample, encode_examples
from capsar.training.checkpoint import (
    Checkpoint,
    Progress,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from capsar.training.finish import finish, graphs_of
from capsar.training.log import RunLog
from capsar.training.loop import DevFigures, StepInfo, train_steps
from capsar.training.networks import (
    IN_GRAPH,
    Network,
    bundled_network,
    new_network,
    read_weights,
    restore_bundled,
    trained_weights,
)
from capsar.training.optimizer import make_optimizer
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import Prepared, prepare_data
from capsar.training.processes import make_accelerator
from capsar.training.start import load_start
from capsar.training.storage import STORES, store_int8
from capsar.training.teaching import balance_classes, be_told, digest_teachers
from capsar.training.tune import dev_spans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from capsar.config import RunConfig
    from capsar.pieces import SentenceTokenizer
    from capsar.training.start import Start

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run ended with."""

    bundle: Path
    best_epoch: int
    dev: dict[str, float]
    history: list[dict[str, float]]
    seconds: float


def train(
    run_config: RunConfig, folder: Path, *, on_step: Callable[[StepInfo], None] | None = None
) -> TrainResult:
    """Train a network and write it as a bundle; a run that was stopped goes on where it was.

    Args:
        run_config: What is trained, on what, and how.
        folder: Of the run: `checkpoints/`, `log.jsonl`, TensorBoard's `events/`, and in the end
            `bundle/`.
        on_step: Called after every step in the main process, for whoever shows progress.

    Raises:
        ConfigError: If the folder holds a run with another configuration.
        DataError: If there is nothing to train on.
        ArtifactError: If a checkpoint or the bundle cannot be written.
    """
    accelerator = make_accelerator()
    seed = run_config.train.seed
    start = load_start(run_config)
    prepared = prepare_data(run_config.data, run_config.model, seed=seed, start=start)
    torch.manual_seed(seed)
    model = _network(run_config, prepared, start).to(accelerator.device)
    optimizer = make_optimizer(model, run_config.train)
    _make(folder)
    predictor = NetworkPredictor(model, prepared.tokenizer)
    finds = run_config.teaches_spans
    before = _judge_start(start, predictor, prepared, with_tags=finds)
    told_by = digest_teachers(run_config.train.teacher)
    run = run_config.as_dict() | {"fingerprint": prepared.fingerprint + told_by}
    progress, best, average = _resume(folder, run, model, optimizer, run_config.train.average)
    optimizer.register_step_post_hook(lambda *_: average.update(model, progress.step))

    def evaluate_dev() -> DevFigures:
        with average.in_place(model):
            return _judge_dev(predictor, prepared, with_tags=finds)

    def take_checkpoint() -> None:
        if accelerator.is_main_process:
            weights = {name: value.clone() for name, value in trained_weights(model).items()}
            state = optimizer_tensors(optimizer)
            held = Checkpoint(progress, run, weights, state, best, average.tensors)
            save_checkpoint(folder / "checkpoints", held)

    was_finished = progress.finished
    log = RunLog(folder, progress, enabled=accelerator.is_main_process)
    steps = train_steps(
        model,
        optimizer,
        _encode(prepared, run_config),
        evaluate_dev if prepared.dev else None,
        train_config=run_config.train,
        accelerator=accelerator,
        progress=progress,
    )
    for info in steps:
        if info.is_best:
            best = average.weights_of(model)
        every = run_config.train.checkpoint_steps
        if info.ends_epoch or (every and info.step % every == 0):
            take_checkpoint()
        log.write(info)
        if on_step and accelerator.is_main_process:
            on_step(info)
    log.close()
    if accelerator.is_main_process and not (was_finished and _is_whole(folder / "bundle")):
        finish(folder / "bundle", run_config, prepared, best, progress, model.given, start)
    _compare_with_start(start, before, progress)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    dev = progress.history[progress.best_epoch]
    return TrainResult(
        folder / "bundle", progress.best_epoch, dev, progress.history, progress.seconds
    )


def _make(folder: Path) -> None:
    """Make the run's folder, once its data is known to be sound."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"Cannot use {str(folder)!r} as a run's folder: {error}") from error


def _network(run_config: RunConfig, prepared: Prepared, start: Start | None) -> Network:
    """A new network, or the one that the run goes on from."""
    model = start.network if start else new_network(run_config.model, prepared)
    if isinstance(model, Capsar) and model.spans is not None:
        # What nothing teaches gets no gradient, and no process must wait for one.
        model.spans.requires_grad_(run_config.teaches_spans)
    return model


def _encode(prepared: Prepared, run_config: RunConfig) -> list[EncodedExample]:
    """The training examples; with tags, sentences without a judged term are examples too."""
    examples, terms = prepared.all_train, None
    if run_config.teaches_spans:
        examples = prepared.tagged_train
        terms = {sentence.text: sentence.terms for sentence in prepared.train_sentences}
    encoded = encode_examples(examples, prepared.tokenizer, terms=terms)
    encoded = balance_classes(encoded, run_config.train.class_balance)
    return be_told(encoded, examples, run_config.train.teacher, run_config.train.teacher_share)


def _judge_dev(predictor: NetworkPredictor, prepared: Prepared, *, with_tags: bool) -> DevFigures:
    figures = compute_figures(*compute_predictions(predictor, prepared.dev))
    if not with_tags:
        return DevFigures(figures)
    return DevFigures(figures, dev_spans(predictor, prepared.dev_sentences).f1(0.0))


def _judge_start(
    start: Start | None, predictor: NetworkPredictor, prepared: Prepared, *, with_tags: bool
) -> DevFigures | None:
    """Judge the model that a run goes on from, before it is trained."""
    if start is None or not prepared.dev:
        return None
    dev = _judge_dev(predictor, prepared, with_tags=with_tags)
    _LOG.info("%s as it is: %s", start.name, dev)
    return dev


def _compare_with_start(start: Start | None, before: DevFigures | None, progress: Progress) -> None:
    if start and before and progress.best_score <= before.score:
        _LOG.warning(
            "No epoch is better on dev than %s as it is: use that one, or train on more sentences",
            start.name,
        )


def load_network(folder: Path) -> tuple[Network, SentenceTokenizer]:
    """Load the network and the tokenizer of a bundle, for evaluating or training further.

    Raises:
        ArtifactError: If it is damaged, or holds no weights of the network it describes.
    """
    bundle = open_bundle(folder)
    tokenizer = load_tokenizer(bundle.path(TOKENIZER), bundle.config)
    return bundled_network(bundle).eval(), tokenizer


def export_bundle(source: str | Path, out: Path, *, store: str = STORES[0]) -> None:
    """Write a bundle whose graphs are made anew, from the weights of one that is there.

    Args:
        source: A bundle, the folder of a run that ended with one, or a model that ships.
        out: Where it will be; a bundle that is there, be it the source, is replaced in one step.
        store: How the graphs hold their weights: as `float32`, or as `int8` in a quarter of the
            room, which are turned back once, when the model is loaded.

    Raises:
        ArtifactError: If the source is damaged or holds no weights, or `out` cannot be written.
        ConfigError: If there is no such way to store weights, or the network is never exported.
    """
    if store not in STORES:
        raise ConfigError(f"store must be one of {STORES}, got {store!r}")
    bundle = find_bundle(source)
    weights = read_weights(bundle)
    model = restore_bundled(bundle, weights)
    files = {name: bundle.path(name).read_bytes() for name in bundle.files if name != CONFIG}
    graphs = graphs_of(model)
    if not graphs:
        raise ConfigError("A network with the head 'first-token' is a baseline: it has no graphs")
    if store == "int8":
        graphs = {name: store_int8(content) for name, content in graphs.items()}
    files |= graphs
    settings = bundle.config | {"capsar_version": __version__}
    settings.pop("store", None)
    if settings.pop(IN_GRAPH, None):  # the new graphs may name and round their matrices otherwise
        files[WEIGHTS] = save({name: value.contiguous() for name, value in weights.items()})
    if store != STORES[0]:  # float32 goes without saying
        settings["store"] = store
    write_bundle(out, settings, files)


def _resume(
    folder: Path,
    run: dict[str, Any],
    model: Network,
    optimizer: torch.optim.Optimizer,
    decay: float,
) -> tuple[Progress, dict[str, Tensor], Average]:
    """Put a run back where its last good checkpoint left it, if there is one."""
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        return Progress(), {}, Average(decay)
    if _completed(checkpoint.run) != json.loads(json.dumps(run)):
        what = sorted(name for name in run if run[name] != checkpoint.run.get(name))
        raise ConfigError(
            f"{str(folder)!r} holds a run with another configuration or other data "
            f"(different: {', '.join(what)}); name another folder"
        )
    given = {name: value for name, value in model.state_dict().items() if name == model.given}
    model.load_state_dict(given | checkpoint.model)
    restore_optimizer(optimizer, checkpoint.optimizer)
    _LOG.info("Going on from step %d", checkpoint.progress.step)
    return checkpoint.progress, checkpoint.best, Average(decay, checkpoint.average)


def _completed(run: dict[str, Any]) -> dict[str, Any]:
    """Add the settings that came later, at their defaults, to a run that an older release began."""
    sections: dict[str, Any] = {
        name: run[name] for name in ("data", "model", "train") if name in run
    }
    try:
        return run | make_config(sections).as_dict()
    except ConfigError:  # it has settings that are gone
        return run


def _is_whole(folder: Path) -> bool:
    """Tell whether a bundle is there and verified."""
    try:
        open_bundle(folder)
    except ArtifactError:
        return False
    return True
