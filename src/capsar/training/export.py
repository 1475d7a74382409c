"""The network as two ONNX graphs: `encoder.onnx` and `capsules.onnx`.

All arithmetic of an answer is inside the graphs, *about* and *because* included. Sentences are
encoded once and routed as often as they have aspects, the gather from sentences to aspects being in
the capsule graph, and what is not asked for (*about*, *because*) is not computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from capsar.model.transformer import Transformer
from capsar.training.capsule_graph import (
    about,
    because,
    capsule_lengths,
    primary_capsules,
    proximity,
    route,
    votes,
)
from capsar.training.graph import Graph
from capsar.training.transformer_graph import export_transformer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from capsar.model.network import Capsar

_CELL_SETTINGS: dict[str, dict[str, Any]] = {"gru": {"linear_before_reset": 1}, "lstm": {}}


def export_encoder(model: Capsar) -> bytes:
    """Return the graph from ids to hidden states.

    In: `ids` (S, T), `mask` (S, T), what is read of them; of a transformer that reads the aspect as
    a second segment, `segments` (S, T) too. Out: `states` (S, T, H), `word_vectors` (S, T, E).
    """
    if isinstance(model.encoder, Transformer):
        return export_transformer(model)
    graph = Graph()
    graph.input("ids", "int64", ("S", "T"))
    graph.input("mask", "bool", ("S", "T"))
    fixed = graph.op("Gather", graph.constant(model.word_vectors), "ids", name="word_vectors")
    vectors = fixed
    if model.learnt is not None:
        known = graph.op("Less", "ids", graph.integers(model.learnt.num_embeddings))
        index = graph.op("Where", known, "ids", graph.integers(0))
        learnt = graph.op("Gather", graph.constant(model.learnt.weight), index)
        vectors = graph.op("Add", fixed, learnt)
    counts = graph.op(
        "ReduceSum", graph.cast("mask", TensorProto.INT32), graph.integers([1]), keepdims=0
    )
    one = graph.constant(np.array(1, dtype=np.int32))
    counts = graph.op("Max", counts, one)  # a sentence without words is one word of padding
    cell = model.model_config.cell
    weights = [graph.constant(part) for part in _recurrent_weights(model.encoder, cell)]
    states = graph.op(
        cell.upper(),
        graph.op("Transpose", vectors, perm=[1, 0, 2]),
        *weights,
        counts,
        direction="bidirectional",
        hidden_size=model.model_config.units,
        **_CELL_SETTINGS[cell],
    )  # (T, 2, S, H / 2)
    states = graph.op("Transpose", states, perm=[2, 0, 1, 3])  # (S, T, 2, H / 2)
    hidden = model.encoder.hidden_dim
    graph.op("Reshape", states, graph.integers([0, 0, hidden]), name="states")
    graph.output("states", ("S", "T", hidden))
    graph.output("word_vectors", ("S", "T", model.word_vectors.shape[1]))
    return graph.serialize("encoder")


def export_capsules(model: Capsar) -> bytes:
    """Return the graph from hidden states and aspects to capsule lengths and word scores.

    In: `states` (S, T, H), `word_vectors` (S, T, E), `mask` (S, T), which positions vote, `words`
    (S, T), the word each belongs to, `sentence` (A), that of each aspect, `first_words` (A, M), the
    first word of each mention, negative where there is none; `want_about`, `want_because`, whether
    those are computed. Out: `lengths` (A, C), and the scores `about` and `because` (A, C, T), or
    (A, C, 0) where they are not wanted.
    """
    graph = Graph()
    graph.input("states", "float", ("S", "T", model.encoder.hidden_dim))
    graph.input("word_vectors", "float", ("S", "T", model.fixed_vectors.shape[1]))
    graph.input("mask", "bool", ("S", "T"))
    graph.input("words", "int64", ("S", "T"))
    graph.input("sentence", "int64", ("A",))
    graph.input("first_words", "int64", ("A", "M"))
    graph.input("want_about", "bool", ())
    graph.input("want_because", "bool", ())
    voting = graph.op("Gather", graph.cast("mask"), "sentence")  # (A, T)
    weights = proximity(graph, model, voting)  # (A, T)
    children = primary_capsules(graph, model, weights)  # (A, N, P)
    may_vote: str | None = votes(graph, voting, children, model.model_config.capsules_per_word)
    routed = []
    for layer in (model.intermediate, model.sentiment):
        if layer is not None:
            routed.append(route(graph, layer, children, may_vote))
            children, may_vote = routed[-1].parents, None
    classes = len(model.sentiment.weight)
    capsule_lengths(graph, children, name="lengths")

    def nothing() -> str:
        aspects = graph.op("Shape", "sentence")
        shape = graph.op("Concat", aspects, graph.integers([classes, 0]), axis=0)
        return graph.op("Expand", graph.number(0), shape)

    graph.choose("want_about", lambda: about(graph, model, children, voting), nothing, "about")
    graph.choose("want_because", lambda: because(graph, model, routed), nothing, "because")
    graph.output("lengths", ("A", classes))
    graph.output("about", ("A", classes, "T_about"))
    graph.output("because", ("A", classes, "T_because"))
    return graph.serialize("capsules")


def _recurrent_weights(encoder: nn.Module, cell: str) -> list[NDArray[np.float32]]:
    """Return ONNX's W, R and B of both directions; its gates are in another order than torch's."""
    order = {"gru": [1, 0, 2], "lstm": [0, 3, 1, 2]}[cell]  # r z n -> z r n; i f g o -> i o f g

    def gates(parameter: Tensor) -> NDArray[np.float32]:
        parts = np.split(parameter.detach().cpu().numpy(), len(order))
        return np.concatenate([parts[gate] for gate in order])

    cells = [encoder.get_submodule("forward_cell"), encoder.get_submodule("backward_cell")]
    stacked = [
        np.stack([gates(c.get_parameter(name)) for c in cells])
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    ]
    return [stacked[0], stacked[1], np.concatenate(stacked[2:], axis=1)]
