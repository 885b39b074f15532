"""Build an ONNX graph; its values support the operators of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cavity.typing import IntArray

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

OPSET = 17
ML_OPSET = 3
IR_VERSION = 8
"""The file version that belongs to the opset: older runtimes refuse newer files."""
MOST_BYTES = 2_000_000_000
"""Largest size of the constants of a graph: a file of ONNX has less than 2 GB."""


def require_onnx() -> ModuleType:
    """Import onnx; an ImportError names the extra to install."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "cavity.export.onnx needs the package onnx: pip install 'cavity[onnx]'"
        ) from error
    return onnx


class Graph:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self._onnx = require_onnx()
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._domains: set[str] = {""}
        self._n_names = 0

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> Value:
        """Declare an input of the given NumPy dtype (object: strings)."""
        helper = self._onnx.helper
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, element, list(shape)))
        return Value(self, name)

    def output(self, value: Value, name: str, dtype: DTypeLike, shape: Sequence[int | str]) -> None:
        """Declare a value as an output of that name."""
        helper = self._onnx.helper
        self._nodes.append(helper.make_node("Identity", [value.name], [name]))
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._outputs.append(helper.make_tensor_value_info(name, element, list(shape)))

    def constant(self, values: ArrayLike) -> Value:
        """Add a constant array to the graph; floats become float64."""
        array = np.asarray(values)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        elif array.dtype.kind in "US":
            array = array.astype(object)
        name = f"_constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return Value(self, name)

    def tensor(self, values: ArrayLike) -> TensorProto:
        """Values as an attribute of an operator."""
        found: TensorProto = self._onnx.numpy_helper.from_array(np.asarray(values))
        return found

    def op(self, kind: str, *operands: Operand, domain: str = "", **attributes: Attribute) -> Value:
        """Add a node with one result; operands that are not values are added as constants."""
        names = [self.value(operand).name for operand in operands]
        name = self._new_name(kind)
        self._domains.add(domain)
        self._nodes.append(self._onnx.helper.make_node(kind, names, [name], domain=domain, **attributes))
        return Value(self, name)

    def _new_name(self, kind: str) -> str:
        self._n_names += 1
        return f"_{self._n_names}_{kind}"

    def for_each(self, numbers: Value, start: Value, body: Callable[[Value, Value], Value]) -> Value:
        """What is left of `start` after ``matrix = body(number, matrix)`` for each of the numbers [k].

        numbers: int64; start: a float64 matrix. The body may use all values that were made before.
        """
        helper, types = self._onnx.helper, self._onnx.TensorProto
        turn, goes_on, before = map(self._new_name, ("turn", "goes_on", "before"))
        outside, self._nodes = self._nodes, []
        after = body(numbers.op("Gather", Value(self, turn)), Value(self, before))
        still = Value(self, goes_on).op("Identity")
        nodes, self._nodes = self._nodes, outside
        inner = helper.make_graph(
            nodes,
            self._new_name("body"),
            [
                helper.make_tensor_value_info(turn, types.INT64, []),
                helper.make_tensor_value_info(goes_on, types.BOOL, []),
                helper.make_tensor_value_info(before, types.DOUBLE, None),
            ],
            [
                helper.make_tensor_value_info(still.name, types.BOOL, []),
                helper.make_tensor_value_info(after.name, types.DOUBLE, None),
            ],
        )
        return self.op("Loop", numbers.op("Size"), np.array(True), start, body=inner)

    def value(self, operand: Operand) -> Value:
        """Return the operand if it is a value, else add it as a constant."""
        return operand if isinstance(operand, Value) else self.constant(operand)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Join columns side by side."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)

    def model(self, description: str, metadata: dict[str, str]) -> ModelProto:
        """Finish and check the ModelProto."""
        size = sum(constant.ByteSize() for constant in self._constants)
        if size > MOST_BYTES:
            raise ValueError(
                f"the model has {size / 1e9:.1f} GB, and a file of ONNX has at most 2; save it with "
                "cavity.save, or fit it with fewer inducing points, or fewer leaves"
            )
        helper = self._onnx.helper
        versions = {"": OPSET, "ai.onnx.ml": ML_OPSET}
        model: ModelProto = helper.make_model(
            helper.make_graph(self._nodes, "cavity", self._inputs, self._outputs, self._constants),
            opset_imports=[helper.make_opsetid(domain, versions[domain]) for domain in self._domains],
            ir_version=IR_VERSION,
            producer_name="cavity",
            doc_string=description,
        )
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model)
        return model


class Value:
    """A float64 matrix in a graph, with one row for each row of X.

    ``+ - * / @`` and the methods below add nodes to the graph. Operands may be arrays, and broadcast as
    in NumPy.
    """

    __array_ufunc__ = None  # array + value calls Value.__radd__

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = name

    def op(self, kind: str, *others: Operand, domain: str = "", **attributes: Attribute) -> Value:
        """Apply an ONNX operator with this value as the first operand."""
        return self.graph.op(kind, self, *others, domain=domain, **attributes)

    def __add__(self, other: Operand) -> Value:
        return self.op("Add", _number(other))

    def __radd__(self, other: Operand) -> Value:
        return self.graph.op("Add", _number(other), self)

    def __sub__(self, other: Operand) -> Value:
        return self.op("Sub", _number(other))

    def __rsub__(self, other: Operand) -> Value:
        return self.graph.op("Sub", _number(other), self)

    def __mul__(self, other: Operand) -> Value:
        return self.op("Mul", _number(other))

    def __rmul__(self, other: Operand) -> Value:
        return self.graph.op("Mul", _number(other), self)

    def __truediv__(self, other: Operand) -> Value:
        return self.op("Div", _number(other))

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph.op("Div", _number(other), self)

    def __matmul__(self, other: Operand) -> Value:
        # Not MatMul: ONNX Runtime would fold neighbouring factors into a float32 attribute of it.
        return self.op("Gemm", _number(other))

    def __pow__(self, exponent: float) -> Value:
        return self.op("Pow", float(exponent))

    def __neg__(self) -> Value:
        return self.op("Neg")

    def __abs__(self) -> Value:
        return self.op("Abs")

    def __lt__(self, other: Operand) -> Value:
        return self.op("Less", _number(other))

    def __gt__(self, other: Operand) -> Value:
        return self.op("Greater", _number(other))

    def exp(self) -> Value:
        """Exponential function."""
        return self.op("Exp")

    def log(self) -> Value:
        """Natural logarithm."""
        return self.op("Log")

    def sqrt(self) -> Value:
        """Square root."""
        return self.op("Sqrt")

    def at_most(self, bound: Operand) -> Value:
        """The smaller of the value and the bound."""
        return self.op("Min", _number(bound))

    def at_least(self, bound: Operand) -> Value:
        """The larger of the value and the bound."""
        return self.op("Max", _number(bound))

    def flat(self) -> Value:
        """The numbers [N, k] row by row, as [N·k]; a column [N, 1] becomes [N]."""
        return self.op("Reshape", np.array([-1], dtype=np.int64))

    @property
    def T(self) -> Value:  # noqa: N802
        """Rows as columns."""
        return self.op("Transpose")

    def sum(self) -> Value:
        """Sum over columns, [N, 1]."""
        return self.op("ReduceSum", np.array([1], dtype=np.int64), keepdims=1)

    def where(self, yes: Operand, no: Operand) -> Value:
        """`yes` where this comparison holds, `no` elsewhere."""
        return self.op("Where", _number(yes), _number(no))

    def columns(self, index: Sequence[int] | IntArray) -> Value:
        """Select columns by number."""
        return self.op("Gather", np.asarray(index, dtype=np.int64), axis=1)

    def cast(self, dtype: DTypeLike) -> Value:
        """Convert to another element type."""
        onnx = self.graph._onnx
        return self.op("Cast", to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _number(operand: Operand) -> Operand:
    """Convert integers to floats, because ONNX operators do not mix types."""
    return operand if isinstance(operand, Value) else np.asarray(operand, dtype=np.float64)


Operand: TypeAlias = Value | ArrayLike
"""Operand of an operator: a value of the graph, or anything that NumPy can convert to an array."""
Attribute: TypeAlias = "int | float | str | Sequence[int] | Sequence[str] | GraphProto | TensorProto"
"""Attribute of an ONNX operator."""
