"""Test whole runs: train, evaluate, interrupt and resume, with one process or two."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from interrupted import InterruptError
from safetensors.torch import load_file
from synthetic_reviews import write_reviews
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from capsar.config import RunConfig, TrainConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError, DataError
from capsar.evaluation.evaluate import evaluate
from capsar.evaluation.metrics import PolarityMetrics, compute_metrics
from capsar.model.network import Batch, Capsar, Output
from capsar.training.dataset import prepare_data, read_splits
from capsar.training.initialize import load_network
from capsar.training.loop import Progress, StepInfo, ValidationMetrics, end_epoch
from capsar.training.state import load_checkpoint, unmerge
from capsar.training.trainer import train
from capsar.training.validation import NetworkPredictor

SIZES = {
    "units": 20,
    "primary_dim": 12,
    "intermediate_capsules": 8,
    "intermediate_dim": 16,
    "class_dim": 24,
}


def configure(data: Path, **train_settings: object) -> RunConfig:
    settings = {"learning_rate": 0.01, "max_epochs": 12, "patience": 12} | train_settings
    return run_config(
        {
            "data": {"train": str(data), "word_dim": 24, "validation_ratio": 0.2},
            "model": dict(SIZES),
            "train": settings,
        }
    )


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews.csv", 400)


def test_run_learns_and_saves_a_bundle(reviews: Path, tmp_path: Path) -> None:
    steps = []
    result = train(configure(reviews), tmp_path / "run", on_step=steps.append)
    assert result.validation["validation_accuracy"] > 0.9
    assert [entry["epoch"] for entry in result.history] == list(range(len(result.history)))
    assert steps[-1].validation is not None
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert log == result.history
    confusion = result.validation["validation_confusion"]
    splits = prepare_data(configure(reviews).data).splits
    assert sum(map(sum, confusion)) == len(splits.validation)
    assert list((tmp_path / "run" / "events").iterdir())
    held_out = write_reviews(tmp_path / "held-out.csv", 100, seed=9)
    predictor = NetworkPredictor(*load_network(result.bundle))
    examples = list(read_examples(held_out))
    assert evaluate(predictor, examples).metrics.accuracy > 0.85
    # The bundle holds the best epoch, not the last.
    best = evaluate(predictor, splits.validation).metrics
    assert best.macro_f1 == pytest.approx(result.validation["validation_macro_f1"])
    card = (result.bundle / "README.md").read_text()
    assert "reviews.csv" in card
    assert str(tmp_path) not in card
    assert f"{result.validation['validation_macro_f1']:.4f}" in card


def test_predictions_do_not_depend_on_order_or_batch(reviews: Path, tmp_path: Path) -> None:
    result = train(configure(reviews, max_epochs=1), tmp_path / "run")
    model, tokenizer = load_network(result.bundle)
    examples = list(read_examples(reviews))[:50]
    whole = NetworkPredictor(model, tokenizer).predict_lengths(examples)
    singly = NetworkPredictor(model, tokenizer, batch_size=1).predict_lengths(examples[::-1])[::-1]
    assert abs(whole - singly).max() < 1e-5


def test_early_stopping(reviews: Path, tmp_path: Path) -> None:
    result = train(configure(reviews, max_epochs=50, patience=2), tmp_path / "run")
    assert len(result.history) == result.best_epoch + 3 < 50


def test_training_options(reviews: Path, tmp_path: Path) -> None:
    settings = configure(
        reviews, max_epochs=6, aspect_dropout=0.5, max_grad_norm=1.0, mixed_precision="bf16"
    )
    result = train(settings, tmp_path / "run")
    assert result.validation["validation_accuracy"] > 0.5
    model, _ = load_network(result.bundle)
    assert model.word_vectors.dtype == torch.float32


class Scripted:
    """Scripted metrics, whatever the network does."""

    def __init__(self, *pairs: tuple[float, float]) -> None:
        self.pairs = list(pairs)
        self.seen = 0

    def __call__(self, *_: object) -> PolarityMetrics:
        accuracy, macro_f1 = self.pairs[self.seen]
        self.seen += 1
        return PolarityMetrics(1, accuracy, macro_f1, {}, ((1, 0), (0, 1)))


def test_bundle_holds_the_epoch_with_the_best_macro_f1(
    reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Scripted((0.9, 0.2), (0.5, 0.7), (0.8, 0.6), (0.99, 0.65), (0.7, 0.1))
    monkeypatch.setattr("capsar.training.validation.compute_metrics", metrics)
    weights = []

    def remember(info: StepInfo) -> None:
        if info.validation is not None:
            checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints")
            assert checkpoint is not None
            weights.append(unmerge(checkpoint.tensors)["model"])

    result = train(configure(reviews, patience=2), tmp_path / "run", on_step=remember)
    assert result.best_epoch == 1
    assert len(result.history) == 4  # stops after two epochs without improvement
    bundled = load_file(result.bundle / "model.safetensors")
    for name, tensor in weights[1].items():
        assert torch.equal(bundled[name], tensor)
    assert not torch.equal(weights[3]["sentiment.weight"], weights[1]["sentiment.weight"])


def test_last_epoch_can_be_selected_and_the_card_records_it(
    reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Scripted((0.9, 0.9), (0.5, 0.2), (0.5, 0.1), (0.6, 0.3))
    monkeypatch.setattr("capsar.training.validation.compute_metrics", metrics)
    settings = configure(reviews, patience=1, max_epochs=3, checkpoint_selection="last")
    weights = []

    def remember(info: StepInfo) -> None:
        if info.validation is not None:
            checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints")
            assert checkpoint is not None
            weights.append(unmerge(checkpoint.tensors)["model"])

    result = train(settings, tmp_path / "run", on_step=remember)
    assert (result.best_epoch, len(result.history)) == (2, 3)
    bundled = load_file(result.bundle / "model.safetensors")
    assert torch.equal(bundled["sentiment.weight"], weights[2]["sentiment.weight"])
    assert not torch.equal(weights[2]["sentiment.weight"], weights[0]["sentiment.weight"])
    card = (result.bundle / "README.md").read_text()
    assert "| epoch chosen on | the last one, by setting |" in card
    assert "The epoch, the thresholds" not in card


@pytest.mark.parametrize("stop_at", [1, 7, 11, 23])
@pytest.mark.parametrize(
    "settings", [{"max_grad_norm": 0.5, "aspect_dropout": 0.5, "warmup_ratio": 0.2}, {}]
)
def test_resumed_run_equals_uninterrupted_run(
    reviews: Path, tmp_path: Path, stop_at: int, settings: dict[str, object]
) -> None:
    run = configure(reviews, max_epochs=5, **settings)

    def stop(info: StepInfo) -> None:
        if info.step == stop_at:
            raise InterruptError

    with pytest.raises(InterruptError):
        train(run, tmp_path / "resumed", on_step=stop)
    resumed = train(run, tmp_path / "resumed")
    whole = train(run, tmp_path / "whole")
    assert resumed.history == whole.history
    assert resumed.best_epoch == whole.best_epoch
    ours, expected = (load_file(r.bundle / "model.safetensors") for r in (resumed, whole))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("resumed", "whole")]
    assert logs[0] == logs[1]
    events = EventAccumulator(str(tmp_path / "resumed" / "events")).Reload()
    assert [event.step for event in events.Scalars("validation_macro_f1")] == [0, 1, 2, 3, 4]


def test_gradient_clipping_and_aspect_dropout(
    reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, norms = [], []
    plain_forward, plain_step = Capsar.forward, torch.optim.Adam.step

    def forward(self: Capsar, batch: Batch) -> Output:
        if self.training:
            hidden.append(bool((batch.first_words < 0).all()))
        return plain_forward(self, batch)

    def step(self: torch.optim.Adam, *args: object, **kwargs: object) -> object:
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(torch.stack([g.norm() for g in grads if g is not None]).norm().item())
        return plain_step(self, *args, **kwargs)

    monkeypatch.setattr(Capsar, "forward", forward)
    monkeypatch.setattr(torch.optim.Adam, "step", step)
    settings = configure(
        reviews, max_epochs=20, aspect_dropout=0.3, max_grad_norm=0.01, learning_rate=1e-4
    )
    train(settings, tmp_path / "run")
    assert max(norms) <= 0.01 * 1.001
    assert len(hidden) == len(norms) >= 60
    assert 0.15 < sum(hidden) / len(hidden) < 0.45


def test_mixed_precision_routes_in_float32(reviews: Path, tmp_path: Path) -> None:
    kinds: dict[str, torch.dtype] = {}

    def watch(module: torch.nn.Module, _: object, output: object) -> None:
        if isinstance(output, torch.Tensor) and module.training:
            kinds.setdefault(type(module).__name__, output.dtype)

    hook = torch.nn.modules.module.register_module_forward_hook(watch)
    try:
        train(configure(reviews, max_epochs=1, mixed_precision="bf16"), tmp_path / "run")
    finally:
        hook.remove()
    assert kinds["Linear"] == torch.bfloat16
    assert kinds["RoutedCapsules"] == torch.float32


def test_changed_data_is_rejected(tmp_path: Path) -> None:
    data = write_reviews(tmp_path / "reviews.csv", 100)
    train(configure(data, max_epochs=1), tmp_path / "run")
    before = (tmp_path / "run" / "bundle" / "tokenizer.json").read_bytes()
    with data.open("a") as stream:
        stream.write("The soup was great.,soup,positive\n" * 5)
    with pytest.raises(ConfigError, match=r"other data \(different: fingerprint"):
        train(configure(data, max_epochs=1), tmp_path / "run")
    assert (tmp_path / "run" / "bundle" / "tokenizer.json").read_bytes() == before


def test_divergence_is_an_error(reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not finite at step .*learning_rate"):
        train(configure(reviews, learning_rate=1e30), tmp_path / "run")
    assert not (tmp_path / "run" / "bundle").exists()


def test_validation_file_is_never_trained_on(tmp_path: Path) -> None:
    data = write_reviews(tmp_path / "train.csv", 80)
    validation = write_reviews(tmp_path / "validation.csv", 30, seed=2)
    validation.write_text(
        validation.read_text() + "\n".join(data.read_text().splitlines()[1:4]) + "\n"
    )
    prepared = prepare_data(
        run_config({"data": {"train": str(data), "validation": str(validation)}}).data
    )
    assert not {e.text for e in prepared.splits.train} & {
        e.text for e in prepared.splits.validation
    }
    assert prepared.facts["shared_sentences_dropped"] >= 3
    settings = {
        "data": {"train": str(data), "validation": str(validation), "word_dim": 8},
        "model": dict(SIZES),
    }
    result = train(run_config(settings | {"train": {"max_epochs": 1}}), tmp_path / "run")
    assert "validation examples, of validation.csv |" in (result.bundle / "README.md").read_text()


def test_without_validation_all_data_is_used_and_the_last_epoch_saved(
    reviews: Path, tmp_path: Path
) -> None:
    settings = configure(reviews, max_epochs=3).as_dict()
    settings["data"]["validation_ratio"] = 0.0
    prepared = prepare_data(run_config(settings).data)
    assert not prepared.splits.validation
    assert len(prepared.splits.train) == 400
    result = train(run_config(settings), tmp_path / "run")
    assert (result.best_epoch, len(result.history)) == (2, 3)
    assert all(set(entry) == {"epoch", "loss"} for entry in result.history)
    last = load_checkpoint(tmp_path / "run" / "checkpoints")
    assert last is not None
    model, _ = load_network(result.bundle)
    for name, value in unmerge(last.tensors)["model"].items():
        assert torch.equal(model.state_dict()[name], value)
    assert "there was no validation set" in (result.bundle / "README.md").read_text()


def test_train_ratio(reviews: Path) -> None:
    settings = configure(reviews).as_dict()
    whole = read_splits(run_config(settings).data)
    settings["data"]["train_ratio"] = 0.5
    half = read_splits(run_config(settings).data)
    assert half.validation == whole.validation
    assert set(half.train) < set(whole.train)
    texts = ({e.text for e in part.train} for part in (half, whole))
    few, many = map(len, texts)
    assert few == round(0.5 * many)


@pytest.mark.data
def test_test_sets_cannot_be_used_for_training_or_validation(shared: Path, tmp_path: Path) -> None:
    gold = shared / "data" / "semeval14" / "Restaurants_Test_Gold.xml"
    copy = tmp_path / "innocent.xml"
    copy.write_bytes(gold.read_bytes())
    train_file = str(write_reviews(tmp_path / "a.csv", 30))
    for data in (
        {"train": str(gold)},
        {"train": str(copy)},
        {"train": train_file, "validation": str(copy)},
        {"train": train_file, "validation": "mams:test"},
        {"train": "semeval14-restaurants:test"},
    ):
        with pytest.raises(ConfigError, match=r"test (set|part) .*evaluation"):
            prepare_data(run_config({"data": data}).data)
    with pytest.raises(ConfigError, match="no part 'dev'"):
        prepare_data(run_config({"data": {"train": train_file, "validation": "twitter"}}).data)


def test_runs_of_older_releases_can_be_resumed(reviews: Path, tmp_path: Path) -> None:
    """Settings that did not exist had their defaults; other values make another run."""
    first = train(configure(reviews, max_epochs=1), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*/state.json"):
        state = json.loads(path.read_text())
        del state["run"]["train"]["max_grad_norm"]
        path.write_text(json.dumps(state))
    again = train(configure(reviews, max_epochs=1), tmp_path / "run")
    assert again.history == first.history
    with pytest.raises(ConfigError, match="another configuration"):
        train(configure(reviews, max_epochs=1, max_grad_norm=1.0), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*/state.json"):
        state = json.loads(path.read_text())
        state["run"]["train"]["gone"] = 1
        path.write_text(json.dumps(state))
    with pytest.raises(ConfigError, match="another configuration"):
        train(configure(reviews, max_epochs=1), tmp_path / "run")


def test_finished_run_is_not_repeated_nor_mixed_with_another(reviews: Path, tmp_path: Path) -> None:
    first = train(configure(reviews, max_epochs=2), tmp_path / "run")
    steps = []
    extra = first.bundle / "notes.txt"  # not ours: it must not be lost
    extra.write_text("mine")
    again = train(configure(reviews, max_epochs=2), tmp_path / "run", on_step=steps.append)
    assert steps == []
    assert extra.exists()
    (first.bundle / "model.safetensors").unlink()
    with pytest.raises(ArtifactError, match="something else than a bundle"):
        train(configure(reviews, max_epochs=2), tmp_path / "run")
    assert extra.exists()
    extra.unlink()
    repaired = train(configure(reviews, max_epochs=2), tmp_path / "run")
    load_network(repaired.bundle)
    assert again.history == first.history
    with pytest.raises(ConfigError, match="another configuration"):
        train(configure(reviews, max_epochs=3), tmp_path / "run")


def test_data_without_labels_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("text,aspect,polarity\n" + "".join(f"text {n},,\n" for n in range(20)))
    with pytest.raises((DataError, ConfigError)):
        prepare_data(configure(path).data)
    validation = write_reviews(tmp_path / "validation.csv", 30)
    with pytest.raises(DataError, match="0 for validation"):
        prepare_data(run_config({"data": {"train": str(validation), "validation": str(path)}}).data)


def test_vocabulary_excludes_the_validation_set(tmp_path: Path) -> None:
    train_file, validation_file = tmp_path / "a.csv", tmp_path / "b.csv"
    train_file.write_text("text,aspect,polarity\ngood soup,soup,positive\n")
    validation_file.write_text("text,aspect,polarity\nunheard soup,soup,positive\n")
    data = run_config({"data": {"train": str(train_file), "validation": str(validation_file)}}).data
    assert prepare_data(data).vocabulary.tokenizer.vocabulary() == [
        "[PAD]",
        "[UNK]",
        "good",
        "soup",
    ]


def test_pretrained_vectors_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = write_reviews(tmp_path / "a.csv", 40)
    glove = tmp_path / "glove.txt"
    glove.write_text("soup 1 2 3\nother 4 5 6\n")
    prepared = prepare_data(run_config({"data": {"train": str(data), "vectors": str(glove)}}).data)
    words = prepared.vocabulary.tokenizer.vocabulary()
    assert prepared.vocabulary.vectors[words.index("soup")].tolist() == [1, 2, 3]
    assert prepared.vocabulary.vectors[words.index("other")].tolist() == [4, 5, 6]
    assert prepared.vocabulary.vectors[0].tolist() == [0, 0, 0]
    assert words.index("other") >= prepared.vocabulary.num_trained > words.index("soup")


def test_vocabulary_is_bounded_and_matches_other_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = write_reviews(tmp_path / "a.csv", 40)
    glove = tmp_path / "glove.txt"
    glove.write_text("first 9 9\nSecond 8 8\nSOUP 1 2\nlast 7 7\n")
    settings = {"train": str(data), "vectors": str(glove), "max_vector_words": 2}
    prepared = prepare_data(run_config({"data": settings}).data)
    words = prepared.vocabulary.tokenizer.vocabulary()
    assert prepared.vocabulary.vectors[words.index("soup")].tolist() == [1, 2]
    assert prepared.vocabulary.vectors[words.index("second")].tolist() == [8, 8]
    assert "last" not in words
    glove.write_text("NOTHING 1 2\n")
    prepared = prepare_data(run_config({"data": settings | {"max_vector_words": 0}}).data)
    assert prepared.vocabulary.vectors.shape[1] == 2
    assert prepared.vocabulary.vectors[2:].std() > 0.2


def command(data: Path, out: Path, *settings: str, ranks: int = 0, restarts: int = 0) -> list[str]:
    launcher = [sys.executable]
    if ranks:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        launcher += ["--max-restarts", str(restarts)]
    sizes = [f"--set=model.{name}={value}" for name, value in SIZES.items()]
    options = ["--set=data.word_dim=24", "--set=train.learning_rate=0.01", *sizes]
    options += [f"--set={setting}" for setting in settings]
    return [*launcher, "-m", "capsar", "train", "--data", str(data), "--out", str(out),
            "--threads", "1", *options]  # fmt: skip


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run(arguments: list[str]) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def wait_for(condition: object, process: subprocess.Popen[bytes], seconds: float = 120) -> bool:
    """Wait until a condition holds; false if the process ends before."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return True


@pytest.mark.parametrize("names", ["review,aspect,polarity", "text,aspect,label"])
def test_wrong_columns_are_reported_before_torch_is_imported(tmp_path: Path, names: str) -> None:
    data = tmp_path / "wrong.csv"
    data.write_text(f"{names}\nThe soup was cold.,soup,negative\n")
    code = "import sys; sys.modules['torch'] = None; from capsar.__main__ import main; main()"
    options = ["train", "--data", str(data), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    columns = str(names.split(","))
    option = "--text-column" if "review" in names else "--polarity-column"
    assert columns in done.stderr
    assert option in done.stderr


def losses(folder: Path) -> list[float]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def newest_step(folder: Path) -> int:
    steps = [int(path.name[5:]) for path in folder.glob("checkpoints/step-*")]
    return max(steps, default=0)


@pytest.mark.slow
def test_run_killed_five_times_is_bit_exact(reviews: Path, tmp_path: Path) -> None:
    settings = ["train.max_epochs=40", "train.patience=40"]
    run(command(reviews, tmp_path / "whole", *settings))
    generator = random.Random(5)
    kills = 0
    while kills < 5:
        process = subprocess.Popen(
            command(reviews, tmp_path / "killed", *settings),
            env=ENVIRONMENT,
            stderr=subprocess.DEVNULL,
        )
        target = newest_step(tmp_path / "killed") + generator.randint(3, 30)
        running = wait_for(lambda t=target: newest_step(tmp_path / "killed") >= t, process)
        assert running, "the run ended before it could be killed five times"
        time.sleep(generator.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    run(command(reviews, tmp_path / "killed", *settings))
    whole, killed = (
        load_file(tmp_path / name / "bundle" / "model.safetensors") for name in ("whole", "killed")
    )
    assert set(whole) == set(killed)
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "killed")]
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_two_processes_equal_one_and_survive_a_kill(reviews: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    code = "from capsar.training.trainer import make_accelerator; print(make_accelerator().state)"
    joined = [*launcher, "--nproc-per-node", "2", "--no-python", sys.executable, "-c", code]
    assert subprocess.check_output(joined, text=True, env=ENVIRONMENT).count("processes: 2") == 2
    # The last batch has an odd size: its halves differ.
    settings = ["model.input_dropout=0", "train.max_epochs=6", "train.patience=9",
                "train.batch_size=31"]  # fmt: skip
    run(command(reviews, tmp_path / "one", *settings))
    run(command(reviews, tmp_path / "two", *settings, ranks=2))
    curves = [
        [
            json.loads(line)["loss"]
            for line in (tmp_path / name / "log.jsonl").read_text().splitlines()
        ]
        for name in ("one", "two")
    ]
    assert len(curves[0]) == len(curves[1]) == 6
    assert max(abs(a - b) for a, b in zip(*curves, strict=True)) < 1e-4

    out = tmp_path / "killed"
    messages = tmp_path / "messages"
    with messages.open("wb") as stream:
        process = subprocess.Popen(
            command(reviews, out, *settings, ranks=2, restarts=3), env=ENVIRONMENT, stderr=stream
        )
    assert wait_for(lambda: newest_step(out) >= 10, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    assert process.wait(timeout=240) == 0
    assert "exitcode: -9" in messages.read_text()
    assert "Resuming after step" in messages.read_text()  # it was restarted
    assert max(abs(a - b) for a, b in zip(losses(out), curves[1], strict=True)) < 1e-6
    # An ablation has parameters without a gradient, which DDP must not wait for.
    run(command(reviews, tmp_path / "no-r", *settings, "model.reconstruction_weight=0", ranks=2))
    two, killed = (
        load_file(folder / "bundle" / "model.safetensors") for folder in (tmp_path / "two", out)
    )
    for name in two:
        torch.testing.assert_close(killed[name], two[name], atol=1e-6, rtol=0)


@pytest.mark.slow
def test_full_disk_stops_a_run_which_can_be_resumed(
    reviews: Path, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("100m")
    settings = configure(reviews, max_epochs=4)
    filler = disk / "filler"

    def fill(info: object) -> None:
        if info.validation is not None and not filler.exists():  # type: ignore[attr-defined]
            free = shutil.disk_usage(disk).free
            filler.write_bytes(b"x" * (free - 4096))

    with pytest.raises(ArtifactError, match=r"Cannot write the checkpoint.*No space left"):
        train(settings, disk / "run", on_step=fill)
    filler.unlink()
    resumed = train(settings, disk / "run")
    whole = train(settings, tmp_path / "whole")
    assert resumed.history == whole.history


def test_constant_predictions_do_not_stop_a_run() -> None:
    train_config = TrainConfig(max_epochs=9, patience=2)
    truth = np.array([0, 1, 2, 2])
    constant = ValidationMetrics(compute_metrics(truth, np.array([2, 2, 2, 2])))
    learning = ValidationMetrics(compute_metrics(truth, np.array([0, 2, 2, 2])))
    progress = Progress()
    for _ in range(5):
        end_epoch(progress, constant, 1, train_config)
        assert not progress.finished
    assert end_epoch(progress, learning, 1, train_config)
    end_epoch(progress, learning, 1, train_config)
    assert not progress.finished
    end_epoch(progress, learning, 1, train_config)
    assert progress.finished
    assert progress.best_epoch == 5
    never = Progress()
    for _ in range(9):
        assert not never.finished
        end_epoch(never, constant, 1, train_config)
    assert never.finished


def test_selection_of_the_last_epoch() -> None:
    settings = TrainConfig(max_epochs=4, patience=1, checkpoint_selection="last")
    truth = np.array([0, 1, 2, 2])
    good, bad = (
        ValidationMetrics(compute_metrics(truth, np.array(row)))
        for row in ([0, 1, 2, 2], [0, 2, 2, 2])
    )
    progress = Progress()
    assert all(end_epoch(progress, metrics, 1, settings) for metrics in (bad, good, bad))
    assert not progress.finished
    assert end_epoch(progress, bad, 1, settings)
    assert progress.finished
    assert progress.best_epoch == 3
    assert [round(entry["validation_accuracy"], 2) for entry in progress.history] == [
        0.75,
        1,
        0.75,
        0.75,
    ]


def test_score_is_the_mean_of_macro_f1_and_span_f1() -> None:
    metrics = PolarityMetrics(1, 0.5, 0.6, {}, ((1, 0), (0, 1)))
    assert ValidationMetrics(metrics).score == 0.6
    assert ValidationMetrics(metrics, span_f1=0.8).score == pytest.approx(0.7)
    progress = Progress()
    for span_f1, best in ((0.8, True), (0.7, False), (0.9, True)):
        assert end_epoch(progress, ValidationMetrics(metrics, span_f1), 1, TrainConfig()) is best
    assert [entry["validation_span_f1"] for entry in progress.history] == [0.8, 0.7, 0.9]
