"""Quantised operators of the domain com.microsoft: the fp32 operator between dequantisation and quantisation.

Their operands are triples of integers, scale, and a zero point, which may be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import relax

from kintune.models.converters import activations
from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.pooling import average_pool
from kintune.models.converters.products import product
from kintune.models.converters.quantised import single
from kintune.models.converters.registration import MICROSOFT, Convert, OnnxOperator
from kintune.models.expressions import dtype_of, is_integer, shape_of

__all__ = ["OPERATORS"]


def _real(node: Node, at: int, axis: int = 0) -> relax.Expr:
    """The triple of operands from `at` on, dequantised to float32.

    Raises:
        ValueError: when its tensor does not hold integers.
    """
    tensor, scale, zero = node.required(at), node.required(at + 1), node.operand(at + 2)
    if not is_integer(dtype_of(tensor)):
        raise ValueError(f"input {at} has no integers")
    point = relax.const(0, dtype_of(tensor)) if zero is None else single(zero)
    return node.emit(relax.op.dequantize(tensor, single(scale), point, axis=axis, out_dtype="float32"))


def _quantised(node: Node, result: relax.Expr, at: int, dtype: str) -> relax.Expr:
    """The result quantised to `dtype` with the scale and zero point that are operands `at` and `at + 1`."""
    scale, zero = node.required(at), node.operand(at + 1)
    point = relax.const(0, dtype) if zero is None else single(zero)
    return relax.op.quantize(result, single(scale), point, axis=0, out_dtype=dtype)


def _pairwise(operator: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    def convert(node: Node) -> relax.Expr:
        found = node.emit(operator(_real(node, 0), _real(node, 3)))
        return _quantised(node, found, 6, dtype_of(node.required(0)))

    return convert


def _of_one(operator: Callable[[Node, relax.Expr], relax.Expr]) -> Convert:
    def convert(node: Node) -> relax.Expr:
        found = node.emit(operator(node, _real(node, 0)))
        return _quantised(node, found, 3, dtype_of(node.required(0)))

    return convert


def _leaky_relu(node: Node, data: relax.Expr) -> relax.Expr:
    return relax.op.nn.leakyrelu(data, float(node.attributes.get("alpha", 0.01)))


def _softmax(node: Node, data: relax.Expr) -> relax.Expr:
    """Softmax as defined by the operator set in the node's attribute `opset`, by default the file's."""
    attributes = {"axis": int(node.attributes.get("axis", -1))}
    opset = int(node.attributes.get("opset", node.opset))
    plain = replace(node, operands=(data,), attributes=attributes, opset=opset, outputs=1)
    return activations.softmax(plain)


def _where(node: Node) -> relax.Expr:
    found = node.emit(relax.op.where(node.required(0), _real(node, 1), _real(node, 4)))
    return _quantised(node, found, 7, dtype_of(node.required(1)))


def _channels_first(node: Node, data: relax.Expr) -> tuple[relax.Expr, bool]:
    """The tensor with its channels second, and whether they were last."""
    if not int(node.attributes.get("channels_last", 0)):
        return data, False
    rank = len(shape_of(data))
    return node.emit(relax.op.permute_dims(data, [0, rank - 1, *range(1, rank - 1)])), True


def _channels_back(node: Node, data: relax.Expr, moved: bool) -> relax.Expr:
    rank = len(shape_of(data))
    return relax.op.permute_dims(data, [0, *range(2, rank), 1]) if moved else data


def _global_average(node: Node, data: relax.Expr) -> relax.Expr:
    data, moved = _channels_first(node, data)
    found = node.emit(relax.op.mean(data, list(range(2, len(shape_of(data)))), keepdims=True))
    return _channels_back(node, found, moved)


def _average(node: Node, data: relax.Expr) -> relax.Expr:
    data, moved = _channels_first(node, data)
    return _channels_back(node, average_pool(replace(node, operands=(data,), outputs=1)), moved)


def _concat(node: Node) -> relax.Expr:
    """The scale and zero point of the result come first, then a triple for each operand."""
    parts = [_real(node, at) for at in range(2, len(node.operands), 3)]
    axis = axis_of(int(node.attributes["axis"]), len(shape_of(parts[0])))
    found = node.emit(relax.op.concat(parts, axis))
    return _quantised(node, found, 0, dtype_of(node.required(2)))


def _gemm(node: Node) -> relax.Expr:
    """A product of matrices; the int32 bias is in units of `alpha` times both scales."""
    left, right = _real(node, 0), _real(node, 3, 0 if node.attributes.get("transB", 0) else 1)
    found = product(replace(node, operands=(left, right)))
    if (bias := node.operand(6)) is not None:
        step = node.emit(relax.op.multiply(single(node.required(1)), single(node.required(4))))
        step = node.emit(relax.op.multiply(step, relax.const(float(node.attributes.get("alpha", 1.0)), "float32")))
        found = node.emit(relax.op.add(found, node.emit(relax.op.multiply(node.cast(bias, "float32"), step))))
    return found if node.operand(7) is None else _quantised(node, found, 7, dtype_of(node.required(0)))


OPERATORS = (
    OnnxOperator("QGemm", _gemm, domain=MICROSOFT),
    OnnxOperator("QLinearAdd", _pairwise(relax.op.add), domain=MICROSOFT),
    OnnxOperator("QLinearAveragePool", _of_one(_average), domain=MICROSOFT),
    OnnxOperator("QLinearConcat", _concat, domain=MICROSOFT),
    OnnxOperator("QLinearGlobalAveragePool", _of_one(_global_average), domain=MICROSOFT),
    OnnxOperator("QLinearLeakyRelu", _of_one(_leaky_relu), domain=MICROSOFT),
    OnnxOperator("QLinearMul", _pairwise(relax.op.multiply), domain=MICROSOFT),
    OnnxOperator("QLinearSigmoid", _of_one(lambda _node, data: relax.op.sigmoid(data)), domain=MICROSOFT),
    OnnxOperator("QLinearSoftmax", _of_one(_softmax), domain=MICROSOFT),
    OnnxOperator("QLinearWhere", _where, domain=MICROSOFT),
)
