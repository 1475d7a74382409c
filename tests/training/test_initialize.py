"""Test fine-tuning, from packed bundles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from synthetic_reviews import write_reviews
from tiny_bert import write_tiny_bert

from capsar import load
from capsar.bundle import WEIGHTS, open_bundle
from capsar.config import RunConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError
from capsar.training.initialize import IN_GRAPH, fine_tune_settings, read_weights
from capsar.training.trainer import export_bundle, train
from pretrained.packing import pack_bundle

SIZES = {"units": 32, "primary_dim": 6, "intermediate_capsules": 4, "intermediate_dim": 8}
SIZES |= {"class_dim": 10}


@pytest.fixture(scope="module", params=["bigru", "bert"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed bundle; the one it was packed from is in `run/bundle` beside it."""
    folder = tmp_path_factory.mktemp(request.param)
    model: dict[str, object] = SIZES | {"span_weight": 1.0}
    if request.param == "bert":
        model["encoder"] = str(write_tiny_bert(folder / "tiny-bert"))
    data = write_reviews(folder / "reviews.csv", 120)
    content = {
        "data": {"train": str(data), "word_dim": 12, "validation_ratio": 0.3},
        "model": model,
        "train": {"max_epochs": 4, "encoder_learning_rate": 0.002, "learning_rate": 0.02},
    }
    bundle = train(run_config(content), folder / "run").bundle
    pack_bundle(bundle, folder / "packed", card="# A card", settings={"figures": {"x": 1}})
    return folder / "packed"


def lengths(packed: Path, bundle: Path | None = None) -> np.ndarray:
    """Return the capsule lengths of the training reviews, by the packed bundle or another."""
    examples = list(read_examples(packed.parent / "reviews.csv"))
    return load(bundle or packed).predict_lengths(examples)


def fine_tuning(packed: Path, **settings: object) -> RunConfig:
    sections = fine_tune_settings(str(packed))
    sections["train"] |= {"max_epochs": 1} | settings
    return run_config(sections | {"data": {"train": str(packed.parent / "reviews.csv")}})


def test_packed_bundle_is_smaller_and_predicts_the_same(packed: Path) -> None:
    source, small = open_bundle(packed.parent / "run" / "bundle"), open_bundle(packed)
    np.testing.assert_allclose(lengths(packed), lengths(packed, source.folder), atol=0.03)
    assert sum(small.files.values()) < 0.5 * sum(source.files.values())
    assert small.config["figures"] == {"x": 1}
    assert small.path("README.md").read_text() == "# A card"


def test_every_encoder_matrix_is_stored_once(packed: Path) -> None:
    small = open_bundle(packed)
    whole = load_file(packed.parent / "run" / "bundle" / WEIGHTS)
    own, places = load_file(small.path(WEIGHTS)), small.config[IN_GRAPH]
    assert set(own) | set(places) == set(whole)
    assert not set(own) & set(places)
    table = "word_vectors" if "word_vectors" in whole else "embeddings.word_embeddings.weight"
    assert any(name.endswith(table) for name in places)
    for name, value in read_weights(small).items():
        assert value.shape == whole[name].shape, name
        near = np.abs(whole[name]).max(initial=1e-6) / 100
        np.testing.assert_allclose(value.numpy(), whole[name], atol=near, err_msg=name)


def test_fine_tuning_with_a_zero_rate_changes_nothing(
    packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights, vocabulary and sizes of the initial model are kept."""
    config = fine_tuning(packed, learning_rate=1e-12, encoder_learning_rate=1e-12)
    result = train(config, tmp_path / "same")
    np.testing.assert_allclose(lengths(packed, result.bundle), lengths(packed), atol=1e-3)
    assert "If not every aspect is marked, use --partial-labels" in caplog.text
    facts = open_bundle(result.bundle).config["trained_on"]
    assert facts["init_from"] == "packed"
    card = (result.bundle / "README.md").read_text()
    assert "fine-tuned from | packed, trained on reviews.csv" in card
    assert str(packed.parent) not in card + str(open_bundle(result.bundle).config)


def test_fine_tuning_learns_and_can_be_resumed(packed: Path, tmp_path: Path) -> None:
    config = fine_tuning(packed, learning_rate=0.01, max_epochs=2)
    straight = train(config, tmp_path / "straight")
    assert np.abs(lengths(packed) - lengths(packed, straight.bundle)).max() > 0.01

    class StopError(Exception):
        pass

    def stop(info: object) -> None:
        if info.ends_epoch:  # type: ignore[attr-defined]
            raise StopError

    with pytest.raises(StopError):
        train(config, tmp_path / "stopped", on_step=stop)
    resumed = train(config, tmp_path / "stopped")
    same = lengths(packed, straight.bundle)
    np.testing.assert_array_equal(lengths(packed, resumed.bundle), same)


def test_saved_weights_can_be_averaged_with_the_initial_ones(packed: Path, tmp_path: Path) -> None:
    """A quarter of the initial weights, and three quarters of those without averaging."""
    before = read_weights(open_bundle(packed))
    found = {
        share: train(
            fine_tuning(packed, learning_rate=0.01, initial_weight=share), tmp_path / str(share)
        )
        for share in (0.0, 0.25)
    }
    trained, mean = (read_weights(open_bundle(result.bundle)) for result in found.values())
    assert (
        found[0.25].history[0]["validation_accuracy"]
        == found[0.0].history[0]["validation_accuracy"]
    )
    assert any(not np.allclose(trained[name], before[name], atol=0.01) for name in before)
    for name, value in before.items():
        wanted = 0.25 * value + 0.75 * trained[name]
        np.testing.assert_allclose(mean[name], wanted, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("changed", [{"init_from": ""}, {"folds": 2}])
def test_averaging_needs_one_run_from_an_initial_model(changed: dict[str, object]) -> None:
    content = {"data": {"train": "x.csv"}, "train": {"init_from": "fast", "initial_weight": 0.5}}
    run_config(content)
    section = "data" if "folds" in changed else "train"
    content[section] |= changed
    with pytest.raises(ConfigError, match="initial_weight must be 0 without"):
        run_config(content)


def test_partial_labels_keep_the_extraction_head(
    packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sections = fine_tune_settings(str(packed))
    sections["train"] |= {"max_epochs": 1, "learning_rate": 0.01}
    sections["data"] = {"train": str(packed.parent / "reviews.csv"), "exhaustive": False}
    result = train(run_config(sections), tmp_path / "some")
    assert "--partial-labels" not in caplog.text
    before, after = open_bundle(packed), open_bundle(result.bundle)
    own, old = read_weights(after), read_weights(before)
    for name in old:
        if name.startswith("spans."):
            np.testing.assert_array_equal(own[name], old[name])
    assert any(not np.array_equal(own[name], old[name]) for name in old)
    assert after.config["span_bias"] == before.config["span_bias"]
    assert after.config["calibration"]["aspect"] == before.config["calibration"]["aspect"]
    assert "validation_spans" not in after.config
    with pytest.raises(ConfigError, match="exhaustive must be true"):
        run_config(sections | {"train": {}})


def test_another_network_is_rejected(packed: Path, tmp_path: Path) -> None:
    config = fine_tuning(packed)
    other = replace(config, model=replace(config.model, class_dim=11))
    with pytest.raises(ConfigError, match="class_dim is 10"):
        train(other, tmp_path)


def test_packed_bundle_can_be_exported_again(packed: Path, tmp_path: Path) -> None:
    """Its weights are complete again, whatever names the new graph has."""
    export_bundle(packed, tmp_path / "again")
    again = open_bundle(tmp_path / "again")
    assert IN_GRAPH not in again.config
    assert set(read_weights(again)) == set(read_weights(open_bundle(packed)))
    np.testing.assert_allclose(lengths(packed, again.folder), lengths(packed), atol=1e-3)


def test_model_without_weights_cannot_be_fine_tuned(small_bundle: Path, tmp_path: Path) -> None:
    from capsar.bundle import write_bundle

    bundle = open_bundle(small_bundle)
    names = set(bundle.files) - {WEIGHTS, "config.json"}
    files = {name: bundle.path(name).read_bytes() for name in names}
    write_bundle(tmp_path / "bare", bundle.config, files)
    with pytest.raises(ArtifactError, match="has no weights"):
        fine_tune_settings(str(tmp_path / "bare"))


def test_dropout_and_the_weight_of_reconstruction_may_change(packed: Path, tmp_path: Path) -> None:
    config = fine_tuning(packed, learning_rate=1e-12, encoder_learning_rate=1e-12)
    changes = {"input_dropout": 0.1, "state_dropout": 0.2, "reconstruction_weight": 0.05}
    changed = replace(config, model=replace(config.model, **changes))
    result = train(changed, tmp_path / "changed")
    recorded = open_bundle(result.bundle).config["model"]
    assert {name: recorded[name] for name in changes} == changes
    np.testing.assert_allclose(lengths(packed, result.bundle), lengths(packed), atol=1e-3)
