"""The block that writes the weights of a sum in panels, which is run when the network is built."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.programs.panel_form import Inner, form_of
from kintune.compiler.space.packing import PACKS

__all__ = ["packing_block"]


def packing_block(found: Contraction, inner: Inner, panels: Any) -> Any:
    """The block in its loops; `panels` is the buffer that it writes, of the shape `Inner.panel_shape`."""
    form = form_of(found, inner)

    def at(value: int) -> Any:
        return tirx.IntImm(found.index_type, value)

    extents = [int(extent) for extent in panels.shape]
    outer = [tirx.Var(f"{name}_pack", found.index_type) for name in "okfh"[: len(extents)]]
    inside = [tirx.Var(f"v{name}", found.index_type) for name in "okfh"[: len(extents)]]
    value = inside[1] * at(2) + inside[3] if inner.is_narrow else inside[1]
    column = inside[0] * at(inner.columns) + inside[2]
    size = form.chunks * inner.step
    run, place = _parted(value, size, at)
    if form.runs == 1:
        run, place = at(0), value
    if form.pieces > 1:
        run, place = _parted(value, form.values // form.pieces, at)
    weight = found.weight(*_place_of(found, run, place, at), column)
    if inner.is_narrow:
        weight = tirx.Cast(inner.stored, weight)
    conditions = []
    if form.values < size:
        conditions.append((value if form.pieces > 1 else place) < at(form.values))
    if found.filters < form.panels * inner.columns:
        conditions.append(column < at(found.filters))
    for condition in conditions:
        weight = tirx.if_then_else(condition, weight, tirx.const(0, inner.stored))
    block = SBlock(
        [
            tirx.IterVar(tvm.ir.Range(at(0), at(extent)), variable, tirx.IterVar.DataPar)
            for variable, extent in zip(inside, extents, strict=True)
        ],
        [tirx.BufferRegion(found.weights, [tvm.ir.Range.from_min_extent(0, e) for e in found.weights.shape])],
        [tirx.BufferRegion(panels, [tvm.ir.Range.from_min_extent(variable, at(1)) for variable in inside])],
        "panels",
        tirx.BufferStore(panels, weight, inside),
        annotations={PACKS: True},
    )
    statement: Any = SBlockRealize(outer, True, block)
    for variable, extent in reversed(list(zip(outer, extents, strict=True))):
        statement = tirx.For(variable, at(0), at(extent), tirx.ForKind.SERIAL, statement)
    return statement


def _parted(value: Any, size: int, at: Any) -> tuple[Any, Any]:
    """The number of a part of so many values, and the place in it."""
    return tirx.floordiv(value, at(size)), tirx.floormod(value, at(size))


def _place_of(found: Contraction, run: Any, place: Any, at: Any) -> tuple[Any, Any, Any]:
    """The place in the kernel and the channel of a value of a run."""
    rows, columns = found.rows.kernel, found.columns.kernel
    if columns == 1:
        return run if rows > 1 else at(0), at(0), place
    if found.columns.dilation == 1:
        channels = at(found.channels)
        return run if rows > 1 else at(0), tirx.floordiv(place, channels), tirx.floormod(place, channels)
    down = tirx.floordiv(run, at(columns)) if rows > 1 else at(0)
    return down, tirx.floormod(run, at(columns)), place
