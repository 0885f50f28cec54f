"""The kernel of a product with blockwise quantised weights as it is imported: plain sums, correct and not fast.

`kintune.compiler.programs.blockwise_product` writes the fast one from the same `Blockwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx

from kintune.models.blockwise import ANNOTATION, PACKED, Blockwise

__all__ = ["BLOCK_NAME", "call_blockwise", "weight_of"]

BLOCK_NAME = "matmul_blockwise"
"""The name of the block that computes the sums; by it, the block is classified as a matrix product."""

_WITH_EPILOGUE = 4  # TVM's operator pattern kOutEWiseFusable: element-wise operators are fused behind it


def call_blockwise(builder: relax.BlockBuilder, product: Blockwise, operands: Sequence[relax.Expr]) -> relax.Expr:
    """A call of the kernel, not bound yet; see `Blockwise` for its operands, of which the zero points may be absent."""
    attributes = {"op_pattern": _WITH_EPILOGUE}
    call: relax.Expr = builder.call_te(
        _compute(product), *operands, primfunc_name_hint="matmul", primfunc_attrs=attributes
    )
    return call


def _compute(product: Blockwise) -> Callable[..., te.Tensor]:
    def multiplied(data: te.Tensor, integers: te.Tensor, scales: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((_long(0), _long(product.inputs)), "k")

        def element(*at: Any) -> Any:
            place = (*at[:-1], k)
            return te.sum(data[place] * weight_of(product, integers, scales, zeros, k, at[-1]), axis=k)

        shape = [*data.shape[:-1], integers.shape[1]]
        return te.compute(shape, element, name=BLOCK_NAME, attrs={ANNOTATION: product.text})

    return multiplied


def weight_of(product: Blockwise, integers: Any, scales: Any, zeros: Sequence[Any], k: Any, column: Any) -> Any:
    """The weight of an input and a column, of tensors or buffers; `zeros` has one of them, or none."""
    block = tirx.floordiv(k, _long(product.block))
    zero = _zero(product, zeros, block, column)
    return (_integer(integers, product.bits, k, column).astype("float32") - zero) * scales[block, column]


def _integer(tensor: Any, bits: int, row: Any, column: Any) -> Any:
    """The unsigned integer of `bits` bits at a row and column, unpacked to int32."""
    if bits == 8:
        return tensor[row, column].astype("int32")
    each = 8 // bits
    byte = tensor[tirx.floordiv(row, _long(each)), column].astype("int32")
    shift = (tirx.floormod(row, _long(each)) * _long(bits)).astype("int32")
    return tirx.bitwise_and(tirx.shift_right(byte, shift), tirx.const((1 << bits) - 1, "int32"))


def _zero(product: Blockwise, zeros: Sequence[Any], block: Any, column: Any) -> Any:
    if not zeros:
        return tirx.const(float(product.middle), "float32")
    if product.zeros == PACKED:
        return _integer(zeros[0], product.bits, block, column).astype("float32")
    return zeros[0][block, column]


def _long(extent: Any) -> tirx.IntImm:
    return tirx.IntImm("int64", int(extent))
