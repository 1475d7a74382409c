"""The parts of the capsule graph, from hidden states to capsules and word scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from capsar.model.capsules import RoutedCapsules
    from capsar.model.network import Capsar
    from capsar.training.graph import Graph

_EPS = 1e-8
_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "linear": "Identity"}


def proximity(graph: Graph, model: Capsar, voting: str) -> str:
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
    weights = graph.op("Add", near, graph.number(1))
    if config.proximity_scale == "one":
        largest = graph.op("ReduceMax", weights, graph.integers([1]), keepdims=1)  # (A, 1)
        weights = graph.op("Div", weights, largest)
    return graph.op("Mul", weights, voting)


def primary_capsules(graph: Graph, model: Capsar, weights: str) -> str:
    """Primary capsules (A, N, P): a convolution over the states, weighted for each aspect.

    Those of padding are not zero: it is routing that gives them no vote. There may be those of one
    word more than there are.

    With few aspects a sentence it is cheapest to weight the states and then to save products
    (`_paired`); with many, to project each sentence once and to weight the projections (`_shared`).
    """
    layer = model.primary
    width, hidden = layer.kernel_width, model.encoder.hidden_dim
    kernel = layer.projection.weight.detach().cpu().numpy()  # (F, width * H)
    per_offset = kernel.reshape(-1, width, hidden).transpose(1, 2, 0)  # (width, H, F)
    kernels = [graph.constant(part) for part in per_offset]
    bias = graph.constant(layer.projection.bias)
    if width == 3:  # noqa: PLR2004
        sentences = graph.op("Shape", "states", start=0, end=1)
        aspects = graph.op("Shape", "sentence")
        twice = graph.op("Mul", aspects, graph.integers(2))
        few = graph.op("LessOrEqual", twice, graph.op("Mul", sentences, graph.integers(3)))
        few = graph.op("Squeeze", few, graph.integers([0]))
        halves = [graph.op("Mul", k, graph.number(0.5)) for k in kernels]
        outer = graph.op("Add", halves[0], halves[2])
        pair = [graph.op("Add", outer, halves[1]), graph.op("Sub", outer, halves[1])]
        wide = graph.op("Concat", *kernels, axis=1)  # (H, width * F)
        total = graph.choose(
            few,
            lambda: _paired(graph, weights, [kernels[0], *pair, kernels[2]], bias, hidden),
            lambda: _shared(graph, weights, wide, bias, width),
        )
    else:
        wide = graph.op("Concat", *kernels, axis=1)
        total = _shared(graph, weights, wide, bias, width)
    capsules = graph.op(_ACTIVATIONS[model.model_config.activation], total)
    # -1 is the number of words, or one more, times capsules a word.
    ends = graph.integers([-1, layer.capsule_dim])
    shape = graph.op("Concat", graph.op("Shape", "sentence"), ends, axis=0)
    capsules = graph.op("Reshape", capsules, shape)
    return _squash(graph, capsules) if layer.squashed else capsules


def _paired(graph: Graph, weights: str, kernels: list[str], bias: str, hidden: int) -> str:
    """The convolution of the weighted states (A * T' / 2, 2 F), two words at a time.

    Two neighbouring words need six products of a state and a kernel; Winograd's F(2, 3) makes them
    from four.
    """
    words = graph.op("Squeeze", graph.op("Shape", "states", start=1, end=2), graph.integers([0]))
    padded = graph.op("Pad", weights, graph.integers([0, 1, 0, 3]), graph.number(0))
    rows = graph.op("Reshape", "states", graph.integers([-1, hidden]))  # (S * T, H)
    start = graph.op("Unsqueeze", graph.op("Mul", "sentence", words), graph.integers([1]))  # (A, 1)
    pairs = graph.op("Range", graph.integers(0), words, graph.integers(2))  # (T' / 2)

    def weighted(offset: int) -> str:
        """The weighted states of the words so far from the first of each pair (A * T' / 2, H)."""
        place = graph.op("Add", pairs, graph.integers(offset))
        weight = graph.op("Gather", padded, graph.op("Add", place, graph.integers(1)), axis=1)
        last = graph.op("Sub", words, graph.integers(1))
        inside = graph.op("Min", graph.op("Max", place, graph.integers(0)), last)
        states = graph.op("Gather", rows, graph.op("Add", start, inside))  # (A, T' / 2, H)
        states = graph.op("Mul", states, graph.op("Unsqueeze", weight, graph.integers([2])))
        return graph.op("Reshape", states, graph.integers([-1, hidden]))

    before, first, second, after = (weighted(offset) for offset in (-1, 0, 1, 2))
    both = graph.op("Gemm", graph.op("Add", first, second), kernels[1], bias)
    apart = graph.op("MatMul", graph.op("Sub", second, first), kernels[2])
    left, right = graph.op("Sub", before, second), graph.op("Sub", after, first)
    one = graph.op("Gemm", left, kernels[0], graph.op("Add", both, apart))
    other = graph.op("Gemm", right, kernels[3], graph.op("Sub", both, apart))
    return graph.op("Concat", one, other, axis=1)  # (A * T' / 2, 2 F)


def _shared(graph: Graph, weights: str, wide: str, bias: str, width: int) -> str:
    """The convolution of the weighted states (A, T, F), each sentence projected once.

    `conv(l h)_t = sum_w l_(t+w) (W_w h_(t+w))`: the projections do not need the aspect.
    """
    projected = graph.op("MatMul", "states", wide)  # (S, T, width * F)
    rows = graph.op("Reshape", projected, graph.op("Concat", graph.integers([-1]),
                    graph.op("Shape", bias), axis=0))  # fmt: skip  # (S * T * width, F)
    size = graph.op("Squeeze", graph.op("Shape", "states", start=1, end=2), graph.integers([0]))
    place = graph.op("Range", graph.integers(0), size, graph.integers(1))
    offsets = graph.integers([offset - width // 2 for offset in range(width)])
    wanted = graph.op("Add", graph.op("Unsqueeze", place, graph.integers([1])), offsets)
    last = graph.op("Sub", size, graph.integers(1))
    there = graph.op("Min", graph.op("Max", wanted, graph.integers(0)), last)  # (T, width)
    inside = graph.cast(graph.op("Equal", there, wanted))
    index = graph.op("Mul", there, graph.integers(width))
    index = graph.op("Add", index, graph.integers(list(range(width))))  # (T, width)
    start = graph.op("Mul", "sentence", graph.op("Mul", size, graph.integers(width)))
    index = graph.op("Add", graph.op("Unsqueeze", start, graph.integers([1, 2])), index)
    gathered = graph.op("Gather", rows, index)  # (A, T, width, F)
    own = graph.op("Mul", graph.op("Gather", weights, there, axis=1), inside)  # (A, T, width)
    summed = graph.op("MatMul", graph.op("Unsqueeze", own, graph.integers([2])), gathered)
    return graph.op("Add", graph.op("Squeeze", summed, graph.integers([2])), bias)


@dataclass(frozen=True, slots=True)
class Routed:
    """A routed layer: names of its values."""

    layer: RoutedCapsules
    children: str
    """(A, N, P)."""
    parents: str
    inputs: str
    """The parents before squashing (A, C, D)."""
    couplings: str
    """(A, C, N), or what becomes that by broadcasting."""


def votes(graph: Graph, voting: str, children: str, capsules_per_word: int) -> str:
    """Whether each primary capsule votes (A, 1, N), from whether each word does (A, T)."""
    column = graph.op("Unsqueeze", voting, graph.integers([2]))
    shape = graph.integers([1, 1, capsules_per_word])
    repeated = graph.op("Expand", column, shape)  # (A, T, 6)
    repeated = graph.op("Reshape", repeated, graph.integers([0, 1, -1]))
    number = graph.op("Shape", children, start=1, end=2)
    missing = graph.op("Sub", number, graph.op("Shape", repeated, start=2, end=3))
    edges = graph.op("Concat", graph.integers([0, 0, 0, 0, 0]), missing, axis=0)
    return graph.op("Pad", repeated, edges, graph.number(0))


def route(graph: Graph, layer: RoutedCapsules, children: str, votes: str | None = None) -> Routed:
    """Shared-weight routing (eq. 4), factored as in `capsar.model.routing`.

    Where `votes` (A, 1, N) is zero, a child adds nothing to any parent.
    """
    weight = layer.weight.detach().cpu().numpy()  # (C, D, P)
    parents, _, child_dim = weight.shape
    gram = weight.transpose(0, 2, 1) @ weight  # (C, P, P)
    if votes is None:
        pooled = graph.op("ReduceSum", children, graph.integers([1]), keepdims=0)  # (A, P)
    else:
        pooled = graph.op("Squeeze", graph.op("MatMul", votes, children), graph.integers([1]))
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
            "ReduceSum", graph.op("Mul", own, turned), graph.integers([2]), keepdims=0
        )  # (A, C)
        squared = graph.op("Max", squared, graph.number(0))
        key = graph.op("Mul", turned, _factor(graph, squared))  # (A, C, P)
        couplings = _softmax_of_parents(graph, _agreement(graph, key, children), votes)
        pooled = graph.op("MatMul", couplings, children)  # (A, C, P)
    if couplings is None:
        share = graph.number(1 / parents)
        couplings = share if votes is None else graph.op("Mul", votes, share)
        raw = graph.op("MatMul", pooled, graph.constant(weight.reshape(-1, child_dim).T))
        raw = graph.op("Reshape", raw, graph.integers([-1, parents, weight.shape[1]]))
    else:
        raw = _each(graph, pooled, weight.transpose(0, 2, 1))  # (A, C, D)
    return Routed(layer, children, _squash(graph, raw), raw, couplings)


def _agreement(graph: Graph, keys: str, children: str) -> str:
    """The product of each parent's key (A, C, P) and each child (A, N, P): (A, C, N)."""
    return graph.op("MatMul", keys, graph.op("Transpose", children, perm=[0, 2, 1]))


def _softmax_of_parents(graph: Graph, logits: str, votes: str | None) -> str:
    """Softmax over the parents (A, C, N), children side by side; zero where there is no vote."""
    highest = graph.op("ReduceMax", logits, graph.integers([1]), keepdims=1)
    powers = graph.op("Exp", graph.op("Sub", logits, highest))
    total = graph.op("ReduceSum", powers, graph.integers([1]), keepdims=1)  # (A, 1, N)
    share = graph.op("Div", votes or graph.number(1), total)
    return graph.op("Mul", powers, share)


def capsule_lengths(graph: Graph, capsules: str, *, name: str = "") -> str:
    """The lengths of capsules (A, C, D): (A, C)."""
    squared = graph.op("ReduceSumSquare", capsules, graph.integers([2]), keepdims=0)
    return graph.op("Sqrt", graph.op("Add", squared, graph.number(1e-12)), name=name)


def because(graph: Graph, model: Capsar, routed: Sequence[Routed]) -> str:
    """Chain the shares of both layers, so that they sum to the capsule's length (A, C, T)."""
    *lower, last = routed
    length = capsule_lengths(graph, last.inputs)
    shares = graph.op("Div", _child_shares(graph, last),
                      graph.op("Unsqueeze", length, graph.integers([2])))  # fmt: skip  # (A, C, N')
    for layer in reversed(lower):
        own = _child_shares(graph, layer)  # (A, N', N)
        total = graph.op("ReduceSum", own, graph.integers([2]), keepdims=1)
        own = graph.op("Div", own, graph.op("Add", total, graph.number(1e-12)))
        shares = graph.op("MatMul", shares, own)  # (A, C, N)
    shape = graph.integers([0, 0, -1, model.model_config.capsules_per_word])
    words = graph.op("Reshape", shares, shape)  # (A, C, T', 6)
    summed = graph.op("ReduceSum", words, graph.integers([3]), keepdims=0)
    number = graph.op("Shape", "states", start=1, end=2)
    return graph.op("Slice", summed, graph.integers([0]), number, graph.integers([2]))


def _child_shares(graph: Graph, routed: Routed) -> str:
    """What each child adds to each parent along its direction (A, C, N)."""
    weight = routed.layer.weight.detach().cpu().numpy()
    pulled_back = _each(graph, routed.parents, weight)  # (A, C, P)
    agreement = _agreement(graph, pulled_back, routed.children)
    return graph.op("Mul", agreement, routed.couplings)


def about(graph: Graph, model: Capsar, capsules: str, voting: str) -> str:
    """Open each capsule alone, and compare what it stands for with every word (A, C, T)."""
    layer = model.reconstruction.layer
    classes, capsule_dim = model.sentiment.weight.shape[:2]
    kernel = layer.weight.detach().cpu().numpy()  # (E, C * D)
    blocks = kernel.reshape(-1, classes, capsule_dim).transpose(1, 2, 0)  # (C, D, E)
    opened = graph.op("Add", _each(graph, capsules, blocks), graph.constant(layer.bias))
    directions = _normalize(graph, opened)  # (A, C, E)
    words = graph.op("Gather", _normalize(graph, "word_vectors"), "sentence")  # (A, T, E)
    cosines = _agreement(graph, directions, words)
    kept = graph.cast(graph.op("Unsqueeze", voting, graph.integers([1])), TensorProto.BOOL)
    return graph.op("Where", kept, cosines, graph.number(-1))


def _each(graph: Graph, vectors: str, matrices: NDArray[np.float32]) -> str:
    """Multiply the vectors of each parent (A, C, P) by its own matrix (C, P, Q): (A, C, Q)."""
    turned = graph.op("Transpose", vectors, perm=[1, 0, 2])
    product = graph.op("MatMul", turned, graph.constant(matrices))
    return graph.op("Transpose", product, perm=[1, 0, 2])


def _squash(graph: Graph, vectors: str) -> str:
    """Squash (eq. 5) along the last dimension."""
    squared = graph.op("ReduceSumSquare", vectors, graph.integers([2]), keepdims=0)
    return graph.op("Mul", vectors, _factor(graph, squared))


def _factor(graph: Graph, squared: str) -> str:
    """What squash multiplies vectors by (A, C, 1), from their squared lengths (A, C)."""
    root = graph.op("Sqrt", graph.op("Add", squared, graph.number(_EPS**2)))
    factor = graph.op("Div", root, graph.op("Add", squared, graph.number(1)))
    return graph.op("Unsqueeze", factor, graph.integers([2]))


def _normalize(graph: Graph, vectors: str) -> str:
    norm = graph.op("ReduceL2", vectors, graph.integers([-1]), keepdims=1)
    return graph.op("Div", vectors, graph.op("Max", norm, graph.number(_EPS)))
