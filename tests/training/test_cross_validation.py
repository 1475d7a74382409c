"""Test cross-validation: no network predicts its training data, and the result is a plain run's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from interrupted import InterruptError
from safetensors.torch import load_file
from synthetic_reviews import write_reviews

from capsar import load
from capsar.config import RunConfig, run_config
from capsar.errors import ConfigError
from capsar.training.cross_validation import CrossValidated, cross_validate
from capsar.training.dataset import read_splits
from capsar.training.initialize import fine_tune_settings, load_network
from capsar.training.loop import StepInfo
from capsar.training.trainer import TrainResult, make_accelerator, train
from capsar.training.validation import NetworkPredictor

FOLDS = 3
SIZES = {"units": 12, "primary_dim": 8, "intermediate_capsules": 6, "intermediate_dim": 8}
SIZES |= {"class_dim": 12}


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reviews(tmp_path_factory.mktemp("data") / "reviews.csv", 120)


def configure(reviews: Path, span_weight: float = 0.0, **data: object) -> RunConfig:
    train_settings = {"learning_rate": 0.02, "max_epochs": 5, "patience": 3, "ema_decay": 0.9}
    return run_config({
        "data": {"train": str(reviews), "word_dim": 12, "folds": FOLDS} | data,
        "model": SIZES | {"span_weight": span_weight},
        "train": train_settings | {"batch_size": 16},
    })  # fmt: skip


@pytest.fixture(scope="module")
def steps() -> list[StepInfo]:
    """The steps of the trained run."""
    return []


@pytest.fixture(scope="module")
def trained(
    reviews: Path, steps: list[StepInfo], tmp_path_factory: pytest.TempPathFactory
) -> TrainResult:
    return train(configure(reviews), tmp_path_factory.mktemp("run"), on_step=steps.append)


@pytest.fixture(scope="module")
def validated(reviews: Path, tmp_path_factory: pytest.TempPathFactory) -> CrossValidated:
    folder = tmp_path_factory.mktemp("folds")
    return cross_validate(configure(reviews), folder, make_accelerator(), None)


def plain(run: RunConfig, epochs: int, **data: object) -> RunConfig:
    """Return the run without a validation set that trains for this many epochs."""
    whole = replace(run.data, folds=0, validation_ratio=0.0, **data)  # type: ignore[arg-type]
    return replace(run, data=whole, train=replace(run.train, max_epochs=epochs))


def test_folds_partition_the_examples(reviews: Path) -> None:
    data = configure(reviews).data
    everything = read_splits(data)
    folds = [read_splits(data, fold) for fold in range(FOLDS)]
    held = [example for part in folds for example in part.validation]
    assert not everything.validation
    assert sorted(e.text for e in held) == sorted(e.text for e in everything.train)
    for part in folds:
        assert not {e.text for e in part.validation} & {e.text for e in part.train}
        assert len(part.validation) + len(part.train) == len(everything.train)


def test_final_network_equals_a_plain_run(
    reviews: Path, trained: TrainResult, tmp_path: Path
) -> None:
    epochs = trained.best_epoch + 1
    expected = train(plain(configure(reviews), epochs), tmp_path / "plain")
    ours, theirs = (load_file(r.bundle / "model.safetensors") for r in (trained, expected))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_predictions_are_those_of_networks_not_trained_on_the_sentence(
    reviews: Path, trained: TrainResult, validated: CrossValidated, tmp_path: Path
) -> None:
    """Remove the rows of a fold from the file, and train a plain run on the rest."""
    run, epochs = configure(reviews), validated.progress.best_epoch + 1
    for fold in range(FOLDS):
        validation = read_splits(run.data, fold).validation
        held = {example.text for example in validation}
        lines = reviews.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not any(text in line for text in held)]
        others = tmp_path / f"{fold}.csv"
        others.write_text("".join(kept), encoding="utf-8")
        twin = train(plain(run, epochs, train=str(others)), tmp_path / str(fold))
        expected = NetworkPredictor(*load_network(twin.bundle)).predict_lengths(validation)
        found = validated.validation_set.predictor.predict_lengths(validation)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert trained.history == validated.progress.history


def test_epoch_and_calibration_use_all_examples(reviews: Path, trained: TrainResult) -> None:
    number = len(read_splits(configure(reviews).data).train)
    config = json.loads((trained.bundle / "config.json").read_text())
    assert sum(map(sum, config["validation_confusion"])) == number
    assert config["validation"] == trained.validation == trained.history[trained.best_epoch]
    scores = [entry["validation_macro_f1"] for entry in trained.history]
    assert scores.index(max(scores)) == trained.best_epoch
    assert config["trained_on"]["folds"] == FOLDS
    assert config["trained_on"]["train_examples"] == number
    prediction = load(trained.bundle).classify(["The soup was great."], [["soup"]])[0][0]
    assert prediction.confidence is not None
    card = (trained.bundle / "README.md").read_text()
    assert f"all examples, by {FOLDS}-fold cross-validation" in card
    assert f"one of {FOLDS} networks with the same settings" in card


@pytest.mark.parametrize("at", [4, 40, -2], ids=["first epoch", "later", "final network"])
def test_resumed_run_equals_uninterrupted_run(
    at: int, reviews: Path, trained: TrainResult, steps: list[StepInfo], tmp_path: Path
) -> None:
    left = at if at > 0 else len(steps) + at

    def stop(info: StepInfo) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise InterruptError

    with pytest.raises(InterruptError):
        train(configure(reviews), tmp_path / "run", on_step=stop)
    resumed = train(configure(reviews), tmp_path / "run")
    assert resumed.history == trained.history
    for name in ("model.safetensors", "config.json"):
        ours, theirs = (r.bundle / name for r in (resumed, trained))
        assert ours.read_bytes() == theirs.read_bytes()


def test_finished_run_is_not_trained_again(trained: TrainResult, reviews: Path) -> None:
    calls: list[StepInfo] = []
    again = train(configure(reviews), trained.bundle.parent, on_step=calls.append)
    assert not calls
    assert again.history == trained.history


def test_changed_data_is_detected(trained: TrainResult, tmp_path: Path) -> None:
    other = write_reviews(tmp_path / "other.csv", 120, seed=1)
    with pytest.raises(ConfigError, match="another configuration or other data"):
        train(configure(other), trained.bundle.parent)


def test_extraction_head_is_validated_on_all_sentences(reviews: Path, tmp_path: Path) -> None:
    run = configure(reviews, 1.0)
    result = train(run, tmp_path / "run")
    config = json.loads((result.bundle / "config.json").read_text())
    assert "validation_span_f1" in result.validation
    assert config["validation_spans"]["num_sentences"] == len(read_splits(run.data).train_sentences)
    assert "aspect" in config["calibration"]


def test_fine_tuning_with_folds(
    reviews: Path, trained: TrainResult, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sections = fine_tune_settings(str(trained.bundle))
    sections["data"] = {"train": str(reviews), "folds": 2}
    sections["train"] |= {"max_epochs": 1}
    caplog.set_level("INFO")
    result = train(run_config(sections), tmp_path / "run")
    assert len(result.history) == 1
    assert "before fine-tuning: validation accuracy" in caplog.text
    assert "on all examples for 1 epochs" in caplog.text
    ours, before = (load_file(b / "model.safetensors") for b in (result.bundle, trained.bundle))
    assert any(not torch.equal(ours[name], before[name]) for name in before)


def test_invalid_fold_settings_are_rejected(reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folds must be 0, or at least 2"):
        configure(reviews, folds=1)
    with pytest.raises(ConfigError, match=r"folds must be 0 with data\.validation"):
        configure(reviews, validation=str(reviews))
    with pytest.raises(ConfigError, match="cannot be split into 1000 folds"):
        train(configure(reviews, folds=1000), tmp_path / "many")
    several = SimpleNamespace(num_processes=2)
    with pytest.raises(ConfigError, match="single process"):
        cross_validate(configure(reviews), tmp_path, several, None)
