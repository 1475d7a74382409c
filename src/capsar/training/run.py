"""One training run, from configuration to bundle: prepare, train, checkpoint, log, save."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import (
    CAPSULES,
    CARD,
    ENCODER,
    TOKENIZER,
    WEIGHTS,
    open_bundle,
    write_bundle,
)
from capsar.config import ModelConfig, from_dict
from capsar.data.catalog import TEST, datasets, find_file, identify, training_examples
from capsar.data.formats.tables import Columns
from capsar.data.readers import read_examples
from capsar.data.splits import drop_shared, split_dev
from capsar.errors import ArtifactError, ConfigError, DataError, MissingExtraError
from capsar.evaluation.evaluate import compute_predictions, judgeable
from capsar.evaluation.metrics import Figures, compute_figures
from capsar.labels import CLASSES
from capsar.model.network import Capsar
from capsar.model.vectors import WordVectors, load_vectors, vector_words
from capsar.text import WordTokenizer, build_vocabulary
from capsar.training.batches import encode_examples
from capsar.training.card import render_card
from capsar.training.checkpoint import (
    Checkpoint,
    Progress,
    load_checkpoint,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from capsar.training.export import export_capsules, export_encoder
from capsar.training.loop import StepInfo, train_steps
from capsar.training.predictor import NetworkPredictor

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import Accelerator
    from torch import Tensor

    from capsar.config import DataConfig, RunConfig
    from capsar.data.example import Example
    from capsar.data.overlap import Sharing

_LOG = logging.getLogger(__name__)
SEGMENTATION = "treebank-1"
"""The idea of a word that the network was trained with (`capsar.text.segment`)."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything training needs of its data."""

    train: list[Example]
    dev: list[Example]
    tokenizer: WordTokenizer
    vectors: Tensor
    """The initial vector of every word (V, E)."""
    num_trained: int
    facts: dict[str, Any]
    """What the model card says of the data."""
    fingerprint: str


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"Cannot use {str(folder)!r} as a run's folder: {error}") from error
    accelerator = _accelerator()
    prepared = prepare_data(run_config.data, seed=run_config.train.seed)
    torch.manual_seed(run_config.train.seed)
    model = Capsar(run_config.model, prepared.vectors, num_trained=prepared.num_trained)
    model.to(accelerator.device)
    optimizer = torch.optim.Adam(
        (p for p in model.parameters() if p.requires_grad),
        lr=run_config.train.learning_rate,
        fused=True,
    )
    run = run_config.as_dict() | {"fingerprint": prepared.fingerprint}
    progress, best = _resume(folder, run, model, optimizer)
    predictor = NetworkPredictor(model, prepared.tokenizer)

    def evaluate_dev() -> Figures:
        return compute_figures(*compute_predictions(predictor, prepared.dev))

    def take_checkpoint() -> None:
        if accelerator.is_main_process:
            weights = {name: value.clone() for name, value in trained_weights(model).items()}
            state = optimizer_tensors(optimizer)
            save_checkpoint(folder / "checkpoints", Checkpoint(progress, run, weights, state, best))

    was_finished = progress.finished
    log = _RunLog(folder, progress, enabled=accelerator.is_main_process)
    steps = train_steps(
        model,
        optimizer,
        encode_examples(prepared.train, prepared.tokenizer),
        evaluate_dev,
        train_config=run_config.train,
        accelerator=accelerator,
        progress=progress,
    )
    for info in steps:
        if info.is_best:
            best = {name: value.clone() for name, value in trained_weights(model).items()}
        every = run_config.train.checkpoint_steps
        if info.dev is not None or (every and info.step % every == 0):
            take_checkpoint()
        log.write(info)
        if on_step and accelerator.is_main_process:
            on_step(info)
    log.close()
    if accelerator.is_main_process and not (was_finished and _is_whole(folder / "bundle")):
        _write(folder / "bundle", run_config, prepared, best, progress)
    accelerator.wait_for_everyone()
    accelerator.end_training()
    dev = progress.history[progress.best_epoch]
    return TrainResult(
        folder / "bundle", progress.best_epoch, dev, progress.history, progress.seconds
    )


def prepare_data(data_config: DataConfig, *, seed: int = 0) -> Prepared:
    """Read the training data, cut or read the dev part, and build vocabulary and vectors.

    Raises:
        DataError: If there is nothing to train on.
    """
    examples = judgeable(_read(data_config.train, data_config, default_part="train"))
    dropped: dict[Sharing, int] = {}
    if data_config.dev:
        dev_part = judgeable(_read(data_config.dev, data_config, default_part="dev"))
        cleared = drop_shared(examples, (example.text for example in dev_part))
        train_part, dropped = list(cleared.kept), cleared.dropped
    else:
        split = split_dev(examples, share=data_config.dev_share, seed=data_config.dev_seed)
        train_part, dev_part = list(split.train), list(split.dev)
    if not train_part or not dev_part:
        raise DataError(
            f"{data_config.train!r} has {len(train_part)} examples to train on and {len(dev_part)} "
            "to choose the epoch on; each needs an aspect in its text and a polarity of "
            f"{', '.join(CLASSES)}"
        )
    texts = list(dict.fromkeys(example.text for example in train_part))
    path = _vectors_path(data_config.vectors) if data_config.vectors else None
    known = vector_words(path, data_config.max_vector_words) if path else []
    tokenizer = WordTokenizer.build(build_vocabulary(texts, known))
    vectors = load_vectors(path, tokenizer.vocabulary()) if path else None
    table = _initial_vectors(tokenizer, vectors, word_dim=data_config.word_dim, seed=seed)
    facts = {
        "vectors": path.name if path else "random",
        "train": _shown(data_config.train),
        "train_examples": len(train_part),
        "dev": _shown(data_config.dev) if data_config.dev else "",
        "dev_examples": len(dev_part),
        "shared_sentences_dropped": sum(dropped.values()),
        "words": len(tokenizer),
    }
    return Prepared(
        train_part,
        dev_part,
        tokenizer,
        table,
        len(build_vocabulary(texts)) + 2,
        facts,
        _fingerprint(train_part, dev_part, tokenizer, table),
    )


def _fingerprint(
    train_part: list[Example], dev_part: list[Example], tokenizer: WordTokenizer, table: Tensor
) -> str:
    """A hash of everything training sees of its data: a changed file must not be mixed with."""
    digest = hashlib.sha256()
    for part in (train_part, dev_part):
        for example in part:
            row = repr((example.text, example.spans, example.polarity))
            digest.update(row.encode("utf-8", "surrogatepass"))
    digest.update(tokenizer.content())
    digest.update(table.numpy().tobytes())
    return digest.hexdigest()


def load_network(folder: Path) -> tuple[Capsar, WordTokenizer]:
    """Load the network and the tokenizer of a bundle, for evaluating or training further."""
    from safetensors.torch import load_file

    bundle = open_bundle(folder)
    model_config = from_dict(ModelConfig, bundle.config["model"])
    model = Capsar.from_weights(model_config, load_file(bundle.path(WEIGHTS)))
    return model.eval(), WordTokenizer.load(bundle.path(TOKENIZER))


def trained_weights(model: Capsar) -> dict[str, Tensor]:
    """Return what training changes: not the word vectors, which the data gives again."""
    return {k: v.detach() for k, v in model.state_dict().items() if k != "word_vectors"}


def _read(source: str, data_config: DataConfig, *, default_part: str) -> list[Example]:
    """Read a named dataset's part, or a file; never a test part, under whatever name."""
    name, _, part = source.partition(":")
    if name in datasets():
        return training_examples(name, part or default_part)
    path = Path(source)
    known = identify(path) if "\0" not in source and path.is_file() else None
    if known and known[1].part == TEST:
        raise ConfigError(
            f"{source!r} is the test part of {known[0].name!r}: it is not for training or tuning; "
            "only evaluation opens it"
        )
    columns = Columns(
        text=data_config.text_column,
        aspect=data_config.aspect_column,
        polarity=data_config.polarity_column,
    )
    return list(read_examples(path, columns=columns))


def _vectors_path(source: str) -> Path:
    return find_file(source, "vectors") if source in datasets() else Path(source)


def _shown(source: str) -> str:
    """A dataset's name, or a file's without the folders of this machine."""
    return source if source.partition(":")[0] in datasets() else Path(source).name


def _initial_vectors(
    tokenizer: WordTokenizer,
    vectors: WordVectors | None,
    *,
    word_dim: int,
    seed: int,
) -> Tensor:
    """Return the first vector of every word (V, E): pre-trained, or random of the same spread."""
    words = tokenizer.vocabulary()
    some = vectors is not None and len(vectors.words) > 0
    dim = vectors.matrix.shape[1] if vectors is not None else word_dim
    spread = float(vectors.matrix.std()) if vectors is not None and some else 0.4
    table = np.zeros((len(words), dim), dtype=np.float32)
    rows = {word: row for row, word in enumerate(words)}
    if vectors is not None and some:
        table[1] = vectors.matrix.mean(0)  # any unknown word
        for word, vector in zip(vectors.words, vectors.matrix, strict=True):
            table[rows.pop(word)] = vector
    generator = np.random.default_rng(seed)
    first = 2 if some else 1  # padding is zero
    for row in sorted(row for row in rows.values() if row >= first):
        table[row] = generator.normal(0, spread, dim)
    return torch.from_numpy(table)


def _resume(
    folder: Path, run: dict[str, Any], model: Capsar, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, Tensor]]:
    """Put a run back where its last good checkpoint left it, if there is one."""
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        return Progress(), {}
    if checkpoint.run != json.loads(json.dumps(run)):
        what = sorted(name for name in run if run[name] != checkpoint.run.get(name))
        raise ConfigError(
            f"{str(folder)!r} holds a run with another configuration or other data "
            f"(different: {', '.join(what)}); name another folder"
        )
    model.load_state_dict({"word_vectors": model.word_vectors, **checkpoint.model})
    restore_optimizer(optimizer, checkpoint.optimizer)
    _LOG.info("Going on from step %d", checkpoint.progress.step)
    return checkpoint.progress, checkpoint.best


def _accelerator() -> Accelerator:
    try:
        from accelerate import Accelerator, DistributedDataParallelKwargs
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error
    _join_processes()
    # Word vectors are the same everywhere already; sending them at every step would cost much.
    handlers = [DistributedDataParallelKwargs(broadcast_buffers=False)]
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=handlers)


def _is_whole(folder: Path) -> bool:
    """Tell whether a bundle is there and verified."""
    try:
        open_bundle(folder)
    except ArtifactError:
        return False
    return True


def _join_processes() -> None:
    """Under `torchrun`, form the process group with names that no earlier attempt has used.

    After a restart torch would read the addresses of the processes that died from the launcher's
    store, if it comes to read them before the new ones are written.
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
    )


def _write(
    folder: Path, run_config: RunConfig, prepared: Prepared, best: dict[str, Tensor],
    progress: Progress,
) -> None:  # fmt: skip
    """Write the bundle of the best epoch."""
    weights = {"word_vectors": prepared.vectors, **best}
    settings = {
        "capsar_version": __version__,
        "segmentation": SEGMENTATION,
        "classes": [str(polarity) for polarity in CLASSES],
        "model": asdict(run_config.model),
        "trained_on": prepared.facts,
        "dev": progress.history[progress.best_epoch],
    }
    card = render_card(run_config, prepared.facts, progress.history, progress.best_epoch)
    contiguous = {name: value.cpu().contiguous() for name, value in weights.items()}
    model = Capsar.from_weights(run_config.model, contiguous)
    files = {
        ENCODER: export_encoder(model),
        CAPSULES: export_capsules(model),
        TOKENIZER: prepared.tokenizer.content(),
        WEIGHTS: save(contiguous),
        CARD: card.encode("utf-8", "backslashreplace"),
    }
    write_bundle(folder, settings, files)


class _RunLog:
    """`log.jsonl` for machines and TensorBoard's events: one entry an epoch.

    Both are written from the history that checkpoints hold, so that a killed run loses nothing.
    """

    def __init__(self, folder: Path, progress: Progress, *, enabled: bool) -> None:
        self._path = folder / "log.jsonl"
        self._progress = progress
        self._events: Any = None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            events = folder / "events"
            shutil.rmtree(events, ignore_errors=True)
            self._events = SummaryWriter(str(events))
            for entry in progress.history:
                self._add(entry)
            self._write_lines()

    def write(self, info: StepInfo) -> None:
        """Enter an epoch once it has ended."""
        if self._events is not None and info.dev is not None:
            self._add(self._progress.history[-1])
            self._write_lines()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def _add(self, entry: dict[str, float]) -> None:
        for name in entry.keys() - {"epoch"}:
            self._events.add_scalar(name, entry[name], int(entry["epoch"]))
        self._events.flush()

    def _write_lines(self) -> None:
        lines = "".join(json.dumps(entry) + "\n" for entry in self._progress.history)
        scratch = self._path.with_suffix(".tmp")
        try:
            scratch.write_text(lines, encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            raise ArtifactError(f"Cannot write {str(self._path)!r}: {error}") from error
