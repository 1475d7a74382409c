"""Graphs whose weights are *stored* in 8 bits and computed with in full precision.

Every matrix becomes whole numbers from -127 to 127 with one scale a channel, and a node that turns
them back. An engine that may fold constants does so once, when it loads the graph: from then on it
computes as with any other weights, and no answer depends on its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, checker, helper, load_from_string, numpy_helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto

STORES = ("float32", "int8")
_LEAST_SIZE = 512
"""Of a matrix worth a scale a channel and a node."""


def store_int8(content: bytes) -> bytes:
    """Return a graph with its matrices stored in 8 bits, each along the channels that fit best."""
    model = load_from_string(content)
    kept: list[TensorProto] = []
    nodes: list[NodeProto] = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim < 2 or array.size < _LEAST_SIZE:  # noqa: PLR2004
            kept.append(tensor)
            continue
        numbers, scales, axis = quantize(array)
        names = [f"{tensor.name}_int8", f"{tensor.name}_scales"]
        kept.append(numpy_helper.from_array(numbers, names[0]))
        kept.append(numpy_helper.from_array(scales, names[1]))
        nodes.append(helper.make_node("DequantizeLinear", names, [tensor.name], axis=axis))
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    checker.check_model(model, full_check=True)
    smaller: bytes = model.SerializeToString()
    return smaller


def read_matrices(content: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the matrices of a graph by name, those that are stored in 8 bits turned back."""
    graph = load_from_string(content).graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {name: a for name, a in arrays.items() if a.ndim == 2 and a.dtype == np.float32}  # noqa: PLR2004
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            numbers, scales = (arrays[name] for name in node.input)
            shape = [1] * numbers.ndim
            shape[helper.get_node_attr_value(node, "axis")] = -1
            found[node.output[0]] = numbers * scales.reshape(shape)
    return found


def quantize(array: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32], int]:
    """Return whole numbers, the scale of each channel, and the axis of the channels.

    The axis is the one that loses least: rows of a table, columns of a product's matrix.

    >>> numbers, scales, axis = quantize(np.float32([[1, -2], [100, 50]]))
    >>> axis, numbers.tolist()
    (1, [[1, -5], [127, 127]])
    """
    best = None
    for axis in range(array.ndim):
        if array.shape[axis] == 1 or array.shape[axis] * 2 > array.size:
            continue  # no channels, or as many as numbers
        others = tuple(other for other in range(array.ndim) if other != axis)
        wide = np.abs(array).max(others, keepdims=True) / 127
        wide = np.where(wide > 0, wide, 1).astype(np.float32)
        numbers = np.rint(array / wide).astype(np.int8)
        lost = float(np.square(array - numbers * wide).sum())
        if best is None or lost < best[0]:
            best = (lost, numbers, wide.reshape(-1), axis)
    if best is None:
        raise ValueError(f"an array of shape {array.shape} has no channels")
    return best[1:]
