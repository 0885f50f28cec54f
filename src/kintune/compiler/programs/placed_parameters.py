"""Parameters of a function that are parts of larger tensors, along the last axis.

The function takes the larger tensor in place of the part, and counts its last index from where the part begins.  So it
reads a part of the channels where it lies, or writes its result between those of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx

from kintune.compiler.kernels.blocks import constant_shape, loads_in
from kintune.compiler.kernels.loops import INDEX, as_root, buffer, index, loop, over_rows
from kintune.compiler.programs.kept_parameters import is_plain
from kintune.compiler.tir import called, nodes_in

__all__ = ["Place", "copying", "place", "placeable"]

_ADDRESSES = ("address_of", "access_ptr")  # how the names of operators end that give an address away


class Place(NamedTuple):
    """Where a parameter lies: from `offset` on, along the last axis of a tensor that has `extent` elements there."""

    extent: int
    offset: int


def placeable(function: tirx.PrimFunc, position: int) -> bool:
    """Whether the parameter can be a part of a larger tensor.

    Each of its elements must be accessed alone, or as a vector, and by a last index that stays within the parameter.
    That fails for functions which go through several axes with one index, or take addresses of elements.
    """
    parameter = function.params[position]
    shape = constant_shape(parameter)
    if shape is None or len(shape) < 2 or not is_plain(function, position):
        return False
    if _gives_address(function, parameter) or _is_matched(function, parameter):
        return False
    bounds = _Bounds(function)
    return all(
        len(indices) == len(shape) and bounds.hold(indices[-1], shape[-1])
        for indices in _accesses(function.body, parameter)
    )


def place(function: tirx.PrimFunc, places: Mapping[int, Place]) -> tirx.PrimFunc:
    """The function with the parameters at these positions, which are all `placeable`, as parts of larger tensors."""
    params = list(function.params)
    changed = {params[position]: (_enlarged(params[position], found), found) for position, found in places.items()}

    def load(found: Any) -> Any:
        made = changed.get(found.source)
        return found if made is None else tirx.BufferLoad(made[0], _moved(found.indices, made[1]))

    def store(found: Any) -> Any:
        made = changed.get(found.buffer)
        return found if made is None else tirx.BufferStore(made[0], found.value, _moved(found.indices, made[1]))

    def region(found: Any) -> Any:
        made = changed.get(found.source)
        if made is None:
            return found
        *outer, last = found.region
        inside = tvm.ir.Range.from_min_extent(last.min + made[1].offset, last.extent)
        return tirx.BufferRegion(made[0], [*outer, inside])

    kinds = [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store), (tvm.ir.TensorRegion, region)]
    body = tvm_ffi.structural_map(function.body, kinds)
    new = [changed[each][0] if each in changed else each for each in params]
    return tirx.PrimFunc(new, body, function.ret_type, function.attrs)


def copying(shape: Sequence[int], dtype: str, source: Place, target: Place) -> tirx.PrimFunc:
    """The function that copies a tensor of a shape from one place to another, row by row."""
    *outer, channels = shape
    given, made = (
        buffer(name, [*outer, at.extent], dtype, "global") for name, at in (("source", source), ("target", target))
    )
    rows = [tirx.Var(f"i{axis}", INDEX) for axis in range(len(outer))]

    def copy(channel: Any) -> Any:
        value = tirx.BufferLoad(given, [*rows, channel + index(source.offset)])
        return tirx.BufferStore(made, value, [*rows, channel + index(target.offset)])

    body = over_rows(rows, outer, loop("channel", channels, copy), numbered=True)
    return tirx.PrimFunc([given, made], as_root(body)).with_attrs({"s_tir": True, "tirx.noalias": True})


def _enlarged(parameter: Any, place: Place) -> Any:
    """A parameter of the same type with another extent of its last axis."""
    *outer, last = parameter.shape
    shape = [*outer, tirx.IntImm(str(last.ty.dtype), place.extent)]
    return tirx.decl_buffer(shape, str(parameter.dtype), str(parameter.name))


def _moved(indices: Sequence[Any], place: Place) -> list[Any]:
    """The indices of the same element in the larger tensor."""
    *outer, last = indices
    if isinstance(last, tirx.Ramp):
        return [*outer, tirx.Ramp(last.base + place.offset, last.stride, last.lanes)]
    return [*outer, last + place.offset]


def _accesses(body: Any, parameter: Any) -> Iterator[Sequence[Any]]:
    """The indices of all elements that are read or written."""
    yield from (load.indices for load in loads_in(body, parameter))
    yield from (store.indices for store in nodes_in(body, tirx.BufferStore) if store.buffer.same_as(parameter))


def _gives_address(function: tirx.PrimFunc, parameter: Any) -> bool:
    """Whether the address of an element is handed to something else, which may go on from there."""
    given = [call for call in nodes_in(function.body, tvm.ir.Call) if called(call).endswith(_ADDRESSES)]
    return any(loads_in(call, parameter) for call in given)


def _is_matched(function: tirx.PrimFunc, parameter: Any) -> bool:
    """Whether a block matches a part of the parameter to a buffer of its own, as tensorized blocks do."""
    matched = [each for block in nodes_in(function.body, tvm.s_tir.SBlock) for each in block.match_buffers]
    return any(each.source.source.same_as(parameter) for each in matched)


class _Bounds:
    """The values that indices can have, by the loops and blocks of a function."""

    def __init__(self, function: tirx.PrimFunc) -> None:
        self._analyzer = tvm.sym.Analyzer()
        tvm_ffi.structural_walk(
            function.body,
            [
                (tirx.For, lambda loop: self._bind(loop.loop_var, loop.min, loop.extent)),
                (tvm.s_tir.SBlock, self._bind_block),
            ],
        )

    def hold(self, index: Any, extent: int) -> bool:
        """Whether the index, or each of a vector, is from 0 to `extent` - 1."""
        if isinstance(index, tirx.Ramp):
            last = index.base + index.stride * (int(index.lanes) - 1)
            return self.hold(index.base, extent) and self.hold(last, extent)
        bound = self._analyzer.const_int_bound(index)
        return int(bound.min_value) >= 0 and int(bound.max_value) < extent

    def _bind(self, variable: Any, least: Any, extent: Any) -> None:
        if isinstance(least, tirx.IntImm) and isinstance(extent, tirx.IntImm):
            self._analyzer.bind(variable, tvm.ir.Range.from_min_extent(least, extent), True)

    def _bind_block(self, block: Any) -> None:
        for variable in block.iter_vars:
            self._bind(variable.var, variable.dom.min, variable.dom.extent)
