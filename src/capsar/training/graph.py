"""A small builder of ONNX graphs, and the layers of the capsule graph written with it.

The layers follow `capsar.model` operation by operation; the tests compare both. Letters of the
shape comments besides those of `capsar.model`: `S` sentences, `A` aspects.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from capsar.model.capsules import CAPSULES_PER_WORD
from capsar.model.network import BETA, GAMMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from capsar.model.capsules import RoutedCapsules
    from capsar.model.network import Capsar

OPSET = 18
IR_VERSION = 10
_TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float": TensorProto.FLOAT}
_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "linear": "Identity"}
_EPS = 1e-8


class Graph:
    """A graph under construction: every operation returns the name of its result."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._constants: dict[str, TensorProto] = {}
        self._numbers: Iterator[int] = count()

    def input(self, name: str, kind: str, shape: tuple[str | int, ...]) -> None:
        """Declare an input."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def output(self, name: str, shape: tuple[str | int, ...]) -> None:
        """Declare a result as an output."""
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:  # noqa: ANN401
        """Add an operation."""
        result = name or f"v{next(self._numbers)}"
        self._nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def choose(
        self, condition: str, then: Callable[[], str], otherwise: Callable[[], str], name: str
    ) -> str:
        """Compute one of two results, depending on a condition."""
        branches = {"then_branch": self._branch(then), "else_branch": self._branch(otherwise)}
        return self.op("If", condition, name=name, **branches)

    def _branch(self, build: Callable[[], str]) -> GraphProto:
        """Return the operations that a function adds as a subgraph."""
        outer, self._nodes = self._nodes, []
        result = build()
        inner, self._nodes = self._nodes, outer
        value = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        return helper.make_graph(inner, f"branch_{result}", [], [value])

    def cast(self, value: str, to: int = TensorProto.FLOAT) -> str:
        """Change the type of a value."""
        return self.op("Cast", value, to=to)

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Insert axes of size one."""
        return self.op("Unsqueeze", value, self.integers(list(axes)))

    def reduce(self, kind: str, value: str, axis: int, *, keepdims: bool = False) -> str:
        """Apply a reduction, such as `ReduceSum`, along one axis."""
        return self.op(kind, value, self.integers([axis]), keepdims=int(keepdims))

    def size(self, value: str, axis: int) -> str:
        """Return the size of one axis, as a scalar."""
        size = self.op("Shape", value, start=axis, end=axis + 1)
        return self.op("Squeeze", size, self.integers([0]))

    def constant(self, value: Tensor | NDArray[np.generic]) -> str:
        """Store an array."""
        array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, value: int | list[int]) -> str:
        """Store an integer or a list of integers."""
        return self.constant(np.array(value, dtype=np.int64))

    def number(self, value: float) -> str:
        """Store a number."""
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


def proximity(graph: Graph, model: Capsar, voting: str) -> str:
    """Return the location proximity of each aspect's tokens (A, T) (eq. 2)."""
    words = graph.op("Where", "mask", "words", graph.integers(-1))  # (S, T)
    last = graph.reduce("ReduceMax", words, 1, keepdims=True)  # (S, 1)
    num_words = graph.cast(graph.op("Add", last, graph.integers(1)))
    reach = graph.op("Mul", num_words, graph.number(1 / BETA))
    reach = graph.op("Add", reach, graph.number(model.model_config.alpha))
    reach = graph.unsqueeze(graph.op("Gather", reach, "sentence"), 2)  # (A, 1, 1)
    first = graph.unsqueeze("first_words", 1)  # (A, 1, M)
    own = graph.unsqueeze(graph.op("Gather", "words", "sentence"), 2)  # (A, T, 1)
    distance = graph.cast(graph.op("Abs", graph.op("Sub", first, own)))  # (A, T, M)
    near = graph.op("Sub", reach, graph.op("Mul", distance, graph.number(GAMMA)))
    near = graph.op("Max", near, graph.number(0))
    is_mention = graph.op("GreaterOrEqual", first, graph.integers(0))
    near = graph.op("Where", is_mention, near, graph.number(0))  # (A, T, M)
    weights = graph.op("Add", graph.reduce("ReduceMax", near, 2), graph.number(1))  # (A, T)
    if model.model_config.proximity_scale == "one":
        largest = graph.reduce("ReduceMax", weights, 1, keepdims=True)  # (A, 1)
        weights = graph.op("Div", weights, largest)
    return graph.op("Mul", weights, voting)


def primary_capsules(graph: Graph, model: Capsar, weights: str) -> str:
    """Return the primary capsules (A, N, P) of the states, weighted per aspect (A, T).

    `conv(l h)_t = sum_w l_(t+w) (W_w h_(t+w))`, so each sentence is projected once and the
    projections are weighted for each of its aspects. Capsules of padding are not zero here; they
    have no vote in routing.
    """
    layer = model.primary
    width, hidden = layer.kernel_width, model.encoder.hidden_dim
    kernel = layer.projection.weight.detach().cpu().numpy()  # (F, width * H)
    kernel = kernel.reshape(-1, width, hidden).transpose(2, 1, 0)  # (H, width, F)
    projected = graph.op("MatMul", "states", graph.constant(kernel.reshape(hidden, -1)))
    rows = graph.op("Reshape", projected, graph.integers([-1, kernel.shape[2]]))
    # Row (s * T + t) * width + w of `rows` is W_w h_t of sentence s.
    num_tokens = graph.size("states", 1)
    position = graph.op("Range", graph.integers(0), num_tokens, graph.integers(1))  # (T)
    shifts = graph.integers([offset - width // 2 for offset in range(width)])
    neighbor = graph.op("Add", graph.unsqueeze(position, 1), shifts)  # (T, width)
    last = graph.op("Sub", num_tokens, graph.integers(1))
    inside = graph.op("Min", graph.op("Max", neighbor, graph.integers(0)), last)  # (T, width)
    is_inside = graph.cast(graph.op("Equal", inside, neighbor))
    index = graph.op("Mul", inside, graph.integers(width))
    index = graph.op("Add", index, graph.integers(list(range(width))))  # (T, width)
    start = graph.op("Mul", "sentence", graph.op("Mul", num_tokens, graph.integers(width)))  # (A)
    index = graph.op("Add", graph.unsqueeze(start, 1, 2), index)  # (A, T, width)
    gathered = graph.op("Gather", rows, index)  # (A, T, width, F)
    own = graph.op("Mul", graph.op("Gather", weights, inside, axis=1), is_inside)  # (A, T, width)
    total = graph.op("MatMul", graph.unsqueeze(own, 2), gathered)  # (A, T, 1, F)
    total = graph.op("Add", total, graph.constant(layer.projection.bias))
    capsules = graph.op(_ACTIVATIONS[model.model_config.activation], total)
    ends = graph.integers([-1, layer.capsule_dim])
    shape = graph.op("Concat", graph.op("Shape", "sentence"), ends, axis=0)
    capsules = graph.op("Reshape", capsules, shape)  # (A, N, P)
    return _squash(graph, capsules) if layer.squashed else capsules


def capsule_votes(graph: Graph, voting: str) -> str:
    """Return the vote of each primary capsule (A, 1, N) from that of each token (A, T)."""
    shape = graph.integers([1, 1, CAPSULES_PER_WORD])
    repeated = graph.op("Expand", graph.unsqueeze(voting, 2), shape)  # (A, T, 6)
    return graph.op("Reshape", repeated, graph.integers([0, 1, -1]))


@dataclass(frozen=True, slots=True)
class RoutedNames:
    """The names of a routed layer's values."""

    layer: RoutedCapsules
    children: str
    """(A, N, P)."""
    parents: str
    """(A, C, D)."""
    inputs: str
    """The parents before squashing (A, C, D)."""
    couplings: str
    """(A, C, N), or a shape that broadcasts to it."""


def route(
    graph: Graph, layer: RoutedCapsules, children: str, votes: str | None = None
) -> RoutedNames:
    """Add shared-weight routing (eq. 4), factored as in `capsar.model.routing`.

    Children whose vote (A, 1, N) is zero add nothing to any parent.
    """
    weight = layer.weight.detach().cpu().numpy()  # (C, D, P)
    gram = weight.transpose(0, 2, 1) @ weight  # (C, P, P)
    share = graph.number(1 / len(weight))
    if votes is None:
        pooled = graph.reduce("ReduceSum", children, 1, keepdims=True)  # (A, 1, P)
    else:
        pooled = graph.op("MatMul", votes, children)  # (A, 1, P)
    pooled = graph.op("Mul", pooled, share)  # equal for all parents until the second iteration
    couplings = None
    for _ in range(layer.iterations - 1):
        if couplings is None:
            turned = _multiply_one(graph, pooled, gram)  # (A, C, P)
        else:
            turned = _multiply_each(graph, pooled, gram)  # (A, C, P)
        squared = graph.reduce("ReduceSum", graph.op("Mul", pooled, turned), 2)  # (A, C)
        squared = graph.op("Max", squared, graph.number(0))
        pulled_back = graph.op("Mul", turned, _squash_factor(graph, squared))  # (A, C, P)
        logits = _dot(graph, pulled_back, children)  # (A, C, N)
        couplings = _softmax_over_parents(graph, logits, votes)
        pooled = graph.op("MatMul", couplings, children)  # (A, C, P)
    kernel = weight.transpose(0, 2, 1)  # (C, P, D)
    if couplings is None:
        couplings = share if votes is None else graph.op("Mul", votes, share)
        inputs = _multiply_one(graph, pooled, kernel)  # (A, C, D)
    else:
        inputs = _multiply_each(graph, pooled, kernel)  # (A, C, D)
    return RoutedNames(layer, children, _squash(graph, inputs), inputs, couplings)


def capsule_lengths(graph: Graph, capsules: str, *, name: str = "") -> str:
    """Return the lengths (A, C) of capsules (A, C, D)."""
    squared = graph.reduce("ReduceSumSquare", capsules, 2)
    return graph.op("Sqrt", graph.op("Add", squared, graph.number(1e-12)), name=name)


def attributions(graph: Graph, routed: Sequence[RoutedNames]) -> str:
    """Return the contribution of each token to each capsule's length (A, C, T)."""
    *lower, last = routed
    length = graph.unsqueeze(capsule_lengths(graph, last.inputs), 2)  # (A, C, 1)
    chained = graph.op("Div", _contributions(graph, last), length)  # (A, C, N)
    for layer in reversed(lower):
        own = _contributions(graph, layer)  # (A, J, N)
        total = graph.reduce("ReduceSum", own, 2, keepdims=True)
        own = graph.op("Div", own, graph.op("Add", total, graph.number(1e-12)))
        chained = graph.op("MatMul", chained, own)  # (A, C, N)
    tokens = graph.op("Reshape", chained, graph.integers([0, 0, -1, CAPSULES_PER_WORD]))
    return graph.reduce("ReduceSum", tokens, 3)


def _contributions(graph: Graph, routed: RoutedNames) -> str:
    """Return what each child adds to each parent along the parent's direction (A, C, N)."""
    weight = routed.layer.weight.detach().cpu().numpy()  # (C, D, P)
    pulled_back = _multiply_each(graph, routed.parents, weight)  # (A, C, P)
    return graph.op("Mul", _dot(graph, pulled_back, routed.children), routed.couplings)


def similarity(graph: Graph, model: Capsar, capsules: str, voting: str) -> str:
    """Return the cosine of each capsule's reconstruction and each token (A, C, T)."""
    layer = model.reconstruction.layer
    classes, capsule_dim = model.sentiment.weight.shape[:2]
    kernel = layer.weight.detach().cpu().numpy()  # (E, C * D)
    blocks = kernel.reshape(-1, classes, capsule_dim).transpose(1, 2, 0)  # (C, D, E)
    reconstructed = _multiply_each(graph, capsules, blocks)  # (A, C, E)
    reconstructed = graph.op("Add", reconstructed, graph.constant(layer.bias))
    words = graph.op("Gather", _normalize(graph, "word_vectors"), "sentence")  # (A, T, E)
    cosines = _dot(graph, _normalize(graph, reconstructed), words)  # (A, C, T)
    is_word = graph.cast(graph.unsqueeze(voting, 1), TensorProto.BOOL)
    return graph.op("Where", is_word, cosines, graph.number(-1))


def _multiply_one(graph: Graph, vector: str, matrices: NDArray[np.float32]) -> str:
    """Multiply one vector (A, 1, P) by the matrix of each parent (C, P, Q): (A, C, Q)."""
    parents, child_dim, size = matrices.shape
    joined = matrices.transpose(1, 0, 2).reshape(child_dim, -1)  # (P, C * Q)
    product = graph.op("MatMul", vector, graph.constant(joined))  # (A, 1, C * Q)
    return graph.op("Reshape", product, graph.integers([-1, parents, size]))


def _multiply_each(graph: Graph, vectors: str, matrices: NDArray[np.float32]) -> str:
    """Multiply the vector of each parent (A, C, P) by its own matrix (C, P, Q): (A, C, Q)."""
    by_parent = graph.op("Transpose", vectors, perm=[1, 0, 2])  # (C, A, P)
    product = graph.op("MatMul", by_parent, graph.constant(matrices))  # (C, A, Q)
    return graph.op("Transpose", product, perm=[1, 0, 2])


def _dot(graph: Graph, vectors: str, others: str) -> str:
    """Return the dot products of vectors (A, C, P) and others (A, N, P): (A, C, N)."""
    return graph.op("MatMul", vectors, graph.op("Transpose", others, perm=[0, 2, 1]))


def _softmax_over_parents(graph: Graph, logits: str, votes: str | None) -> str:
    """Return the softmax of logits (A, C, N) over parents, zero for children without a vote."""
    highest = graph.reduce("ReduceMax", logits, 1, keepdims=True)
    powers = graph.op("Exp", graph.op("Sub", logits, highest))
    total = graph.reduce("ReduceSum", powers, 1, keepdims=True)  # (A, 1, N)
    return graph.op("Mul", powers, graph.op("Div", votes or graph.number(1), total))


def _squash(graph: Graph, vectors: str) -> str:
    """Squash vectors along the last axis (eq. 5)."""
    squared = graph.reduce("ReduceSumSquare", vectors, 2)
    return graph.op("Mul", vectors, _squash_factor(graph, squared))


def _squash_factor(graph: Graph, squared: str) -> str:
    """Return the factor of squash (A, C, 1) for squared lengths (A, C)."""
    root = graph.op("Sqrt", graph.op("Add", squared, graph.number(_EPS**2)))
    factor = graph.op("Div", root, graph.op("Add", squared, graph.number(1)))
    return graph.unsqueeze(factor, 2)


def _normalize(graph: Graph, vectors: str) -> str:
    norm = graph.reduce("ReduceL2", vectors, -1, keepdims=True)
    return graph.op("Div", vectors, graph.op("Max", norm, graph.number(_EPS)))
