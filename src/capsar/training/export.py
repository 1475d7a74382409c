"""Export a network as ONNX graphs, with weights in 32 bits or stored in 8.

`encoder.onnx` reads sentences, `capsules.onnx` routes each sentence once per aspect, `spans.onnx`
is the span head, and `opinions.onnx` the opinion head.
"""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import TensorProto, checker, helper, load_from_string, numpy_helper
from torch import Tensor, nn

from capsar.errors import MissingExtraError
from capsar.inference.decoding import NUM_TAGS
from capsar.model.encoders import BiGRU, Transformer
from capsar.model.opinion_head import ATTRIBUTION_SCALE, CONTEXT_WIDTH
from capsar.model.span_head import WIDTH
from capsar.schema import CLASSES
from capsar.training.graph import (
    IR_VERSION,
    OPSET,
    Graph,
    attributions,
    capsule_lengths,
    capsule_votes,
    primary_capsules,
    proximity,
    route,
    similarity,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    from capsar.model.network import Capsar
    from capsar.model.opinion_head import OpinionHead
    from capsar.model.span_head import SpanHead

STORES = ("float32", "int8")
_MIN_QUANTIZED_SIZE = 512
"""Smaller matrices are stored in 32 bits."""
_NEWER_IR_VERSION = 11
_TRACED_SHAPE = (3, 7)
"""Sentences and subwords of the example that is traced; both are dynamic in the graph."""


def export_encoder(model: Capsar) -> bytes:
    """Return the graph from ids to hidden states.

    Inputs: `ids` (S, T); `mask` (S, T), the tokens that are read; `segments` (S, T) if a
    transformer reads the aspect as a second segment. Outputs: `states` (S, T, H), `word_vectors`
    (S, T, E).
    """
    if isinstance(model.encoder, Transformer):
        return export_transformer(model)
    graph = Graph()
    graph.input("ids", "int64", ("S", "T"))
    graph.input("mask", "bool", ("S", "T"))
    fixed = graph.op("Gather", graph.constant(model.word_vectors), "ids", name="word_vectors")
    vectors = fixed
    if model.learnt is not None:
        has_offset = graph.op("Less", "ids", graph.integers(model.learnt.num_embeddings))
        index = graph.op("Where", has_offset, "ids", graph.integers(0))
        learnt = graph.op("Gather", graph.constant(model.learnt.weight), index)
        vectors = graph.op("Add", fixed, learnt)
    lengths = graph.reduce("ReduceSum", graph.cast("mask", TensorProto.INT32), 1)  # (S)
    one = graph.constant(np.array(1, dtype=np.int32))
    lengths = graph.op("Max", lengths, one)  # ONNX has no sequences without words
    states = graph.op(
        "GRU",
        graph.op("Transpose", vectors, perm=[1, 0, 2]),
        *(graph.constant(part) for part in _gru_weights(model.encoder)),
        lengths,
        direction="bidirectional",
        hidden_size=model.model_config.units,
        linear_before_reset=1,
    )  # (T, 2, S, H / 2)
    states = graph.op("Transpose", states, perm=[2, 0, 1, 3])  # (S, T, 2, H / 2)
    hidden = model.encoder.hidden_dim
    graph.op("Reshape", states, graph.integers([0, 0, hidden]), name="states")
    graph.output("states", ("S", "T", hidden))
    graph.output("word_vectors", ("S", "T", model.word_vectors.shape[1]))
    return graph.serialize("encoder")


def _gru_weights(encoder: BiGRU) -> list[NDArray[np.float32]]:
    """Return ONNX's W, R and B of both directions, with gates in its order."""

    def gates(parameter: Tensor) -> NDArray[np.float32]:
        reset, update, new = np.split(parameter.detach().cpu().numpy(), 3)
        return np.concatenate([update, reset, new])

    cells = [encoder.forward_cell, encoder.backward_cell]
    stacked = [
        np.stack([gates(cell.get_parameter(name)) for cell in cells])
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    ]
    return [stacked[0], stacked[1], np.concatenate(stacked[2:], axis=1)]


class _WindowEncoder(nn.Module):
    """One window of each sentence -> states and fixed vectors, to be traced."""

    def __init__(self, model: Capsar, encoder: Transformer) -> None:
        super().__init__()
        self.model = model
        self.encoder = encoder

    def forward(
        self, ids: Tensor, mask: Tensor, segments: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the states (S, T, H) and fixed vectors (S, T, E) of subwords (S, T)."""
        return self.encoder.read_window(ids, mask, segments), self.model.embed(ids)


def export_transformer(model: Capsar, *, opset: int = OPSET) -> bytes:
    """Return the graph of a transformer, traced by torch; see `export_encoder`.

    Args:
        model: A network with a transformer.
        opset: Of the graph; from 23 on, attention is one operation.

    Raises:
        MissingExtraError: If `onnxscript`, which tracing needs, is not installed.
    """
    if not isinstance(model.encoder, Transformer):
        raise TypeError("only a transformer is traced")
    names = ["ids", "mask", "segments"][: 3 if model.model_config.aspect_encoding == "pair" else 2]
    ids = torch.ones(_TRACED_SHAPE, dtype=torch.long)
    examples = {"ids": ids, "mask": ids.bool(), "segments": ids * 0}
    sizes = {0: torch.export.Dim("S", min=1), 1: torch.export.Dim("T", min=1)}
    was_training = model.training
    try:
        with _silence_tracing(), torch.no_grad():
            program: Any = torch.onnx.export(
                _WindowEncoder(model, model.encoder).eval(),
                tuple(examples[name] for name in names),
                dynamo=True,
                opset_version=opset,
                input_names=names,
                output_names=["states", "word_vectors"],
                dynamic_shapes=dict.fromkeys(names, sizes),
                verbose=False,
            )
    except ImportError as error:
        raise MissingExtraError("bert", "Exporting a transformer") from error
    finally:
        model.train(was_training)
    return _clean(program.model_proto, IR_VERSION if opset == OPSET else _NEWER_IR_VERSION)


def _clean(proto: ModelProto, ir_version: int) -> bytes:
    """Return a traced graph, checked, without the notes on our source that tracing leaves."""
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    proto.producer_name, proto.ir_version = "capsar", ir_version
    checker.check_model(proto, full_check=True)
    content: bytes = proto.SerializeToString()
    return content


@contextmanager
def _silence_tracing() -> Iterator[None]:
    """Suppress the messages of tracing."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def export_capsules(model: Capsar) -> bytes:
    """Return the graph from hidden states and aspects to capsule lengths and word scores.

    Inputs: `states` (S, T, H); `word_vectors` (S, T, E); `mask` (S, T), the tokens that vote;
    `words` (S, T), the word of each token; `sentence` (A), the sentence of each aspect;
    `first_words` (A, M), the first word of each mention, negative for none; `want_similarity` and
    `want_attributions`, whether these are computed. Outputs: `lengths` (A, C); `similarity` and
    `attributions` (A, C, T), or (A, C, 0) if not wanted.
    """
    graph = Graph()
    graph.input("states", "float", ("S", "T", model.encoder.hidden_dim))
    graph.input("word_vectors", "float", ("S", "T", model.fixed_vectors.shape[1]))
    graph.input("mask", "bool", ("S", "T"))
    graph.input("words", "int64", ("S", "T"))
    graph.input("sentence", "int64", ("A",))
    graph.input("first_words", "int64", ("A", "M"))
    graph.input("want_similarity", "bool", ())
    graph.input("want_attributions", "bool", ())
    voting = graph.op("Gather", graph.cast("mask"), "sentence")  # (A, T)
    children = primary_capsules(graph, model, proximity(graph, model, voting))  # (A, N, P)
    votes: str | None = capsule_votes(graph, voting)  # (A, 1, N)
    routed = []
    for layer in (model.intermediate, model.sentiment):
        if layer is not None:
            routed.append(route(graph, layer, children, votes))
            children, votes = routed[-1].parents, None
    capsule_lengths(graph, children, name="lengths")
    graph.output("lengths", ("A", len(CLASSES)))

    def empty() -> str:
        ends = graph.integers([len(CLASSES), 0])
        shape = graph.op("Concat", graph.op("Shape", "sentence"), ends, axis=0)
        return graph.op("Expand", graph.number(0), shape)

    for name, build in (
        ("similarity", lambda: similarity(graph, model, children, voting)),
        ("attributions", lambda: attributions(graph, routed)),
    ):
        graph.choose(f"want_{name}", build, empty, name)
        graph.output(name, ("A", len(CLASSES), f"T_{name}"))
    return graph.serialize("capsules")


def export_spans(model: Capsar, head: SpanHead) -> bytes:
    """Return the graph from hidden states and word scores to the tags of words.

    Inputs: `states` (S, T, H); `first_subwords` (S, W), the first token of each word; `word_mask`
    (S, W), which words exist; `similarity` (S, C, W) and `lengths` (S, C) without an aspect.
    Output: `tags` (S, W, 3), logits.
    """
    hidden = model.encoder.hidden_dim
    graph = Graph()
    graph.input("states", "float", ("S", "T", hidden))
    graph.input("first_subwords", "int64", ("S", "W"))
    graph.input("word_mask", "bool", ("S", "W"))
    graph.input("similarity", "float", ("S", len(CLASSES), "W"))
    graph.input("lengths", "float", ("S", len(CLASSES)))
    states = _gather_words(graph, hidden)  # (S, W, H)
    weighted = graph.op("Mul", "similarity", graph.unsqueeze("lengths", 2))  # (S, C, W)
    scores = [graph.op("Transpose", s, perm=[0, 2, 1]) for s in ("similarity", weighted)]
    features = graph.op("Concat", states, *scores, axis=2)  # (S, W, H + 2 * C)
    features = graph.op("Mul", features, graph.unsqueeze(graph.cast("word_mask"), 2))
    stacked = _stack_neighbors(graph, features)  # (S, W, WIDTH * (H + 2 * C))
    units = graph.op("Relu", _linear(graph, stacked, head.hidden))
    _linear(graph, units, head.tags, name="tags")
    graph.output("tags", ("S", "W", NUM_TAGS))
    return graph.serialize("spans")


def export_opinions(head: OpinionHead) -> bytes:
    """Return the graph from hidden states to the opinion tags of words.

    Inputs: `states` (S, T, H); `first_subwords` (S, W), the first token of each word; `positions`
    (A, V), the words to tag for each aspect, counted over all sentences; `mask` (A, V),
    which of them exist; `aspect_words` (A, M), the words of the aspect, likewise counted;
    `aspect_weights` (A, M), one over their number, 0 for none; `distances` (A, V); `attributions`
    (A, C, V). Output: `tags` (A, V, 3), logits. Each sentence is projected once.
    """
    hidden = head.aspect.in_features
    graph = Graph()
    graph.input("states", "float", ("S", "T", hidden))
    graph.input("first_subwords", "int64", ("S", "W"))
    graph.input("positions", "int64", ("A", "V"))
    graph.input("mask", "bool", ("A", "V"))
    graph.input("aspect_words", "int64", ("A", "M"))
    graph.input("aspect_weights", "float", ("A", "M"))
    graph.input("distances", "int64", ("A", "V"))
    graph.input("attributions", "float", ("A", len(CLASSES), "V"))
    words = _gather_words(graph, hidden)  # (S, W, H)
    projected = _linear(graph, words, head.states)  # (S, W, U)
    flat = graph.op("Reshape", projected, graph.integers([-1, head.aspect.out_features]))
    features = graph.op("Gather", flat, "positions")  # (A, V, U)
    rows = graph.op("Reshape", words, graph.integers([-1, hidden]))  # (S * W, H)
    own = graph.op("Gather", rows, "aspect_words")  # (A, M, H)
    mean = graph.op("MatMul", graph.unsqueeze("aspect_weights", 1), own)  # (A, 1, H)
    features = graph.op("Add", features, _linear(graph, mean, head.aspect))
    near = graph.op("Gather", graph.constant(head.distances.weight), "distances")
    features = graph.op("Add", features, near)
    scores = graph.op("Transpose", "attributions", perm=[0, 2, 1])  # (A, V, C)
    scores = graph.op("Mul", scores, graph.number(ATTRIBUTION_SCALE))
    features = graph.op("Add", features, _linear(graph, scores, head.attributions))
    mask = graph.unsqueeze(graph.cast("mask"), 2)
    features = graph.op("Mul", graph.op("Relu", features), mask)
    units = graph.op("Relu", _linear(graph, _stack_neighbors(graph, features), head.hidden))
    units = graph.op("Mul", units, mask)
    context = _linear(graph, _stack_neighbors(graph, units, CONTEXT_WIDTH), head.context)
    units = graph.op("Add", units, graph.op("Relu", context))
    _linear(graph, units, head.tags, name="tags")
    graph.output("tags", ("A", "V", NUM_TAGS))
    return graph.serialize("opinions")


def _gather_words(graph: Graph, hidden: int) -> str:
    """Return the state of the first token of each word (S, W, H)."""
    rows = graph.op("Reshape", "states", graph.integers([-1, hidden]))  # (S * T, H)
    sentences, num_tokens = graph.size("states", 0), graph.size("states", 1)
    number = graph.op("Range", graph.integers(0), sentences, graph.integers(1))  # (S)
    start = graph.unsqueeze(graph.op("Mul", number, num_tokens), 1)  # (S, 1)
    return graph.op("Gather", rows, graph.op("Add", "first_subwords", start))


def _stack_neighbors(graph: Graph, values: str, width: int = WIDTH) -> str:
    """Concatenate the values of each word (B, W, H) with its neighbors': (B, W, width * H)."""
    half = width // 2
    padded = graph.op("Pad", values, graph.integers([0, half, 0, 0, half, 0]), graph.number(0))
    num_words = graph.op("Shape", values, start=1, end=2)
    windows = []
    for i in range(width):
        end = graph.op("Add", num_words, graph.integers([i]))
        windows.append(graph.op("Slice", padded, graph.integers([i]), end, graph.integers([1])))
    return graph.op("Concat", *windows, axis=2)


def _linear(graph: Graph, values: str, layer: nn.Linear, *, name: str = "") -> str:
    """Apply a linear layer to the last axis."""
    product = graph.op("MatMul", values, graph.constant(layer.weight.T))
    bias: Tensor | None = layer.bias
    return product if bias is None else graph.op("Add", product, graph.constant(bias), name=name)


def store_int8(content: bytes) -> bytes:
    """Return a graph with its matrices stored in 8 bits and computed with in 32.

    Each matrix becomes integers from -127 to 127 with one scale per channel, and a node that
    converts them back. ONNX Runtime folds that node when it loads the graph, so predictions do not
    depend on their batch.
    """
    model = load_from_string(content)
    kept: list[TensorProto] = []
    nodes: list[NodeProto] = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim < 2 or array.size < _MIN_QUANTIZED_SIZE:  # noqa: PLR2004
            kept.append(tensor)
            continue
        integers, scales, axis = quantize(array)
        names = [f"{tensor.name}_int8", f"{tensor.name}_scales"]
        kept.append(numpy_helper.from_array(integers, names[0]))
        kept.append(numpy_helper.from_array(scales, names[1]))
        nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis))
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    checker.check_model(model, full_check=True)
    smaller: bytes = model.SerializeToString()
    return smaller


def quantize(array: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32], int]:
    """Return 8-bit integers, the scale of each channel, and the axis of the channels.

    The axis is the one with the smallest error: rows of a table, columns of a product's matrix.

    >>> integers, scales, axis = quantize(np.float32([[1, -2], [100, 50]]))
    >>> axis, integers.tolist()
    (1, [[1, -5], [127, 127]])
    """
    best = None
    for axis in range(array.ndim):
        if array.shape[axis] == 1 or array.shape[axis] * 2 > array.size:
            continue  # one channel, or as many as numbers
        others = tuple(other for other in range(array.ndim) if other != axis)
        scales = np.abs(array).max(others, keepdims=True) / 127
        scales = np.where(scales > 0, scales, 1).astype(np.float32)
        integers = np.rint(array / scales).astype(np.int8)
        error = float(np.square(array - integers * scales).sum())
        if best is None or error < best[0]:
            best = (error, integers, scales.reshape(-1), axis)
    if best is None:
        raise ValueError(f"an array of shape {array.shape} has no channels")
    return best[1:]


def read_matrices(content: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the matrices of a graph by name, in 32 bits however they are stored."""
    graph = load_from_string(content).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {name: a for name, a in arrays.items() if a.ndim == 2 and a.dtype == np.float32}  # noqa: PLR2004
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            integers, scales = (arrays[name] for name in node.input)
            shape = [1] * integers.ndim
            shape[helper.get_node_attr_value(node, "axis")] = -1
            found[node.output[0]] = integers * scales.reshape(shape)
    return found
