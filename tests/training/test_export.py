"""The ONNX graphs against the network, for every variant and on every test sentence (text only)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from test_network import VARIANTS, examples, network

from capsar.config import ModelConfig, run_config
from capsar.data.catalog import test_examples as read_test_part
from capsar.model.capsules import CAPSULES_PER_WORD
from capsar.model.network import Batch, Capsar
from capsar.schema import Example
from capsar.tokenizer import WordTokenizer
from capsar.training.batches import EncodedExample, collate, encode_examples
from capsar.training.dataset import prepare_data
from capsar.training.export import export_capsules, export_encoder


class Graphs:
    """Both graphs of a network, run as the inference engine runs them."""

    def __init__(self, model: Capsar) -> None:
        self.contents = [export_encoder(model), export_capsules(model)]
        self.encoder, self.capsules = map(onnxruntime.InferenceSession, self.contents)

    def run(
        self, batch: Batch, sentence: np.ndarray | None = None, *, wanted: bool = True
    ) -> list[np.ndarray]:
        ids, mask = batch.ids.numpy(), batch.mask.numpy()
        states, vectors = self.encoder.run(["states", "word_vectors"], {"ids": ids, "mask": mask})
        feeds = {
            "states": states,
            "word_vectors": vectors,
            "mask": mask,
            "words": np.tile(np.arange(ids.shape[1]), (len(ids), 1)),
            "sentence": np.arange(len(ids)) if sentence is None else sentence,
            "first_words": batch.first_words.numpy(),
            "want_similarity": np.array(wanted),
            "want_attributions": np.array(wanted),
        }
        return self.capsules.run(["lengths", "similarity", "attributions"], feeds)


@torch.no_grad()
def run_network(model: Capsar, batch: Batch) -> list[np.ndarray]:
    output = model.eval()(batch)
    scores = [output.lengths, model.similarity(batch, output), model.attributions(batch)]
    return [tensor.numpy() for tensor in scores]


def perturbed(**settings: object) -> Capsar:
    """Return a network whose weights have all moved away from their initial values."""
    model = network(**settings)
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.parametrize("iterations", [1, 2, 3, 4])
@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_graphs_equal_the_network(settings: dict[str, object], iterations: int) -> None:
    model = perturbed(**settings, routing_iterations=iterations)
    empty = EncodedExample(ids=(), first_words=(), aspect_words=(), polarity=-1)
    batch = collate([*examples(40), empty])
    graphs = Graphs(model)
    expected_all = run_network(model, batch)
    for ours, expected in zip(graphs.run(batch), expected_all, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-4)
    twice = np.tile(np.arange(len(batch.ids)), 2)
    first_words = batch.first_words.repeat(2, 1)
    more = replace(batch, first_words=first_words)
    for ours, expected in zip(graphs.run(more, twice), expected_all, strict=True):
        np.testing.assert_allclose(ours, np.concatenate([expected] * 2), atol=1e-4)
    lengths, similarity, attributions = graphs.run(batch, wanted=False)
    np.testing.assert_array_equal(lengths, graphs.run(batch)[0])
    assert similarity.shape == attributions.shape == (*lengths.shape, 0)


def test_sentence_is_encoded_once_and_routed_per_aspect() -> None:
    model = perturbed()
    sentences = examples(5)
    first_words = [(0, 1), (), (2,), (0,), (), (0,), (1,)]
    sentence = np.array([0, 0, 1, 1, 4, 3, 2])
    spread = [
        EncodedExample(sentences[s].ids, words, (), -1)
        for s, words in zip(sentence, first_words, strict=True)
    ]
    once = collate(sentences)
    several = replace(once, first_words=collate(spread).first_words)
    for ours, expected in zip(
        Graphs(model).run(several, sentence), run_network(model, collate(spread)), strict=True
    ):
        wide = min(ours.shape[-1], expected.shape[-1])
        np.testing.assert_allclose(ours[..., :wide], expected[..., :wide], atol=1e-4)


def test_attributions_sum_to_the_length_of_the_capsule() -> None:
    for settings in VARIANTS.values():
        model = perturbed(**settings)
        lengths, _, attributions = Graphs(model).run(collate(examples(40)))
        np.testing.assert_allclose(attributions.sum(-1), lengths, atol=1e-4)


def test_attributions_by_hand() -> None:
    """One routed layer, one iteration: a capsule p of a word adds W p . q / (3 |q~|)."""
    model = perturbed(intermediate_capsules=0, routing_iterations=1)
    batch = collate(examples(1, seed=4))
    with torch.no_grad():
        states = model.encode(batch, model.embed(batch.ids))
        primary = model._primary(batch, states)[0].numpy()  # (N, P)
    weight = model.sentiment.weight.detach().numpy()  # (C, D, P)
    predictions = np.einsum("cdp,np->cnd", weight, primary)
    inputs = predictions.sum(1) / 3  # (C, D)
    squared = (inputs**2).sum(-1, keepdims=True)
    outputs = inputs * squared / (1 + squared) / np.sqrt(squared)
    of_capsules = np.einsum("cnd,cd->cn", predictions, outputs) / 3 / np.sqrt(squared)
    expected = of_capsules.reshape(3, -1, CAPSULES_PER_WORD).sum(-1)
    np.testing.assert_allclose(model.attributions(batch)[0].numpy(), expected, atol=1e-5)


def test_prediction_of_the_graphs_does_not_depend_on_batch_order_or_padding() -> None:
    model = perturbed()
    graphs = Graphs(model)
    encoded = examples(30)
    together = graphs.run(collate(encoded))
    reversed_order = [scores[::-1] for scores in graphs.run(collate(encoded[::-1]))]
    for row, example in enumerate(encoded):
        size = len(example.ids)
        for alone, whole, other in zip(
            graphs.run(collate([example])), together, reversed_order, strict=True
        ):
            cut = slice(None) if whole.ndim == 2 else slice(0, size)
            np.testing.assert_allclose(whole[row][..., cut], alone[0][..., cut], atol=1e-5)
            np.testing.assert_allclose(other[row], whole[row], atol=1e-5)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def test_graphs_are_plain_onnx_without_dynamic_quantization() -> None:
    for content in Graphs(perturbed()).contents:
        model = onnx.load_from_string(content)
        nodes = list(all_nodes(model.graph))
        assert len(nodes) >= len(model.graph.node)
        assert not {node.op_type for node in nodes} & {"DynamicQuantizeLinear", "Loop", "Scan"}
        assert all(node.domain == "" for node in nodes)
        assert not any(tensor.external_data for tensor in model.graph.initializer)


@pytest.mark.data
@pytest.mark.parametrize("name", ["semeval14-restaurants", "semeval14-laptops", "twitter"])
def test_network_and_graphs_agree_on_every_test_sentence(name: str) -> None:
    """With and without the aspect; only texts and spans are used, no labels."""
    data = run_config({"data": {"train": name, "vectors": "glove.840B.300d.subset"}}).data
    prepared = prepare_data(data)
    torch.manual_seed(0)
    model = Capsar(
        ModelConfig(), prepared.vocabulary.vectors, num_trained=prepared.vocabulary.num_trained
    )
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    graphs = Graphs(model.eval())
    texts = [Example(e.text, e.spans) for e in read_test_part(name)]
    assert len({e.text for e in texts}) > 600
    encoded = sorted(
        encode(texts, prepared.vocabulary.tokenizer), key=lambda example: len(example.ids)
    )
    for start in range(0, len(encoded), 128):
        batch = collate(encoded[start : start + 128])
        for some in (batch, batch.without_aspect()):
            for ours, expected in zip(graphs.run(some), run_network(model, some), strict=True):
                np.testing.assert_allclose(ours, expected, atol=1e-4)


def encode(texts: list[Example], tokenizer: WordTokenizer) -> list[EncodedExample]:
    return list(dict.fromkeys(encode_examples(texts, tokenizer)))
