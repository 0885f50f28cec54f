"""Fused operators of the domain com.microsoft, which onnxruntime writes when it optimises a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters import convolution
from kintune.models.converters.library import find
from kintune.models.converters.node import Node, like
from kintune.models.converters.products import gemm, product
from kintune.models.converters.quantised import single
from kintune.models.converters.registration import MICROSOFT, STANDARD, OnnxOperator
from kintune.models.expressions import shape_of

__all__ = ["OPERATORS"]

_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Activations of a fused node, and the names of their parameters in the order of the node's list."""

_NOT_TRANSPOSED: dict[int | str, str] = {f"transBatch{name}": f"transBatch{name} is not supported" for name in "AB"}

_SEPARATE_BOUNDS = 11
"""The operator set from which a Clip has its bounds as operands."""


def _converted(node: Node, operator: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """The result of a standard operator for these operands and attributes."""
    found = find(STANDARD, operator, node.opset)
    if found is None:
        raise ValueError(f"operator {operator} is not supported")
    return node.emit(found.converted(replace(node, operands=tuple(operands), attributes=attributes, outputs=1)))


def _bias_gelu(node: Node) -> Any:
    return _converted(node, "Gelu", [node.emit(relax.op.add(node.required(0), node.required(1)))])


def _fast_gelu(node: Node) -> Any:
    data, bias = node.required(0), node.operand(1)
    data = data if bias is None else node.emit(relax.op.add(data, bias))
    return _converted(node, "Gelu", [data], approximate="tanh")


def _quick_gelu(node: Node) -> Any:
    return _converted(node, "Swish", [node.required(0)], alpha=float(node.attributes.get("alpha", 1.702)))


def _fused_gemm(node: Node) -> Any:
    given = {
        name: value
        for name in ("alpha", "beta", "gamma")
        if (value := node.attributes.get(f"activation_{name}")) is not None
    }
    return _activated(node, gemm(node), given)


def _fused_convolution(node: Node) -> Any:
    """A convolution to which a tensor may be added before the activation."""
    found = node.emit(convolution.convolution(node))
    if (other := node.operand(3)) is not None:
        found = node.emit(relax.op.add(found, other))
    names = _ACTIVATIONS.get(str(node.attributes.get("activation", "")), ())
    given = node.attributes.get("activation_params", ())
    return _activated(node, found, dict(zip(names, given, strict=False)))


def _activated(node: Node, data: Any, parameters: dict[str, Any]) -> Any:
    """The data after the activation that the node names; unchanged if it names none.

    Raises:
        ValueError: when the activation is not in `_ACTIVATIONS`.
    """
    name = str(node.attributes.get("activation", ""))
    if not name:
        return data
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not supported")
    if name == "Clip":
        bounds = [like(parameters.get(bound, limit), data) for bound, limit in (("min", -np.inf), ("max", np.inf))]
        return _converted(replace(node, opset=max(node.opset, _SEPARATE_BOUNDS)), name, [data, *bounds])
    return _converted(node, name, [data], **{key: parameters[key] for key in _ACTIVATIONS[name] if key in parameters})


def _embedding(node: Node) -> Any:
    return _embedded(node, node.operand(8), lambda values, _place: values)


def _quantised_embedding(node: Node) -> Any:
    """Like `_embedding`; tables, scale and bias are quantised, each with a scale and a zero point."""

    def real(values: Any, place: int) -> Any:
        step, zero = single(node.required(8 + place)), single(node.required(13 + place))
        return node.emit(relax.op.dequantize(values, step, zero, axis=0, out_dtype="float32"))

    return relax.Tuple(list(_embedded(node, None, real).fields)[:2])


def _embedded(node: Node, positions: Any, real: Callable[[Any, int], Any]) -> relax.Tuple:
    """The layer norm of the sum of embeddings, the number of ones in each row of the mask, and the sum itself.

    `real` dequantises what was read from a weight; it gets the weight's number in the order words, positions,
    segments, scale, bias.

    Raises:
        ValueError: when the table of positions has fewer rows than the sequence is long.
    """
    ids, segments, mask = node.required(0), node.operand(1), node.operand(7)
    batch, length = shape_of(ids)
    total = real(_rows(node, 2, ids), 0)
    if positions is None:
        table = node.required(3)
        if shape_of(table)[0] < length:
            raise ValueError(f"{shape_of(table)[0]} positions are fewer than the {length} there are")
        first = node.emit(relax.op.strided_slice(table, [0], [0], [length], [1]))
        part = node.emit(relax.op.expand_dims(first, [0]))
    else:
        part = _rows(node, 3, positions)
    total = node.emit(relax.op.add(total, real(part, 1)))
    if segments is not None:
        total = node.emit(relax.op.add(total, real(_rows(node, 4, segments), 2)))
    epsilon = float(node.attributes.get("epsilon", 1e-12))
    operands = [total, real(node.required(5), 3), real(node.required(6), 4)]
    normed = _converted(node, "LayerNormalization", operands, axis=-1, epsilon=epsilon)
    if mask is None:
        count = node.emit(relax.op.zeros([batch], "int32"))
    else:
        ones = node.emit(relax.op.equal(mask, like(1, mask)))
        count = node.emit(relax.op.sum(node.cast(ones, "int32"), [1]))
    return relax.Tuple([normed, count, total])


def _rows(node: Node, at: int, index: Any) -> Any:
    """Rows of the table that is operand `at`, by a marked index."""
    table = node.required(at)
    size = shape_of(table)[0]
    marked = node.index(index, [size], 0, negative=False)
    return node.emit(relax.op.take(table, marked, 0))


OPERATORS = (
    OnnxOperator("BiasGelu", _bias_gelu, domain=MICROSOFT),
    OnnxOperator("EmbedLayerNormalization", _embedding, domain=MICROSOFT),
    OnnxOperator("FastGelu", _fast_gelu, domain=MICROSOFT),
    OnnxOperator("FusedConv", _fused_convolution, domain=MICROSOFT),
    OnnxOperator("FusedGemm", _fused_gemm, domain=MICROSOFT),
    OnnxOperator("FusedMatMul", product, domain=MICROSOFT, refused=_NOT_TRANSPOSED),
    OnnxOperator("QEmbedLayerNormalization", _quantised_embedding, domain=MICROSOFT),
    OnnxOperator("QuickGelu", _quick_gelu, domain=MICROSOFT),
)
