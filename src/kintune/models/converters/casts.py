"""Conversions from one element type to another."""

from __future__ import annotations

from tvm import relax

from kintune.models.converters.node import Convert, Node
from kintune.models.expressions import dtype_of, is_float, is_integer

__all__ = ["CONVERTERS"]


def _cast(node: Node) -> relax.Expr:
    return _to(node, node.element_type("to"))


def _cast_like(node: Node) -> relax.Expr:
    return _to(node, dtype_of(node.required(1)))


def _to(node: Node, dtype: str) -> relax.Expr:
    data = node.required(0)
    if dtype.startswith("float8") or not (dtype == "bool" or is_float(dtype) or is_integer(dtype)):
        raise ValueError(f"element type {dtype} is not supported")
    if dtype.endswith(("int4", "int2")):
        raise ValueError(f"element type {dtype} is not supported")
    return data if dtype == dtype_of(data) else relax.op.astype(data, dtype)


CONVERTERS: dict[str, Convert] = {"Cast": _cast, "CastLike": _cast_like}
"""Operator -> what converts it."""
