"""Weights in panels: the columns that a micro-kernel computes at once lie side by side, step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.loops import index, unravelled
from kintune.compiler.kernels.statements import block_over
from kintune.compiler.space.packing import PACKS

__all__ = ["packing_block", "weight_by_value"]


def weight_by_value(
    found: Contraction, runs: int, size: int, real: int, *, dtype: str = "", total: int = 0
) -> Callable[[Any, Any, Any], Any]:
    """The weights of a contraction by the number of a value of its sum, as `packing_block` asks for them.

    A sum has `runs` of `size` values, of which the first `real` are weights: of one place of the kernel, or of all
    places of a row of it.  Values behind them repeat the last one, where the data is zero.  With a `dtype`, weights are
    converted, and zero behind the real ones of a run, or behind the first `total` of all.
    """
    columns, channels = found.columns.kernel, found.channels

    def weight(batch: Any, value: Any, column: Any) -> Any:
        run, place = index(0), value
        if runs > 1:
            run, place = tirx.floordiv(value, index(size)), tirx.floormod(value, index(size))
        if size > real and not dtype:
            place = tirx.min(place, index(real - 1))
        i, j, channel = run, index(0), place
        if columns > 1 and real == columns * channels:
            j, channel = tirx.floordiv(place, index(channels)), tirx.floormod(place, index(channels))
        elif columns > 1:
            i, j = tirx.floordiv(run, index(columns)), tirx.floormod(run, index(columns))
        if found.batches:
            at = (*unravelled(batch, found.batches), channel, column)
            return found.weights[at]
        read = found.weight(i, j, channel, column)
        if not dtype:
            return read
        converted = read if dtype == str(read.ty.dtype) else tirx.Cast(dtype, read)
        if size == real and not total:
            return converted
        is_real = value < index(total) if total else place < index(real)
        return tirx.if_then_else(is_real, converted, tirx.const(0, dtype))

    return weight


def packing_block(
    name: str,
    target: Any,
    source: Any,
    weight: Callable[[Any, Any, Any], Any],
    columns: int,
    panels: int,
    *,
    computed: bool = False,
) -> Any:
    """The statement that writes `target`, of `[batches * panels, steps, columns of a panel, values of a step]`.

    The last axis may be missing.  `weight(batch, value, column)` is a weight of the buffer `source`, by the number of
    its value in a sum.  Columns beyond the last of `columns` repeat the last one.  Weights that are not `computed` are
    packed once.
    """
    shape = [int(extent) for extent in target.shape]
    panel, word = shape[2], shape[3] if len(shape) > 3 else 1

    def body(o: Any, k: Any, f: Any, *e: Any) -> Any:
        batch = tirx.floordiv(o, index(panels)) if shape[0] > panels else index(0)
        number = tirx.floormod(o, index(panels)) if shape[0] > panels else o
        column = number * index(panel) + f
        if columns % panel:
            column = tirx.min(column, index(columns - 1))
        value = k * index(word) + e[0] if e else k
        return tirx.BufferStore(target, weight(batch, value, column), [o, k, f, *e])

    loops = list(zip("okfe", shape, strict=False))
    annotations = None if computed else {PACKS: True}
    return block_over(name, loops, body, [source], [target], parallel=computed, annotations=annotations)
