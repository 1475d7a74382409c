"""One training run, from configuration to bundle: prepare, train, checkpoint, log, save."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save

from capsar import __version__
from capsar.bundle import CARD, TOKENIZER, WEIGHTS, open_bundle, write_bundle
from capsar.config import ModelConfig, from_dict
from capsar.data.catalog import datasets, find_file, training_examples
from capsar.data.formats.tables import Columns
from capsar.data.readers import read_examples
from capsar.data.splits import split_dev
from capsar.errors import ConfigError, DataError, MissingExtraError
from capsar.evaluation.evaluate import compute_predictions, judgeable
from capsar.evaluation.metrics import Figures, compute_figures
from capsar.labels import CLASSES
from capsar.model.network import Capsar
from capsar.model.vectors import WordVectors, load_vectors
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
from capsar.training.loop import StepInfo, train_steps
from capsar.training.predictor import NetworkPredictor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from accelerate import Accelerator
    from torch import Tensor

    from capsar.config import DataConfig, RunConfig
    from capsar.data.example import Example

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
    progress, best = _resume(folder, run_config, model, optimizer)
    predictor = NetworkPredictor(model, prepared.tokenizer)

    def evaluate_dev() -> Figures:
        return compute_figures(*compute_predictions(predictor, prepared.dev))

    def take_checkpoint() -> None:
        if accelerator.is_main_process:
            weights = {name: value.clone() for name, value in trained_weights(model).items()}
            state = optimizer_tensors(optimizer)
            run = run_config.as_dict()
            save_checkpoint(folder / "checkpoints", Checkpoint(progress, run, weights, state, best))

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
    if accelerator.is_main_process:
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
    examples = judgeable(_read(data_config.train, data_config))
    if data_config.dev:
        train_part, dev_part = examples, judgeable(_read(data_config.dev, data_config))
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
    vectors, source = None, "random"
    if data_config.vectors:
        vectors = load_vectors(_vectors_path(data_config.vectors))
        source = vectors.source
    training_words = build_vocabulary(texts)
    vocabulary = build_vocabulary(texts, vectors.words if vectors else ())
    tokenizer = WordTokenizer.build(vocabulary)
    table = _initial_vectors(tokenizer, vectors, word_dim=data_config.word_dim, seed=seed)
    facts = {
        "vectors": source,
        "train": _shown(data_config.train),
        "train_examples": len(train_part),
        "dev_examples": len(dev_part),
        "words": len(tokenizer),
    }
    return Prepared(train_part, dev_part, tokenizer, table, len(training_words) + 2, facts)


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


def _read(source: str, data_config: DataConfig) -> list[Example]:
    name, _, part = source.partition(":")
    if name in datasets():
        return training_examples(name, part or "train")
    columns = Columns(
        text=data_config.text_column,
        aspect=data_config.aspect_column,
        polarity=data_config.polarity_column,
    )
    return list(read_examples(Path(source), columns=columns))


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
    dim = vectors.matrix.shape[1] if vectors else word_dim
    spread = float(vectors.matrix.std()) if vectors else 0.4
    generator = np.random.default_rng(seed)
    table = generator.normal(0, spread, (len(words), dim)).astype(np.float32)
    table[0] = 0  # padding
    if vectors:
        table[1] = vectors.matrix.mean(0)  # any unknown word
        rows = {word: row for row, word in enumerate(words)}
        known = [(rows[word], i) for i, word in enumerate(vectors.words) if word in rows]
        to, origin = zip(*known, strict=True)
        table[list(to)] = vectors.matrix[list(origin)]
    return torch.from_numpy(table)


def _resume(
    folder: Path, run_config: RunConfig, model: Capsar, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, Tensor]]:
    """Put a run back where its last good checkpoint left it, if there is one."""
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is None:
        return Progress(), {}
    if checkpoint.run != run_config.as_dict():
        raise ConfigError(
            f"{str(folder)!r} holds a run with another configuration; name another folder"
        )
    model.load_state_dict(checkpoint.model, strict=False)
    restore_optimizer(optimizer, checkpoint.optimizer)
    _LOG.info("Going on from step %d", checkpoint.progress.step)
    return checkpoint.progress, checkpoint.best


def _accelerator() -> Accelerator:
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise MissingExtraError("train", "Training") from error
    _join_processes()
    return Accelerator(cpu=not torch.cuda.is_available())


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
    scratch = folder.parent / f".tokenizer-{os.getpid()}.json"
    prepared.tokenizer.save(scratch)
    tokenizer = scratch.read_bytes()
    scratch.unlink()
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
    files = {TOKENIZER: tokenizer, WEIGHTS: save(contiguous), CARD: card.encode()}
    write_bundle(folder, settings, files)


class _RunLog:
    """`log.jsonl` for machines and TensorBoard's events, one entry an epoch."""

    def __init__(self, folder: Path, progress: Progress, *, enabled: bool) -> None:
        self._path = folder / "log.jsonl"
        self._progress = progress
        self._enabled = enabled
        self._events: Any = None
        if enabled:
            from torch.utils.tensorboard import SummaryWriter

            folder.mkdir(parents=True, exist_ok=True)
            # What a stopped run wrote after its last checkpoint is written again.
            self._events = SummaryWriter(str(folder / "events"), purge_step=progress.epoch)

    def write(self, info: StepInfo) -> None:
        """Enter an epoch once it has ended."""
        if not self._enabled or info.dev is None:
            return
        lines: Sequence[str] = [json.dumps(entry) for entry in self._progress.history]
        scratch = self._path.with_suffix(".tmp")
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
        scratch.replace(self._path)
        for name, value in self._progress.history[-1].items():
            if name != "epoch":
                self._events.add_scalar(name, value, info.epoch)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
