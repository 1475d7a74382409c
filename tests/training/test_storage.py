"""Graphs of transformers against the network, and weights stored in 8 bits, folded at load."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from test_export import by_the_network
from test_network import SMALL
from tiny_bert import write_tiny_bert

from capsar.bundle import CAPSULES, ENCODER, TOKENIZER, open_bundle, write_bundle
from capsar.config import ModelConfig
from capsar.data.example import Example, find_spans
from capsar.model.batch import Batch
from capsar.model.network import Capsar
from capsar.model.transformer import Transformer, load_pretrained
from capsar.pieces import to_words
from capsar.runtime import Rows, Runtime
from capsar.sessions import Sessions
from capsar.training.batches import collate, encode_examples
from capsar.training.export import export_capsules, export_encoder
from capsar.training.storage import quantize, store_int8

WORDS = ["the", "soup", "battery", "was", "terrible", "great", "!", "Zürich", "n't", "unbelievably"]


def examples(number: int, longest: int = 30) -> list[Example]:
    generator = random.Random(3)
    texts = [
        " ".join(generator.choices(WORDS, k=generator.randint(1, longest))) for _ in range(number)
    ]
    return [Example(text, find_spans(text, text.split()[0])) for text in [*texts, texts[0] * 9]]


def network(encoder: Path, entry: str, **sizes: object) -> tuple[Capsar, list[Batch], int]:
    config = ModelConfig(encoder=str(encoder), aspect_entry=entry, **sizes)  # type: ignore[arg-type]
    pretrained = load_pretrained(config.encoder, reads_aspect=entry == "pair")
    torch.manual_seed(0)
    model = Capsar(config, pretrained.table, transformer=pretrained.model, vector_scale=2.0)
    encoded = encode_examples([*examples(12), Example("", ())], pretrained.tokenizer)
    batches = [collate(encoded), collate(encoded[:3])]
    return model.eval(), batches, pretrained.tokenizer.window


def make_runtime(folder: Path, model: Capsar, *, store: str = "float32") -> Runtime:
    graphs = {ENCODER: export_encoder(model), CAPSULES: export_capsules(model)}
    if store == "int8":
        graphs = {name: store_int8(content) for name, content in graphs.items()}
    write_bundle(folder, {"store": store}, graphs | {TOKENIZER: b"{}"})
    return Runtime(Sessions(open_bundle(folder)))


def check(runtime: Runtime, model: Capsar, batch: Batch, window: int, tolerance: float) -> None:
    ids, words = batch.ids.numpy(), batch.words.numpy()
    rows = Rows(ids, batch.attention.numpy(), words, batch.segments.numpy())
    missing = -ids.shape[1] % window if ids.shape[1] > window else 0
    if missing:
        fills = {"ids": 0, "mask": False, "words": -1, "segments": 0}
        rows = Rows(**{
            name: np.pad(getattr(rows, name), ((0, 0), (0, missing)), constant_values=fill)
            for name, fill in fills.items()
        })  # fmt: skip
    sentence = np.arange(len(ids))
    wanted = ("about", "because")
    found = runtime.route(
        runtime.encode(rows, window), sentence, batch.first_words.numpy(), outputs=wanted
    )
    lengths, *scores = by_the_network(model, batch)
    np.testing.assert_allclose(found.lengths, lengths, atol=tolerance)
    for name, expected in zip(wanted, scores, strict=True):
        reduced = to_words(expected, words, how=name)
        np.testing.assert_allclose(getattr(found, name), reduced, atol=10 * tolerance)
    shares = found.because
    assert shares is not None
    np.testing.assert_allclose(shares.sum(-1), found.lengths, atol=1e-4)


@pytest.mark.parametrize("entry", ["proximity", "pair"])
def test_graphs_of_a_tiny_bert_compute_what_the_network_does(tmp_path: Path, entry: str) -> None:
    model, batches, window = network(write_tiny_bert(tmp_path / "tiny"), entry, **SMALL)
    runtime = make_runtime(tmp_path / "bundle", model)
    for batch in batches:
        check(runtime, model, batch, window, 1e-5)


@pytest.mark.parametrize("entry", ["proximity", "pair"])
def test_graphs_of_minilm_compute_what_the_network_does(
    tmp_path: Path, minilm: Path, entry: str
) -> None:
    model, batches, window = network(minilm, entry)
    assert isinstance(model.encoder, Transformer)
    assert window == 512
    runtime = make_runtime(tmp_path / "bundle", model)
    for batch in batches:
        check(runtime, model, batch, window, 1e-5)
    small = {
        name: store_int8((tmp_path / "bundle" / name).read_bytes()) for name in (ENCODER, CAPSULES)
    }
    large = sum((tmp_path / "bundle" / name).stat().st_size for name in small)
    assert sum(map(len, small.values())) <= 0.3 * large


def test_stored_weights_are_turned_back_once_at_load(tmp_path: Path) -> None:
    """Folded, the graph computes with floats; and the network of those floats agrees exactly."""
    model, batches, window = network(write_tiny_bert(tmp_path / "tiny"), "pair", **SMALL)
    make_runtime(tmp_path / "bundle", model, store="int8")
    for name in (ENCODER, CAPSULES):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.optimized_model_filepath = str(tmp_path / name)
        content = (tmp_path / "bundle" / name).read_bytes()
        onnxruntime.InferenceSession(content, options)
        stored = [node.op_type for node in onnx.load_from_string(content).graph.node]
        folded = [node.op_type for node in onnx.load(tmp_path / name).graph.node]
        assert stored.count("DequantizeLinear") >= 3
        assert not {kind for kind in folded if "Quant" in kind}
    check(Runtime(Sessions(open_bundle(tmp_path / "bundle"))), model, batches[1], window, 0.02)


def test_each_channel_is_within_half_a_step_of_what_it_was() -> None:
    generator = np.random.default_rng(0)
    for shape, channels in (((40, 30), 0), ((30, 40), 1), ((2, 40, 9), 1)):
        sizes = np.ones(len(shape), dtype=int)
        sizes[channels] = shape[channels]
        spread = generator.lognormal(0, 2, sizes).astype(np.float32)
        array = (generator.normal(size=shape) * spread).astype(np.float32)
        numbers, scales, axis = quantize(array)
        assert axis == channels
        assert numbers.dtype == np.int8
        back = numbers * scales.reshape(sizes)
        assert (np.abs(back - array) <= scales.reshape(sizes) * 0.501).all()
    zeros, scales, _ = quantize(np.zeros((20, 30), dtype=np.float32))
    assert not zeros.any()
    assert np.isfinite(scales).all()
    with pytest.raises(ValueError, match="has no channels"):
        quantize(np.ones((1, 1), dtype=np.float32))


def test_the_command_stores_weights_in_a_quarter_of_the_room(
    small_bundle: Path, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from capsar import load
    from capsar.cli import app

    for store, out in (("int8", tmp_path / "small"), ("float32", tmp_path / "large")):
        done = CliRunner().invoke(app, ["export", str(small_bundle), str(out), "--store", store])
        assert done.exit_code == 0, done.output
        assert open_bundle(out).config.get("store", "float32") == store
    answers = [
        load(tmp_path / name).analyze(["The soup was great."]) for name in ("small", "large")
    ]
    assert [len(found) for found in answers[0]] == [len(found) for found in answers[1]]
    sizes = [(tmp_path / name / ENCODER).stat().st_size for name in ("small", "large")]
    assert sizes[0] < sizes[1]
    wrong = CliRunner().invoke(app, ["export", str(small_bundle), "x", "--store", "int4"])
    assert "store must be one of" in f"{wrong.output}{wrong.exception}"
