"""Test the optimizer, the learning-rate schedule and training of transformers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from interrupted import assert_resumes_exactly
from synthetic_reviews import write_reviews
from test_network import examples, network
from tiny_bert import write_tiny_bert

from capsar.bundle import open_bundle
from capsar.config import RunConfig, TrainConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError
from capsar.model.losses import TARGET_NORM
from capsar.model.network import Capsar
from capsar.training.batches import collate
from capsar.training.dataset import prepare_data
from capsar.training.initialize import aspect_norm, load_network, new_network
from capsar.training.optim import freeze_layers, make_optimizer, make_scheduler, warmup_factor
from capsar.training.trainer import export_bundle, train
from capsar.training.validation import NetworkPredictor

SIZES = {"primary_dim": 8, "intermediate_capsules": 4, "intermediate_dim": 8, "class_dim": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_tiny_bert(folder / "tiny-bert", window=64)
    write_reviews(folder / "reviews.csv", 200)
    return folder


def configure(folder: Path, model: dict[str, object] | None = None, **train: object) -> RunConfig:
    settings = {"learning_rate": 0.01, "encoder_learning_rate": 0.002, "batch_size": 32}
    return run_config(
        {
            "data": {"train": str(folder / "reviews.csv"), "validation_ratio": 0.2},
            "model": SIZES | {"encoder": str(folder / "tiny-bert")} | (model or {}),
            "train": settings | {"max_epochs": 2, "warmup_ratio": 0.2} | train,
        }
    )


def test_defaults_equal_plain_adam_exactly() -> None:
    models = [network().train(), network().train()]
    plain = torch.optim.Adam(
        (p for p in models[0].parameters() if p.requires_grad), lr=1e-3, fused=True
    )
    ours = make_optimizer(models[1], TrainConfig())
    assert type(ours) is torch.optim.Adam
    scheduler = make_scheduler(ours, TrainConfig(), num_steps=10)
    for step in range(5):
        for model, optimizer in zip(models, (plain, ours), strict=True):
            torch.manual_seed(step)
            batch = collate(examples(8, seed=step))
            model.loss(batch, model(batch)).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        scheduler.step()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_layer_decay_and_weight_decay_groups(folder: Path) -> None:
    config = configure(folder, weight_decay=0.1, layer_decay=0.5)
    prepared = prepare_data(config.data, config.model)
    model = new_network(config.model, prepared.vocabulary)
    optimizer = make_optimizer(model, config.train)
    assert type(optimizer) is torch.optim.AdamW
    names = {id(p): name for name, p in model.named_parameters()}
    rates, decays = {}, {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            rates[names[id(parameter)]] = group["lr"]
            decays[names[id(parameter)]] = group["weight_decay"]
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert set(rates) == trainable
    assert "encoder.model.embeddings.word_embeddings.weight" not in trainable
    for name, rate in rates.items():
        below = {"encoder.model.encoder.layer.1": 0, "encoder.model.encoder.layer.0": 1}
        depth = next((d for start, d in below.items() if name.startswith(start)), 2)
        expected = 0.002 * 0.5**depth if name.startswith("encoder.") else 0.01
        assert rate == pytest.approx(expected), name
        no_decay = name.endswith("bias") or "LayerNorm" in name
        assert decays[name] == (0 if no_decay else 0.1), name


def test_frozen_layers_are_not_trained(folder: Path) -> None:
    config = configure(folder)
    model = new_network(config.model, prepare_data(config.data, config.model).vocabulary)
    freeze_layers(model, 1)
    optimizer = make_optimizer(model, config.train)
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    frozen = {n for n, p in model.named_parameters() if id(p) not in trained}
    assert {n for n, p in model.named_parameters() if not p.requires_grad} == frozen
    assert all(".embeddings." in name or ".layer.0." in name for name in frozen)
    assert any(".layer.0." in name for name in frozen)


def test_warmup_and_linear_decay() -> None:
    factors = [warmup_factor(step, 100, 0.1) for step in range(101)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1
    assert factors[100] == 0
    assert all(one >= other for one, other in pairwise(factors[10:]))
    assert warmup_factor(150, 100, 0.1) == 0
    config = TrainConfig(warmup_ratio=0.1)
    for step in (0, 3, 50, 99):  # as after resuming at that step
        optimizer = make_optimizer(network(), config)
        make_scheduler(optimizer, config, num_steps=100, step=step)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(
            1e-3 * warmup_factor(step, 100, 0.1)
        )


@pytest.mark.parametrize(
    "model",
    [{}, {"head": "bert-pair", "aspect_encoding": "pair"}],
    ids=["capsules", "bert-pair"],
)
def test_resumed_run_equals_uninterrupted_run(
    folder: Path, tmp_path: Path, model: dict[str, object]
) -> None:
    run = configure(folder, model, weight_decay=0.05, layer_decay=0.9)
    whole = assert_resumes_exactly(run, tmp_path, at=7)
    for name in ("README.md", "config.json"):
        assert str(folder) not in (whole.bundle / name).read_text()
    assert open_bundle(whole.bundle).config["model"]["encoder"] == "tiny-bert"


def test_baseline_bundle_has_no_graphs(folder: Path, tmp_path: Path) -> None:
    import capsar

    model = {"head": "bert-pair", "aspect_encoding": "pair"}
    result = train(configure(folder, model, max_epochs=1), tmp_path / "run")
    predictor = NetworkPredictor(*load_network(result.bundle))
    held_out = list(read_examples(folder / "reviews.csv"))[:20]
    assert predictor.predict_lengths(held_out).sum(1) == pytest.approx([1] * 20, abs=1e-5)
    with pytest.raises(ArtifactError, match=r"has no encoder\.onnx"):
        capsar.load(result.bundle)
    with pytest.raises(ConfigError, match="a baseline"):
        export_bundle(result.bundle, tmp_path / "out")


def test_reconstruction_targets_have_the_target_norm(folder: Path) -> None:
    config = configure(folder)
    prepared = prepare_data(config.data, config.model)
    norm = aspect_norm(
        prepared.splits.train, prepared.vocabulary.tokenizer, prepared.vocabulary.vectors
    )
    assert norm * prepared.vocabulary.scale == pytest.approx(TARGET_NORM)
    model = new_network(config.model, prepared.vocabulary)
    assert isinstance(model, Capsar)
    table = model.embed(torch.arange(len(prepared.vocabulary.vectors)))
    scaled = aspect_norm(prepared.splits.train, prepared.vocabulary.tokenizer, table)
    assert scaled == pytest.approx(TARGET_NORM, abs=1e-4)


@pytest.mark.data
def test_target_norm_is_that_of_glove() -> None:
    settings = {"train": "semeval14-restaurants", "vectors": "glove.840B.300d.subset"}
    prepared = prepare_data(run_config({"data": settings}).data)
    norm = aspect_norm(
        prepared.splits.train, prepared.vocabulary.tokenizer, prepared.vocabulary.vectors
    )
    assert norm == pytest.approx(TARGET_NORM, abs=0.005)


def test_bf16_trains_a_transformer(folder: Path, tmp_path: Path) -> None:
    result = train(
        configure(folder, max_epochs=1, mixed_precision="bf16", aspect_dropout=0.5), tmp_path / "r"
    )
    model, _ = load_network(result.bundle)
    assert all(p.dtype == torch.float32 for p in model.parameters())
