"""Who learns how fast: layer by layer, step by step, and as before where nothing is asked for."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from made_reviews import write_reviews
from stopped import assert_goes_on_alike
from test_network import examples, network
from tiny_bert import write_tiny_bert

from capsar.bundle import open_bundle
from capsar.config import RunConfig, TrainConfig, run_config
from capsar.data.readers import read_examples
from capsar.errors import ArtifactError, ConfigError
from capsar.model.network import Capsar
from capsar.training.batches import collate
from capsar.training.networks import new_network
from capsar.training.optimizer import make_optimizer, schedule, set_rates
from capsar.training.predictor import NetworkPredictor
from capsar.training.prepare import prepare_data
from capsar.training.run import export_bundle, load_network, train
from capsar.training.vocabulary import aspect_norm

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
            "data": {"train": str(folder / "reviews.csv"), "dev_share": 0.2},
            "model": SIZES | {"encoder": str(folder / "tiny-bert")} | (model or {}),
            "train": settings | {"max_epochs": 2, "warmup_share": 0.2} | train,
        }
    )


def test_defaults_are_plain_adam_to_the_bit() -> None:
    models = [network().train(), network().train()]
    plain = torch.optim.Adam(
        (p for p in models[0].parameters() if p.requires_grad), lr=1e-3, fused=True
    )
    ours = make_optimizer(models[1], TrainConfig())
    assert type(ours) is torch.optim.Adam
    for step in range(5):
        set_rates(ours, TrainConfig(), step, 10)
        for model, optimizer in zip(models, (plain, ours), strict=True):
            torch.manual_seed(step)
            batch = collate(examples(8, seed=step))
            model.loss(batch, model(batch)).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_lower_layers_learn_slower_and_vectors_do_not_decay(folder: Path) -> None:
    config = configure(folder, weight_decay=0.1, layer_decay=0.5)
    prepared = prepare_data(config.data, config.model)
    model = new_network(config.model, prepared)
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


def test_rates_rise_and_fall_as_a_function_of_the_step() -> None:
    factors = [schedule(step, 100, 0.1) for step in range(101)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1
    assert factors[100] == 0
    assert all(one >= other for one, other in pairwise(factors[10:]))
    assert schedule(150, 100, 0.1) == 0
    optimizer = make_optimizer(network(), TrainConfig(warmup_share=0.1))
    for step in (99, 3, 50):  # whatever was before
        set_rates(optimizer, TrainConfig(warmup_share=0.1), step, 100)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * schedule(step, 100, 0.1))


@pytest.mark.parametrize(
    "model", [{}, {"freeze_embeddings": False}, {"head": "first-token", "aspect_entry": "pair"}],
    ids=["capsules", "trained table", "first token"],
)  # fmt: skip
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    folder: Path, tmp_path: Path, model: dict[str, object]
) -> None:
    run = configure(folder, model, checkpoint_steps=2, weight_decay=0.05, layer_decay=0.9)
    whole = assert_goes_on_alike(run, tmp_path, at=3)
    for name in ("README.md", "config.json"):
        assert str(folder) not in (whole.bundle / name).read_text()
    assert open_bundle(whole.bundle).config["model"]["encoder"] == "tiny-bert"


def test_the_baseline_is_a_bundle_without_graphs(folder: Path, tmp_path: Path) -> None:
    import capsar

    model = {"head": "first-token", "aspect_entry": "pair"}
    result = train(configure(folder, model, max_epochs=1), tmp_path / "run")
    predictor = NetworkPredictor(*load_network(result.bundle))
    held_out = list(read_examples(folder / "reviews.csv"))[:20]
    assert predictor.predict_lengths(held_out).sum(1) == pytest.approx([1] * 20, abs=1e-5)
    with pytest.raises(ArtifactError, match=r"has no encoder\.onnx"):
        capsar.load(result.bundle)
    with pytest.raises(ConfigError, match="a baseline"):
        export_bundle(result.bundle, tmp_path / "out")


def test_the_target_has_the_norm_that_was_asked_for(folder: Path) -> None:
    config = configure(folder, {"target_norm": 2.5})
    prepared = prepare_data(config.data, config.model)
    norm = aspect_norm(prepared.train, prepared.tokenizer, prepared.vectors)
    assert norm * prepared.vector_scale == pytest.approx(2.5)
    model = new_network(config.model, prepared)
    assert isinstance(model, Capsar)
    table = model.fixed(torch.arange(len(prepared.vectors)))
    scaled = aspect_norm(prepared.train, prepared.tokenizer, table)
    assert scaled == pytest.approx(2.5, abs=1e-4)


@pytest.mark.data
def test_the_default_norm_is_that_of_glove() -> None:
    settings = {"train": "semeval14-restaurants", "vectors": "glove.840B.300d.subset"}
    prepared = prepare_data(run_config({"data": settings}).data)
    norm = aspect_norm(prepared.train, prepared.tokenizer, prepared.vectors)
    assert norm == pytest.approx(run_config({"data": settings}).model.target_norm, abs=0.005)


def test_bf16_trains_a_transformer(folder: Path, tmp_path: Path) -> None:
    result = train(
        configure(folder, max_epochs=1, mixed_precision="bf16", no_aspect_share=0.5), tmp_path / "r"
    )
    model, _ = load_network(result.bundle)
    assert all(p.dtype == torch.float32 for p in model.parameters())
