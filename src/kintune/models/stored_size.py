"""Compares the size that a tensor of an ONNX file declares with what the file stores of it, before it is read."""

from __future__ import annotations

import math
from typing import Any

from onnx import TensorProto, helper

__all__ = ["PACKED_BITS", "misfit"]

PACKED_BITS = {
    "INT2": 2,
    "UINT2": 2,
    "INT4": 4,
    "UINT4": 4,
    "FLOAT4E2M1": 4,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
}
"""Element types of which several share a byte -> bits of an element."""

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_PAIRS = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})


def misfit(tensor: Any) -> str:
    """What is wrong with the size of a `TensorProto`, in a few words; empty where nothing is.

    Tensors in other files and tensors of unknown types are not compared.
    """
    if any(size < 0 for size in tensor.dims):
        return f"its shape {_shape(tensor)} has a negative size"
    known = tensor.data_type != TensorProto.UNDEFINED and tensor.data_type in TensorProto.DataType.values()
    if tensor.data_location == TensorProto.EXTERNAL or not known:
        return ""
    count = math.prod(tensor.dims)
    bits = PACKED_BITS.get(TensorProto.DataType.Name(tensor.data_type), 0)
    if tensor.HasField("raw_data") and tensor.data_type != TensorProto.STRING:
        width = bits or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        wanted, stored, unit = -(-count * width // 8), len(tensor.raw_data), "bytes"
    else:
        wanted, stored, unit = count, sum(len(getattr(tensor, field)) for field in _FIELDS), "elements"
        if tensor.data_type in _PAIRS:
            wanted *= 2
        if bits and stored == -(-count * bits // 8):
            return ""
    return "" if stored == wanted else f"its shape {_shape(tensor)} needs {wanted} {unit}, and {stored} are stored"


def _shape(tensor: Any) -> str:
    return "x".join(map(str, tensor.dims))
