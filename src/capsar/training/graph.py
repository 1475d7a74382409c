"""An ONNX graph under construction: every operation returns the name of its result."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

OPSET = 18
IR_VERSION = 10
_TYPES = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float": TensorProto.FLOAT}


class Graph:
    """A graph under construction."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._constants: dict[str, TensorProto] = {}
        self._numbers: Iterator[int] = count()

    def input(self, name: str, kind: str, shape: tuple[str | int, ...]) -> None:
        """Name an input."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))

    def output(self, name: str, shape: tuple[str | int, ...]) -> None:
        """Name a result as an output."""
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:  # noqa: ANN401
        """Add an operation."""
        result = name or f"v{next(self._numbers)}"
        self._nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def choose(
        self, condition: str, then: Callable[[], str], otherwise: Callable[[], str], name: str = ""
    ) -> str:
        """Do one of two things, of which only the one chosen costs time."""
        branches = {"then_branch": self._branch(then), "else_branch": self._branch(otherwise)}
        return self.op("If", condition, name=name, **branches)

    def _branch(self, build: Callable[[], str]) -> GraphProto:
        """Collect what a function adds as a graph of its own, which sees all that was before."""
        outer, self._nodes = self._nodes, []
        result = build()
        inner, self._nodes = self._nodes, outer
        value = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        return helper.make_graph(inner, f"branch_{result}", [], [value])

    def cast(self, value: str, to: int = TensorProto.FLOAT) -> str:
        """Change a value's type."""
        return self.op("Cast", value, to=to)

    def constant(self, value: Tensor | NDArray[np.generic]) -> str:
        """Store an array."""
        array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
        name = f"c{len(self._constants)}"
        self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, value: int | list[int]) -> str:
        """Store a whole number or a list of them."""
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
