"""Graphs of transformers against the network, and weights stored in 8 bits."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from test_export import run_network
from test_network import SMALL
from tiny_bert import write_tiny_bert

from capsar.bundle import CAPSULES, ENCODER, TOKENIZER, open_bundle, write_bundle
from capsar.config import ModelConfig
from capsar.inference.engine import Engine
from capsar.inference.inputs import PaddedBatch
from capsar.model.encoders import Transformer, load_pretrained
from capsar.model.network import Batch, Capsar
from capsar.schema import Example, find_mentions
from capsar.tokenizer import SubwordTokenizer, pool_words
from capsar.training.batches import collate, encode_examples
from capsar.training.export import export_capsules, export_encoder, quantize, store_int8

WORDS = ["the", "soup", "battery", "was", "terrible", "great", "!", "Zürich", "n't", "unbelievably"]


def examples(number: int, longest: int = 30) -> list[Example]:
    generator = random.Random(3)
    texts = [
        " ".join(generator.choices(WORDS, k=generator.randint(1, longest))) for _ in range(number)
    ]
    return [Example(text, find_mentions(text, text.split()[0])) for text in [*texts, texts[0] * 9]]


def network(
    encoder: Path, aspect_encoding: str, **sizes: object
) -> tuple[Capsar, SubwordTokenizer, list[Batch]]:
    config = ModelConfig(encoder=str(encoder), aspect_encoding=aspect_encoding, **sizes)  # type: ignore[arg-type]
    pretrained = load_pretrained(config.encoder, reads_aspect=aspect_encoding == "pair")
    torch.manual_seed(0)
    model = Capsar(config, pretrained.table, transformer=pretrained.model, vector_scale=2.0)
    encoded = encode_examples([*examples(12), Example("", ())], pretrained.tokenizer)
    return model.eval(), pretrained.tokenizer, [collate(encoded), collate(encoded[:3])]


def make_engine(
    folder: Path, model: Capsar, tokenizer: SubwordTokenizer, *, store: str = "float32"
) -> Engine:
    graphs = {ENCODER: export_encoder(model), CAPSULES: export_capsules(model)}
    if store == "int8":
        graphs = {name: store_int8(content) for name, content in graphs.items()}
    subwords = {"window": tokenizer.window, "reads_aspect": tokenizer.reads_aspect}
    config = {"store": store, "subwords": subwords}
    write_bundle(folder, config, graphs | {TOKENIZER: tokenizer.content()})
    return Engine(open_bundle(folder))


def check(engine: Engine, model: Capsar, batch: Batch, tolerance: float) -> None:
    ids, words, window = batch.ids.numpy(), batch.words.numpy(), engine.tokenizer.window
    arrays = {"ids": ids, "mask": batch.attention.numpy(), "words": words}
    arrays["segments"] = batch.segments.numpy()
    missing = -ids.shape[1] % window if ids.shape[1] > window else 0
    padded = {
        name: np.pad(array, ((0, 0), (0, missing)), constant_values=-1 if name == "words" else 0)
        for name, array in arrays.items()
    }
    encoded = engine.encode(PaddedBatch(**padded))
    sentence = np.arange(len(ids))
    lengths, similarity, attributions = run_network(model, batch)
    norms = model.embed(batch.ids).norm(dim=-1).detach().numpy()  # (B, T)
    expected = {
        "similarity": pool_words(similarity, words, how="max"),
        "aspect_scores": pool_words(similarity * norms[:, None], words, how="max"),
        "attributions": pool_words(attributions, words, how="sum"),
    }
    found = engine.route(encoded, sentence, batch.first_words.numpy(), tuple(expected))
    np.testing.assert_allclose(found.lengths, lengths, atol=tolerance)
    for name, scores in expected.items():
        largest = max(1, np.abs(scores).max())
        np.testing.assert_allclose(found.scores[name], scores, atol=10 * tolerance * largest)
    np.testing.assert_allclose(found.scores["attributions"].sum(-1), found.lengths, atol=1e-4)


@pytest.mark.parametrize("aspect_encoding", ["proximity", "pair"])
def test_graphs_of_a_tiny_bert_equal_the_network(tmp_path: Path, aspect_encoding: str) -> None:
    encoder = write_tiny_bert(tmp_path / "tiny")
    model, tokenizer, batches = network(encoder, aspect_encoding, **SMALL)
    engine = make_engine(tmp_path / "bundle", model, tokenizer)
    for batch in batches:
        check(engine, model, batch, 1e-5)


@pytest.mark.parametrize("aspect_encoding", ["proximity", "pair"])
def test_graphs_of_minilm_equal_the_network(
    tmp_path: Path, minilm: Path, aspect_encoding: str
) -> None:
    model, tokenizer, batches = network(minilm, aspect_encoding)
    assert isinstance(model.encoder, Transformer)
    assert tokenizer.window == 512
    engine = make_engine(tmp_path / "bundle", model, tokenizer)
    for batch in batches:
        check(engine, model, batch, 1e-5)
    small = {
        name: store_int8((tmp_path / "bundle" / name).read_bytes()) for name in (ENCODER, CAPSULES)
    }
    large = sum((tmp_path / "bundle" / name).stat().st_size for name in small)
    assert sum(map(len, small.values())) <= 0.3 * large


def test_int8_weights_are_dequantized_once_at_load(tmp_path: Path) -> None:
    """The optimized graph has no quantization left, and predicts like the network."""
    encoder = write_tiny_bert(tmp_path / "tiny")
    model, tokenizer, batches = network(encoder, "pair", **SMALL)
    engine = make_engine(tmp_path / "bundle", model, tokenizer, store="int8")
    for name in (ENCODER, CAPSULES):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.optimized_model_filepath = str(tmp_path / name)
        content = (tmp_path / "bundle" / name).read_bytes()
        onnxruntime.InferenceSession(content, options)
        stored = [node.op_type for node in onnx.load_from_string(content).graph.node]
        folded = [node.op_type for node in onnx.load(tmp_path / name).graph.node]
        assert stored.count("DequantizeLinear") >= 2
        assert not {kind for kind in folded if "Quant" in kind}
    check(engine, model, batches[1], 0.02)


def test_quantization_error_is_at_most_half_a_step() -> None:
    generator = np.random.default_rng(0)
    for shape, channels in (((40, 30), 0), ((30, 40), 1), ((2, 40, 9), 1)):
        sizes = np.ones(len(shape), dtype=int)
        sizes[channels] = shape[channels]
        spread = generator.lognormal(0, 2, sizes).astype(np.float32)
        array = (generator.normal(size=shape) * spread).astype(np.float32)
        integers, scales, axis = quantize(array)
        assert axis == channels
        assert integers.dtype == np.int8
        back = integers * scales.reshape(sizes)
        assert (np.abs(back - array) <= scales.reshape(sizes) * 0.501).all()
    zeros, scales, _ = quantize(np.zeros((20, 30), dtype=np.float32))
    assert not zeros.any()
    assert np.isfinite(scales).all()
    with pytest.raises(ValueError, match="has no channels"):
        quantize(np.ones((1, 1), dtype=np.float32))


def test_export_command_stores_weights_in_8_bits(small_bundle: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from capsar import load
    from capsar.cli import app

    for store, out in (("int8", tmp_path / "small"), ("float32", tmp_path / "large")):
        done = CliRunner().invoke(app, ["export", str(small_bundle), str(out), "--store", store])
        assert done.exit_code == 0, done.output
        assert open_bundle(out).config.get("store", "float32") == store
    small, large = (
        load(tmp_path / name).analyze(["The soup was great."]) for name in ("small", "large")
    )
    assert [len(found) for found in small] == [len(found) for found in large]
    sizes = [(tmp_path / name / ENCODER).stat().st_size for name in ("small", "large")]
    assert sizes[0] < sizes[1]
    wrong = CliRunner().invoke(app, ["export", str(small_bundle), "x", "--store", "int4"])
    assert "store must be one of" in f"{wrong.output}{wrong.exception}"
