"""The extraction head as an ONNX graph of its own, `spans.onnx`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capsar.labels import CLASSES
from capsar.model.spans import WIDTH
from capsar.tagging import NUM_TAGS
from capsar.training.graph import Graph

if TYPE_CHECKING:
    from capsar.model.network import Capsar
    from capsar.model.spans import SpanHead


def export_spans(model: Capsar, head: SpanHead) -> bytes:
    """Return the graph from hidden states and word scores to the tags of words.

    In: `states` (S, T, H), `places` (S, W), where each word begins, `known` (S, W), whether there
    is such a word, `about` (S, C, W) and `lengths` (S, C) without an aspect. Out: `tags` (S, W, 3),
    logits.
    """
    hidden = model.encoder.hidden_dim
    graph = Graph()
    graph.input("states", "float", ("S", "T", hidden))
    graph.input("places", "int64", ("S", "W"))
    graph.input("known", "bool", ("S", "W"))
    graph.input("about", "float", ("S", len(CLASSES), "W"))
    graph.input("lengths", "float", ("S", len(CLASSES)))
    states = _first_places(graph, hidden)  # (S, W, H)
    weighted = graph.op("Mul", "about", graph.op("Unsqueeze", "lengths", graph.integers([2])))
    scores = [graph.op("Transpose", s, perm=[0, 2, 1]) for s in ("about", weighted)]  # (S, W, C)
    features = graph.op("Concat", states, *scores, axis=2)
    known = graph.op("Unsqueeze", graph.cast("known"), graph.integers([2]))
    features = graph.op("Mul", features, known)  # zero beyond the last word
    half = WIDTH // 2
    padded = graph.op("Pad", features, graph.integers([0, half, 0, 0, half, 0]), graph.number(0))
    num_words = graph.op("Shape", "places", start=1, end=2)
    windows = [
        graph.op("Slice", padded, graph.integers([i]),
                 graph.op("Add", num_words, graph.integers([i])), graph.integers([1]))
        for i in range(WIDTH)
    ]  # fmt: skip
    between = graph.op("MatMul", graph.op("Concat", *windows, axis=2),
                       graph.constant(head.hidden.weight.T))  # fmt: skip
    between = graph.op("Relu", graph.op("Add", between, graph.constant(head.hidden.bias)))
    logits = graph.op("MatMul", between, graph.constant(head.tags.weight.T))
    graph.op("Add", logits, graph.constant(head.tags.bias), name="tags")
    graph.output("tags", ("S", "W", NUM_TAGS))
    return graph.serialize("spans")


def _first_places(graph: Graph, hidden: int) -> str:
    """The state where each word begins (S, W, H)."""
    rows = graph.op("Reshape", "states", graph.integers([-1, hidden]))  # (S * T, H)
    sentences, size = (
        graph.op("Squeeze", graph.op("Shape", "states", start=i, end=i + 1), graph.integers([0]))
        for i in range(2)
    )
    number = graph.op("Range", graph.integers(0), sentences, graph.integers(1))  # (S)
    start = graph.op("Unsqueeze", graph.op("Mul", number, size), graph.integers([1]))
    return graph.op("Gather", rows, graph.op("Add", "places", start))
