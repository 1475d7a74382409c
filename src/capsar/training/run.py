"""One training run, from configuration to bundle: prepare, train, checkpoint, log, save."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CONFIG, TOKENIZER, WEIGHTS, open_bundle, write_bundle
from capsar.errors import ArtifactError, ConfigError
from capsar.hub import find_bundle
from capsar.pieces import load_tokenizer
from capsar.training.checkpoint import (
    Progress,
    check_same,
    load_checkpoint,
    save_checkpoint,
)
from capsar.training.finish import finish, graphs_of
from capsar.training.folds import cross_validate
from capsar.training.held_back import HeldBack
from capsar.training.learner import Learner
from capsar.training.log import RunLog
from capsar.training.networks import (
    IN_GRAPH,
    Network,
    bundled_network,
    read_weights,
    restore_bundled,
)
from capsar.training.processes import make_accelerator
from capsar.training.storage import STORES, store_int8

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsar.config import RunConfig
    from capsar.pieces import SentenceTokenizer
    from capsar.training.held_back import DevFigures
    from capsar.training.loop import StepInfo
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
        folder: Of the run: `checkpoints/` (and `folds/`, those of a cross-validation), `log.jsonl`,
            TensorBoard's `events/`, and in the end `bundle/`.
        on_step: Called after every step in the main process, for whoever shows progress.

    Raises:
        ConfigError: If the folder holds a run with another configuration.
        DataError: If there is nothing to train on.
        ArtifactError: If a checkpoint or the bundle cannot be written.
    """
    accelerator = make_accelerator()
    learner = Learner(run_config, accelerator)
    _make(folder)
    finds = run_config.teaches_spans
    before = _judge_start(learner, folds=bool(run_config.data.folds), with_tags=finds)
    folds = None
    if run_config.data.folds:
        folds = cross_validate(run_config, folder, accelerator, on_step)
        _LOG.info(
            "Now the network that is kept learns from everything, for %d epochs",
            folds.progress.best_epoch + 1,
        )
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is not None:
        check_same(checkpoint, learner.run, folder)
        learner.restore(checkpoint)
    else:
        learner.imitate()
    progress = learner.progress
    chooser = folds.progress if folds else progress
    was_finished = progress.finished
    log = RunLog(folder, progress, enabled=accelerator.is_main_process and not folds)
    steps = learner.steps(
        learner.judge if learner.prepared.dev else None,
        epochs=chooser.best_epoch + 1 if folds else 0,
    )
    for info in steps:
        every = run_config.train.checkpoint_steps
        due = info.ends_epoch or (every and info.step % every == 0)
        if due and accelerator.is_main_process:
            save_checkpoint(folder / "checkpoints", learner.checkpoint())
        log.write(info)
        if on_step and accelerator.is_main_process:
            on_step(info)
    log.close()
    if accelerator.is_main_process and not (was_finished and _is_whole(folder / "bundle")):
        finish(folder / "bundle", run_config, learner, chooser, folds.held_back if folds else None)
    _compare_with_start(learner.start, before, chooser)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    dev = chooser.history[chooser.best_epoch]
    seconds = progress.seconds + (chooser.seconds if folds else 0)
    return TrainResult(folder / "bundle", chooser.best_epoch, dev, chooser.history, seconds)


def _make(folder: Path) -> None:
    """Make the run's folder, once its data is known to be sound."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"Cannot use {str(folder)!r} as a run's folder: {error}") from error


def _judge_start(learner: Learner, *, folds: bool, with_tags: bool) -> DevFigures | None:
    """Judge the model that a run goes on from, before it is trained."""
    start, prepared = learner.start, learner.prepared
    held_back = learner.held_back
    if folds:  # it has not learnt from any of them yet
        held_back = HeldBack(learner.predictor, prepared.train, prepared.train_sentences)
    if start is None or not held_back.examples:
        return None
    dev = held_back.judge(with_tags=with_tags)
    _LOG.info("%s as it is: %s", start.name, dev)
    return dev


def _compare_with_start(start: Start | None, before: DevFigures | None, progress: Progress) -> None:
    if start and before and progress.best_score <= before.score:
        _LOG.warning(
            "It is no better on dev than %s as it is: use that one, or train on more sentences",
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


def _is_whole(folder: Path) -> bool:
    """Tell whether a bundle is there and verified."""
    try:
        open_bundle(folder)
    except ArtifactError:
        return False
    return True
