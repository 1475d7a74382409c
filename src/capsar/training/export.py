"""The network as two ONNX graphs: `encoder.onnx` and `capsules.onnx`.

All arithmetic of an answer is inside the graphs, *about* and *because* included. Sentences are
encoded once and routed as often as they have aspects: the gather from sentences to aspects is in
the capsule graph, behind the projections of the convolution, which do not need the aspect either:
`conv(l h)_t = sum_w l_(t+w) (W_w h_(t+w))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from capsar.model.capsules import RoutedCapsules
    from capsar.model.network import Capsar

OPSET = 18
IR_VERSION = 10
_EPS = 1e-8
_CELL_SETTINGS: dict[str, dict[str, Any]] = {"gru": {"linear_before_reset": 1}, "lstm": {}}
_TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float": TensorProto.FLOAT}


def export_encoder(model: Capsar) -> bytes:
    """Return the graph from word ids to hidden states.

    In: `ids` (S, T), `mask` (S, T). Out: `states` (S, T, H), `word_vectors` (S, T, E).
    """
    graph = _Graph()
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

    In: `states` (S, T, H), `word_vectors` (S, T, E), `mask` (S, T), `words` (S, T), the word each
    position belongs to, `sentence` (A), that of each aspect, `first_words` (A, M), the first word
    of each mention, negative where there is none. Out: `lengths` (A, C), and the scores `about` and
    `because` (A, C, T).
    """
    config = model.model_config
    graph = _Graph()
    graph.input("states", "float", ("S", "T", model.encoder.hidden_dim))
    graph.input("word_vectors", "float", ("S", "T", model.word_vectors.shape[1]))
    graph.input("mask", "bool", ("S", "T"))
    graph.input("words", "int64", ("S", "T"))
    graph.input("sentence", "int64", ("A",))
    graph.input("first_words", "int64", ("A", "M"))
    voting = graph.op("Gather", graph.cast("mask"), "sentence")  # (A, T)
    weights = _proximity(graph, model, voting)  # (A, T)
    children = _primary(graph, model, weights, voting)  # (A, N, P)
    below = children
    layers = [layer for layer in (model.intermediate, model.sentiment) if layer is not None]
    shares = ""
    for number, layer in enumerate(layers):
        last = number == len(layers) - 1
        routed = _route(graph, layer, below)
        own = _child_shares(graph, layer, below, routed)  # (A, children, parents)
        if not last:
            total = graph.op("ReduceSum", own, graph.integers([1]), keepdims=1)
            own = graph.op("Div", own, graph.op("Add", total, graph.number(1e-12)))
            shares = own
        below = routed.parents
    squared = graph.op("ReduceSumSquare", below, graph.integers([2]), keepdims=0)  # (A, C)
    graph.op("Sqrt", graph.op("Add", squared, graph.number(1e-12)), name="lengths")
    _because(graph, own, shares, routed, config.capsules_per_word)
    _about(graph, model, below, voting)
    classes = len(model.sentiment.weight)
    graph.output("lengths", ("A", classes))
    graph.output("about", ("A", classes, "T"))
    graph.output("because", ("A", classes, "T"))
    return graph.serialize("capsules")


class _Graph:
    """A graph under construction; every operation returns the name of its result."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._constants: dict[str, TensorProto] = {}

    def input(self, name: str, kind: str, shape: tuple[str | int, ...]) -> None:
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def output(self, name: str, shape: tuple[str | int, ...]) -> None:
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:  # noqa: ANN401
        result = name or f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def split(self, value: str, number: int) -> list[str]:
        """Cut the last dimension into equal parts."""
        results = [f"v{len(self._nodes)}_{part}" for part in range(number)]
        node = helper.make_node("Split", [value], results, axis=-1, num_outputs=number)
        self._nodes.append(node)
        return results

    def cast(self, value: str, to: int = TensorProto.FLOAT) -> str:
        return self.op("Cast", value, to=to)

    def constant(self, value: Tensor | NDArray[np.generic]) -> str:
        array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, value: int | list[int]) -> str:
        return self.constant(np.array(value, dtype=np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float32))

    def serialize(self, name: str) -> bytes:
        """Return the finished model, checked."""
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, list(self._constants.values())
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="capsar"
        )
        checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content


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


def _proximity(graph: _Graph, model: Capsar, voting: str) -> str:
    """Location proximity (eq. 2), counted in words (A, T)."""
    config = model.model_config
    counted = graph.op("Where", "mask", "words", graph.integers(-1))  # (S, T)
    last = graph.op("ReduceMax", counted, graph.integers([1]), keepdims=1)  # (S, 1)
    length = graph.cast(graph.op("Add", last, graph.integers(1)))
    reach = graph.op("Mul", length, graph.number(1 / config.beta))
    reach = graph.op("Add", reach, graph.number(config.alpha))
    reach = graph.op("Unsqueeze", graph.op("Gather", reach, "sentence"), graph.integers([2]))
    places = graph.op("Unsqueeze", graph.op("Gather", "words", "sentence"), graph.integers([2]))
    first = graph.op("Unsqueeze", "first_words", graph.integers([1]))  # (A, 1, M)
    distance = graph.cast(graph.op("Abs", graph.op("Sub", first, places)))  # (A, T, M)
    near = graph.op("Sub", reach, graph.op("Mul", distance, graph.number(config.gamma)))
    near = graph.op("Max", near, graph.number(0))
    given = graph.op("GreaterOrEqual", first, graph.integers(0))
    near = graph.op("Where", given, near, graph.number(0))  # (A, T, M)
    near = graph.op("ReduceMax", near, graph.integers([2]), keepdims=0)  # (A, T)
    return graph.op("Mul", graph.op("Add", near, graph.number(1)), voting)


def _primary(graph: _Graph, model: Capsar, weights: str, voting: str) -> str:
    """Primary capsules (A, N, P): projected for each sentence, weighted for each aspect."""
    layer = model.primary
    width, hidden = layer.kernel_width, model.encoder.hidden_dim
    kernel = layer.projection.weight.detach().cpu().numpy()  # (F, width * H)
    features = kernel.shape[0]
    per_offset = kernel.reshape(features, width, hidden).transpose(2, 1, 0)  # (H, width, F)
    projected = graph.op("MatMul", "states", graph.constant(per_offset.reshape(hidden, -1)))
    gathered = graph.op("Gather", projected, "sentence")  # (A, T, width * F)
    column = graph.op("Unsqueeze", weights, graph.integers([2]))  # (A, T, 1)
    parts = graph.split(graph.op("Mul", gathered, column), width)  # width x (A, T, F)
    total = graph.constant(layer.projection.bias)
    for index, part in enumerate(parts):
        total = graph.op("Add", _shift(graph, part, index - width // 2), total)
    mask = graph.op("Unsqueeze", voting, graph.integers([2]))
    total = graph.op("Mul", total, mask)
    activation = {"relu": "Relu", "tanh": "Tanh", "linear": "Identity"}[
        model.model_config.activation
    ]
    capsules = graph.op(activation, total)
    # -1 is the number of words times capsules a word; A stays as it is.
    capsules = graph.op("Reshape", capsules, graph.integers([0, -1, layer.capsule_dim]))
    return _squash(graph, capsules) if layer.squashed else capsules


def _shift(graph: _Graph, part: str, offset: int) -> str:
    """Bring each word the features of the word `offset` places to its right; zeros at the ends."""
    if not offset:
        return part
    pads = [0, max(0, -offset), 0, 0, max(0, offset), 0]
    padded = graph.op("Pad", part, graph.integers(pads), graph.number(0))
    start, end = (offset, 2**31) if offset > 0 else (0, offset)
    return graph.op(
        "Slice", padded, graph.integers([start]), graph.integers([end]), graph.integers([1])
    )


@dataclass(frozen=True, slots=True)
class _Routed:
    parents: str
    inputs: str
    couplings: str | None


def _route(graph: _Graph, layer: RoutedCapsules, children: str) -> _Routed:
    """Shared-weight routing (eq. 4), factored as in `capsar.model.routing`."""
    weight = layer.weight.detach().cpu().numpy()  # (C, D, P)
    parents, _, child_dim = weight.shape
    gram = weight.transpose(0, 2, 1) @ weight  # (C, P, P)
    pooled = graph.op("ReduceSum", children, graph.integers([1]), keepdims=0)  # (A, P)
    pooled = graph.op("Mul", pooled, graph.number(1 / parents))
    couplings = None
    for iteration in range(layer.iterations - 1):
        if iteration == 0:  # equal for every parent: one product for all of them
            joined = graph.constant(gram.transpose(1, 0, 2).reshape(child_dim, -1))
            turned = graph.op("MatMul", pooled, joined)  # (A, C * P)
            turned = graph.op("Reshape", turned, graph.integers([-1, parents, child_dim]))
            own = graph.op("Unsqueeze", pooled, graph.integers([1]))  # (A, 1, P)
        else:
            turned = _each(graph, pooled, gram)
            own = pooled
        squared = graph.op(
            "ReduceSum", graph.op("Mul", own, turned), graph.integers([2]), keepdims=1
        )
        squared = graph.op("Max", squared, graph.number(0))
        key = graph.op("Mul", turned, _factor(graph, squared))  # (A, C, P)
        agreement = graph.op("MatMul", children, graph.op("Transpose", key, perm=[0, 2, 1]))
        couplings = graph.op("Softmax", agreement, axis=-1)  # (A, N, C)
        pooled = graph.op("MatMul", graph.op("Transpose", couplings, perm=[0, 2, 1]), children)
    if couplings is None:
        raw = graph.op("MatMul", pooled, graph.constant(weight.reshape(-1, child_dim).T))
        raw = graph.op("Reshape", raw, graph.integers([-1, parents, weight.shape[1]]))
    else:
        raw = _each(graph, pooled, weight.transpose(0, 2, 1))  # (A, C, D)
    return _Routed(_squash(graph, raw), raw, couplings)


def _child_shares(graph: _Graph, layer: RoutedCapsules, children: str, routed: _Routed) -> str:
    """What each child adds to each parent along its direction (A, N, C)."""
    pulled_back = _each(graph, routed.parents, layer.weight.detach().cpu().numpy())  # (A, C, P)
    agreement = graph.op("MatMul", children, graph.op("Transpose", pulled_back, perm=[0, 2, 1]))
    if routed.couplings is None:
        return graph.op("Mul", agreement, graph.number(1 / len(layer.weight)))
    return graph.op("Mul", agreement, routed.couplings)


def _because(graph: _Graph, own: str, below: str, routed: _Routed, capsules_per_word: int) -> None:
    """Chain the shares of both layers, so that they sum to the capsule's length."""
    squared = graph.op("ReduceSumSquare", routed.inputs, graph.integers([2]), keepdims=0)  # (A, C)
    length = graph.op("Sqrt", graph.op("Add", squared, graph.number(1e-12)))
    own = graph.op("Div", own, graph.op("Unsqueeze", length, graph.integers([1])))
    shares = graph.op("MatMul", below, own) if below else own  # (A, N, C)
    shares = graph.op("Transpose", shares, perm=[0, 2, 1])  # (A, C, N)
    shape = graph.integers([0, 0, -1, capsules_per_word])
    words = graph.op("Reshape", shares, shape)  # (A, C, T, 6)
    graph.op("ReduceSum", words, graph.integers([3]), keepdims=0, name="because")


def _about(graph: _Graph, model: Capsar, capsules: str, voting: str) -> None:
    """Open each capsule alone, and compare what it stands for with every word (A, C, T)."""
    layer = model.reconstruction.layer
    classes, capsule_dim = model.sentiment.weight.shape[:2]
    kernel = layer.weight.detach().cpu().numpy()  # (E, C * D)
    blocks = kernel.reshape(-1, classes, capsule_dim).transpose(1, 2, 0)  # (C, D, E)
    opened = graph.op("Add", _each(graph, capsules, blocks), graph.constant(layer.bias))
    directions = _normalize(graph, opened)  # (A, C, E)
    words = graph.op("Gather", _normalize(graph, "word_vectors"), "sentence")  # (A, T, E)
    cosines = graph.op("MatMul", directions, graph.op("Transpose", words, perm=[0, 2, 1]))
    kept = graph.cast(graph.op("Unsqueeze", voting, graph.integers([1])), TensorProto.BOOL)
    graph.op("Where", kept, cosines, graph.number(-1), name="about")


def _each(graph: _Graph, vectors: str, matrices: NDArray[np.float32]) -> str:
    """Multiply the vectors of each parent (A, C, P) by its own matrix (C, P, Q): (A, C, Q)."""
    turned = graph.op("Transpose", vectors, perm=[1, 0, 2])
    product = graph.op("MatMul", turned, graph.constant(matrices))
    return graph.op("Transpose", product, perm=[1, 0, 2])


def _squash(graph: _Graph, vectors: str) -> str:
    """Squash (eq. 5) along the last dimension."""
    squared = graph.op("ReduceSumSquare", vectors, graph.integers([-1]), keepdims=1)
    return graph.op("Mul", vectors, _factor(graph, squared))


def _factor(graph: _Graph, squared: str) -> str:
    root = graph.op("Sqrt", graph.op("Add", squared, graph.number(_EPS)))
    below = graph.op("Mul", graph.op("Add", squared, graph.number(1)), root)
    return graph.op("Div", squared, below)


def _normalize(graph: _Graph, vectors: str) -> str:
    norm = graph.op("ReduceL2", vectors, graph.integers([-1]), keepdims=1)
    return graph.op("Div", vectors, graph.op("Max", norm, graph.number(_EPS)))
