"""Parameters of a program that lie in memory in bf16, although it computes with fp32.

What is read from them is widened, and what is stored in them is rounded, to the nearest and ties to even.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.tir import nodes_in

__all__ = ["BF16_TYPE", "is_plain", "is_reshape", "keep", "readable", "writable"]

BF16_TYPE = "bfloat16"
"""The type of memory of a tensor that is kept in bf16."""

_WIDE = "float32"


def keep(function: tirx.PrimFunc, positions: Collection[int]) -> tirx.PrimFunc:
    """The function with the parameters at these positions, which are of fp32, in bf16."""
    params = list(function.params)
    changed = {params[position]: params[position].with_dtype(BF16_TYPE) for position in positions}

    def load(found: Any) -> Any:
        made = changed.get(found.source)
        return found if made is None else tirx.Cast(str(found.ty.dtype), tirx.BufferLoad(made, found.indices))

    def store(found: Any) -> Any:
        made = changed.get(found.buffer)
        return found if made is None else tirx.BufferStore(made, _rounded(found.value), found.indices)

    body = tvm_ffi.structural_map(function.body, [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store)])
    body = tvm_ffi.structural_map(body, [(tirx.Bind, _bound)])
    body = tvm_ffi.structural_map(body, [(tirx.Var, lambda found: changed.get(found, found))])
    return tirx.PrimFunc([changed.get(each, each) for each in params], body, function.ret_type, function.attrs)


def _bound(found: Any) -> Any:
    """A binding whose casts from bf16 to fp32 are written as operations on bits.

    The compiler does not legalise such casts in bindings, and would then take the bits of bf16 for an integer.
    """
    value = tvm_ffi.structural_map(found.value, [(tirx.Cast, _widened)])
    return found if value.same_as(found.value) else tirx.Bind(found.var, value)


def _widened(found: Any) -> Any:
    """A value of bf16 in fp32, by its bits."""
    narrow, wide = str(found.value.ty.dtype), str(found.ty.dtype)
    if not narrow.startswith(BF16_TYPE) or not wide.startswith(_WIDE):
        return found
    bits = tirx.Cast(wide.replace(_WIDE, "uint32"), tirx.reinterpret(narrow.replace(BF16_TYPE, "uint16"), found.value))
    return tirx.reinterpret(wide, bits << tirx.const(16, "uint32"))


def _rounded(value: Any) -> Any:
    """A value of fp32, one or several lanes, in bf16."""
    if isinstance(value, tirx.Cast) and str(value.value.ty.dtype).startswith(BF16_TYPE):  # it was not computed with
        return value.value
    return tirx.Cast(str(value.ty.dtype).replace(_WIDE, BF16_TYPE), value)


def readable(function: tirx.PrimFunc, position: int) -> bool:
    """Whether the parameter is of fp32, all reads of it are loads of elements, and nothing is stored in it."""
    return _is_wide(function, position) and is_plain(function, position) and not _stores(function, position)


def writable(function: tirx.PrimFunc, position: int) -> bool:
    """Whether the parameter is of fp32 and is only stored to.

    A maximum or minimum may also be accumulated in it, since rounding keeps the order of values.
    """
    if not _is_wide(function, position) or not is_plain(function, position):
        return False
    parameter, loads = function.params[position], loads_in(function.body, function.params[position])
    chosen = [
        load
        for store in _stores(function, position)
        if isinstance(store.value, tirx.Max | tirx.Min)
        for load in (store.value.a, store.value.b)
        if isinstance(load, tvm.ir.TensorLoad) and load.source.same_as(parameter)
    ]
    return len(loads) == len(chosen)


def is_reshape(function: tirx.PrimFunc) -> bool:
    """Whether all that the function does is to copy what it is given, in the order in which that lies in memory."""
    return len(function.params) == 2 and bool(relax.analysis.has_reshape_pattern(function))


def _is_wide(function: tirx.PrimFunc, position: int) -> bool:
    return str(function.params[position].dtype) == _WIDE


def is_plain(function: tirx.PrimFunc, position: int) -> bool:
    """Whether the parameter is loaded from, stored to and named in regions, and used in no other way."""
    parameter = function.params[position]
    known = [each.source for each in nodes_in(function.body, tvm.ir.TensorLoad, tvm.ir.TensorRegion)]
    known += [each.buffer for each in nodes_in(function.body, tirx.BufferStore)]
    used = nodes_in(function.body, tirx.Var)
    return sum(bool(each.same_as(parameter)) for each in known) == sum(bool(each.same_as(parameter)) for each in used)


def _stores(function: tirx.PrimFunc, position: int) -> list[Any]:
    parameter = function.params[position]
    return [store for store in nodes_in(function.body, tirx.BufferStore) if store.buffer.same_as(parameter)]
