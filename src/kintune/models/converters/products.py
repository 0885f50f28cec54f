"""Products of matrices: MatMul and Gemm."""

from __future__ import annotations

from tvm import relax

from kintune.models.converters.node import Node, like
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import shape_of

__all__ = ["OPERATORS", "gemm", "product"]


def product(node: Node) -> relax.Expr:
    """The product of two matrices, either of which may be transposed, times `alpha`."""
    sides = []
    for index, name in enumerate("AB"):
        side = node.required(index)
        rank = len(shape_of(side))
        if node.attributes.get(f"trans{name}", 0) and rank > 1:
            side = node.emit(relax.op.permute_dims(side, [*range(rank - 2), rank - 1, rank - 2]))
        sides.append(side)
    found = node.emit(relax.op.matmul(*sides))
    alpha = float(node.attributes.get("alpha", 1.0))
    return found if alpha == 1 else node.emit(relax.op.multiply(found, like(alpha, found)))


def gemm(node: Node) -> relax.Expr:
    """A product to which a tensor may be added; with `beta` 0 that is not read, as in BLAS and onnxruntime."""
    found, other = product(node), node.operand(2)
    beta = float(node.attributes.get("beta", 1.0))
    if other is None or beta == 0:
        return found
    other = other if beta == 1 else node.emit(relax.op.multiply(other, like(beta, other)))
    return node.emit(relax.op.add(found, other))


OPERATORS = (
    OnnxOperator("Gemm", gemm),
    OnnxOperator("MatMul", product),
)
