"""Finds the weights of an ONNX graph that products read as integers."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

from kintune.models.onnx_nodes import used_tensors

__all__ = ["quantised_weights"]

_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


def quantised_weights(graph: GraphProto) -> set[str]:
    """Return the results of DequantizeLinear nodes that products alone read, also through a Transpose.

    The compiler may multiply the integers behind them, so they are not to be computed from constants beforehand.
    """
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in used_tensors(node):
            readers.setdefault(name, []).append(node)
    outputs = {port.name for port in graph.output}

    def is_for_products(name: str) -> bool:
        return name not in outputs and all(
            node.op_type in _PRODUCTS or (node.op_type == "Transpose" and is_for_products(node.output[0]))
            for node in readers.get(name, ())
        )

    dequantised = [node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"]
    return {name for name in dequantised if is_for_products(name)}
