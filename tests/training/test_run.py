"""Whole runs: train, evaluate, stop and go on, one process or two, killed or not."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from reviews import write_reviews
from safetensors.torch import load_file

from capsar.config import RunConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError, DataError
from capsar.evaluation.evaluate import evaluate
from capsar.training.predictor import NetworkPredictor
from capsar.training.run import load_network, prepare_data, train

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
            "data": {"train": str(data), "word_dim": 24, "dev_share": 0.2},
            "model": dict(SIZES),
            "train": settings,
        }
    )


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews.csv", 400)


def test_a_run_learns_saves_and_is_judged(reviews: Path, tmp_path: Path) -> None:
    steps = []
    result = train(configure(reviews), tmp_path / "run", on_step=steps.append)
    assert result.dev["dev_accuracy"] > 0.9
    assert [entry["epoch"] for entry in result.history] == list(range(len(result.history)))
    assert steps[-1].dev is not None
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert log == result.history
    assert list((tmp_path / "run" / "events").iterdir())
    held_out = write_reviews(tmp_path / "held-out.csv", 100, seed=9)
    predictor = NetworkPredictor(*load_network(result.bundle))
    examples = list(read_examples(held_out))
    assert evaluate(predictor, examples).figures.accuracy > 0.85
    # The bundle holds the best epoch, not the last.
    dev = prepare_data(configure(reviews).data).dev
    best = evaluate(predictor, dev).figures
    assert best.macro_f1 == pytest.approx(result.dev["dev_macro_f1"])
    card = (result.bundle / "README.md").read_text()
    assert "reviews.csv" in card
    assert str(tmp_path) not in card
    assert f"{result.dev['dev_macro_f1']:.4f}" in card


def test_answers_do_not_depend_on_order_or_neighbours(reviews: Path, tmp_path: Path) -> None:
    result = train(configure(reviews, max_epochs=1), tmp_path / "run")
    model, tokenizer = load_network(result.bundle)
    examples = list(read_examples(reviews))[:50]
    whole = NetworkPredictor(model, tokenizer).predict_lengths(examples)
    singly = NetworkPredictor(model, tokenizer, batch_size=1).predict_lengths(examples[::-1])[::-1]
    assert abs(whole - singly).max() < 1e-5


def test_training_stops_when_dev_no_longer_improves(reviews: Path, tmp_path: Path) -> None:
    settings = configure(reviews, max_epochs=50, patience=2, learning_rate=1e-9)
    result = train(settings, tmp_path / "run")
    assert len(result.history) == result.best_epoch + 3


def test_options_of_training_work(reviews: Path, tmp_path: Path) -> None:
    settings = configure(
        reviews, max_epochs=6, no_aspect_share=0.5, clip_norm=1.0, mixed_precision="bf16"
    )
    result = train(settings, tmp_path / "run")
    assert result.dev["dev_accuracy"] > 0.5
    model, _ = load_network(result.bundle)
    assert model.word_vectors.dtype == torch.float32


def test_a_finished_run_is_not_run_again_and_another_is_not_mixed_with_it(
    reviews: Path, tmp_path: Path
) -> None:
    first = train(configure(reviews, max_epochs=2), tmp_path / "run")
    steps = []
    again = train(configure(reviews, max_epochs=2), tmp_path / "run", on_step=steps.append)
    assert steps == []
    assert again.history == first.history
    with pytest.raises(ConfigError, match="another configuration"):
        train(configure(reviews, max_epochs=3), tmp_path / "run")


def test_data_without_anything_to_learn_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("text,aspect,polarity\n" + "".join(f"text {n},,\n" for n in range(20)))
    with pytest.raises((DataError, ConfigError)):
        prepare_data(configure(path).data)
    dev = write_reviews(tmp_path / "dev.csv", 30)
    with pytest.raises(DataError, match="0 to choose the epoch on"):
        prepare_data(run_config({"data": {"train": str(dev), "dev": str(path)}}).data)


def test_the_vocabulary_never_sees_the_dev_part(tmp_path: Path) -> None:
    train_file, dev_file = tmp_path / "a.csv", tmp_path / "b.csv"
    train_file.write_text("text,aspect,polarity\ngood soup,soup,positive\n")
    dev_file.write_text("text,aspect,polarity\nunheard soup,soup,positive\n")
    data = run_config({"data": {"train": str(train_file), "dev": str(dev_file)}}).data
    assert prepare_data(data).tokenizer.vocabulary() == ["[PAD]", "[UNK]", "good", "soup"]


def test_vectors_are_taken_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = write_reviews(tmp_path / "a.csv", 40)
    glove = tmp_path / "glove.txt"
    glove.write_text("soup 1 2 3\nunseen 4 5 6\n")
    prepared = prepare_data(run_config({"data": {"train": str(data), "vectors": str(glove)}}).data)
    words = prepared.tokenizer.vocabulary()
    assert prepared.vectors[words.index("soup")].tolist() == [1, 2, 3]
    assert prepared.vectors[words.index("unseen")].tolist() == [4, 5, 6]
    assert prepared.vectors[0].tolist() == [0, 0, 0]
    assert words.index("unseen") >= prepared.num_trained > words.index("soup")


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


def losses(folder: Path) -> list[float]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def newest_step(folder: Path) -> int:
    steps = [int(path.name[5:]) for path in folder.glob("checkpoints/step-*")]
    return max(steps, default=0)


@pytest.mark.slow
def test_killed_at_five_random_moments_a_run_ends_bit_for_bit_the_same(
    reviews: Path, tmp_path: Path
) -> None:
    settings = ["train.max_epochs=40", "train.patience=40", "train.checkpoint_steps=2"]
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
def test_two_processes_learn_what_one_does_and_survive_a_kill(
    reviews: Path, tmp_path: Path
) -> None:
    # 400 examples less dev make batches whose last one is odd: its halves differ in size.
    settings = ["model.input_dropout=0", "train.max_epochs=6", "train.patience=9",
                "train.batch_size=31", "train.checkpoint_steps=2"]  # fmt: skip
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
    process = subprocess.Popen(
        command(reviews, out, *settings, ranks=2, restarts=3),
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    assert wait_for(lambda: newest_step(out) >= 10, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    assert process.wait(timeout=240) == 0
    assert max(abs(a - b) for a, b in zip(losses(out), curves[1], strict=True)) < 1e-6
    two, killed = (
        load_file(folder / "bundle" / "model.safetensors") for folder in (tmp_path / "two", out)
    )
    for name in two:
        torch.testing.assert_close(killed[name], two[name], atol=1e-6, rtol=0)


@pytest.mark.slow
def test_a_full_disk_stops_a_run_which_goes_on_when_there_is_room(
    reviews: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], check=True)
    try:
        settings = configure(reviews, max_epochs=4)
        filler = disk / "filler"

        def fill(info: object) -> None:
            if info.dev is not None and not filler.exists():  # type: ignore[attr-defined]
                free = shutil.disk_usage(disk).free
                filler.write_bytes(b"x" * (free - 4096))

        with pytest.raises(ArtifactError, match=r"Cannot write the checkpoint.*No space left"):
            train(settings, disk / "run", on_step=fill)
        filler.unlink()
        resumed = train(settings, disk / "run")
        whole = train(settings, tmp_path / "whole")
        assert resumed.history == whole.history
    finally:
        subprocess.run(["umount", disk], check=True)
