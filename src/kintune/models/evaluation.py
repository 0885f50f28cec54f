"""Runs single nodes with constant inputs, and whole graphs, in onnxruntime without optimisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper

from kintune.models.byte_products import with_exact_products
from kintune.models.integer_division import without_overflow
from kintune.models.onnx_nodes import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["DEVIATING", "LOG_FATAL", "RANDOM", "deviates", "evaluate", "open_session"]

LOG_FATAL = 4
"""onnxruntime's log level at which it writes fatal errors alone."""

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose results are random."""

_NUMERIC = "biuf"

_BITS = "tensor(float8"
"""The beginning of types whose bits onnxruntime returns as integers."""

_EXACT = 1 << 18
"""Sums of squares of 65,536 integers up to this one are integers that float64 holds."""

_Type: TypeAlias = "np.dtype[Any] | None"
_Values: TypeAlias = "NDArray[Any] | None"


def _may_be_special(dtype: _Type, values: _Values) -> bool:
    """Whether floats may be infinite or NaN."""
    return (dtype is None or dtype.kind == "f") and (values is None or not np.isfinite(values).all())


def _may_be_wide(dtype: _Type, values: _Values) -> bool:
    """Whether values may have more digits than float32 holds."""
    return dtype is None or dtype == np.float64 or (dtype.kind in "iu" and dtype.itemsize > 2)


def _is_beyond_doubles(dtype: _Type, values: _Values) -> bool:
    """Whether sums of integers may have more digits than float64 holds; what is not known is a size or an index."""
    return dtype == np.int64 and values is not None and bool(((values > _EXACT) | (values < -_EXACT)).any())


_DEVIATIONS: dict[str, Callable[[_Type, _Values], bool]] = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "ArgMax", "ArgMin"), _may_be_special),
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceSumSquare"), _is_beyond_doubles),
    **dict.fromkeys(
        ("InstanceNormalization", "LRN", "MeanVarianceNormalization", "QLinearSoftmax"), lambda dtype, values: True
    ),
    **dict.fromkeys(
        ("DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"),
        lambda dtype, values: values is not None and not values.size,
    ),
    "OneHot": lambda dtype, values: dtype is None or dtype.kind == "f",
    "PRelu": lambda dtype, values: values is None or not values.all(),
    "Resize": lambda dtype, values: dtype is None or dtype == np.int8,
    "Shrink": _may_be_wide,
}
"""Operators of which onnxruntime computes something else than their definition, by the first operand's type and values.

It ignores most NaN in maxima, sums 64-bit integers in float64, computes Shrink of float64 and integers in float32, does
not write quantised products of no elements, finds no place for an index with a fraction, may make 0 of zero times an
infinite slope, and of negative bytes in a Resize with antialias; the others differ in single elements (equal ones of a
MeanVarianceNormalization are NaN).
"""


DEVIATING = frozenset(_DEVIATIONS)
"""The operators of which `deviates` is true for some types or values."""


def deviates(operator: str, dtype: _Type, values: _Values = None) -> bool:
    """Whether onnxruntime may not compute what an operator is defined to, of a first operand of this type.

    `values` has its elements; None where they are not known, as where `dtype` is not.
    """
    test = _DEVIATIONS.get(operator)
    return test is not None and test(dtype, values)


def evaluate(node: NodeProto, values: Sequence[NDArray[Any] | None], opset: int) -> list[NDArray[Any]] | None:
    """Returns the outputs that onnxruntime computes for a node with these inputs, without optimisation.

    An input that is None is left out.  An output without a name is an empty array in the list.

    Returns None for operators whose results are random, where inputs or outputs are no tensors of numbers, where
    onnxruntime deviates from the definition or returns bits, and where it fails.
    """
    if node.op_type in RANDOM | {"Dropout"} or any(
        value is not None and value.dtype.kind not in _NUMERIC for value in values
    ):
        return None
    if values and values[0] is not None and deviates(node.op_type, values[0].dtype, values[0]):
        return None
    values = without_overflow(node, values)
    try:
        session = open_session(_model(node, values, opset))
        feeds = {name: value for name, value in zip(node.input, values, strict=True) if value is not None}
        if any(each.type.startswith(_BITS) for each in session.get_outputs()):
            return None
        names = [name for name in node.output if name]
        computed = dict(zip(names, session.run(names, feeds), strict=True))
    except Exception:  # onnxruntime has its own exception types
        return None
    results = [computed.get(name, np.empty(0, np.float32)) for name in node.output]
    if not all(isinstance(result, np.ndarray) and result.dtype.kind in _NUMERIC for result in results):
        return None
    return results


def _model(node: NodeProto, values: Sequence[NDArray[Any] | None], opset: int) -> ModelProto:
    inputs = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(node.input, values, strict=True)
        if value is not None
    }
    graph = GraphProto(name="constant")
    graph.node.append(node)
    graph.input.extend(inputs.values())
    for name in node.output:
        if name:
            graph.output.append(helper.make_value_info(name, TypeProto()))
    opsets = [helper.make_opsetid("", opset)]
    if node.domain not in DEFAULT_DOMAINS:
        opsets.append(helper.make_opsetid(node.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def open_session(model: ModelProto, *, folds: bool = False) -> onnxruntime.InferenceSession:
    """A session on one CPU thread that does not optimise the graph, unless it `folds`, and logs fatal errors alone.

    Products of bytes do not saturate on any processor.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if folds else level.ORT_DISABLE_ALL
    options.log_severity_level = LOG_FATAL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        with_exact_products(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
