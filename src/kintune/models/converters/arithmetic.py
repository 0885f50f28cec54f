"""Bounds and pairwise extremes as element-wise operators that fusion can see.

The stock ones emit `Clip` as finished loops and `Max`/`Min` as stack-and-reduce over a new axis; layout conversion and
fusion then cannot see the cheap element-wise operator that a ReLU6 is.  These emit Relax's own binary operators.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

__all__ = ["CONVERTERS"]


class Clip(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]
    """`Clip` as maximum and minimum; a bound that is absent, infinite or NaN bounds nothing."""

    @classmethod
    def _impl_v1(cls, builder: Any, inputs: Any, attributes: Any, parameters: Any) -> Any:
        dtype = inputs[0].ty.dtype
        bounds = [attributes.get(name) for name in ("min", "max")]
        constants = [None if bound is None else relax.const(float(bound), dtype) for bound in bounds]
        return cls._impl_v11(builder, [inputs[0], *constants], attributes, parameters)

    @classmethod
    def _impl_v11(cls, builder: Any, inputs: Any, _attributes: Any, _parameters: Any) -> Any:
        result = inputs[0]
        for bound, operator in zip(list(inputs)[1:3], (relax.op.maximum, relax.op.minimum), strict=False):
            if bound is None or (isinstance(bound, tvm.ir.GenericConst) and not np.isfinite(bound.value.numpy()).all()):
                continue
            result = builder.normalize(operator(result, bound))
        return result

    _impl_v12 = _impl_v13 = _impl_v11


class _Pairwise(onnx_frontend.OnnxOpConverter):  # type: ignore[misc]
    operator: Any = None

    @classmethod
    def _impl_v1(cls, builder: Any, inputs: Any, _attributes: Any, _parameters: Any) -> Any:
        return functools.reduce(lambda left, right: builder.normalize(cls.operator(left, right)), inputs)

    _impl_v6 = _impl_v8 = _impl_v12 = _impl_v13 = _impl_v1


class Max(_Pairwise):
    """`Max` folded over its inputs, broadcasting."""

    operator = staticmethod(relax.op.maximum)


class Min(_Pairwise):
    """`Min` folded over its inputs, broadcasting."""

    operator = staticmethod(relax.op.minimum)


CONVERTERS: dict[str, Any] = {"Clip": Clip, "Max": Max, "Min": Min}
"""Operator name -> the converter to use for it."""
