"""The kernel that computes mean and inverse standard deviation of groups of channels, where channels lie last.

Parts of the pixels are distributed over threads.  Each part is read twice while it lies in the cache: for the means of
its channels, and for the sums of the squared differences to these.  Then the parts of all channels of a group are
combined by the formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances" (1979).  So the tensor is read from memory once, and a mean far from zero costs no digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from kintune.compiler.kernels.loops import as_root, buffer, index, loop, sequence, unravelled
from kintune.compiler.programs.kernel_writer import add, conditional, repeat, store, written
from kintune.compiler.tir import PATTERN, Fusion

__all__ = ["statistics_kernel"]

_PART = 128 << 10
"""Bytes of a part, which stays in the cache of the second level."""


def statistics_kernel(shape: Sequence[int], first: int, groups: int, epsilon: float, dtype: str) -> tvm.tirx.PrimFunc:
    """The kernel for a row-major tensor of a `shape`, whose last axis are channels, in `groups`.

    The axes before `first` have statistics of their own; the others, but for the last, are those of pixels.  The kernel
    takes the tensor and writes two of the shape (axes before `first`, channels): the mean of each channel's group, and
    one over the root of the group's variance and `epsilon`.
    """
    return _Statistics(tuple(shape), first, groups, epsilon, dtype).function()


class _Statistics:
    def __init__(self, shape: tuple[int, ...], first: int, groups: int, epsilon: float, dtype: str) -> None:
        self._outer, self._inner, self._channels = shape[:first], shape[first:-1], shape[-1]
        self._pixels = math.prod(self._inner)
        self._groups, self._width = groups, self._channels // groups
        self._epsilon, self._dtype = epsilon, dtype
        self._length = max(1, min(self._pixels, _PART // (4 * self._channels)))
        self._whole, self._rest = divmod(self._pixels, self._length)
        self._parts = self._whole + bool(self._rest)
        self._x = buffer("x", shape, dtype, "global")
        self._mean, self._inverse = (
            buffer(name, (*self._outer, self._channels), dtype, "global") for name in ("mean", "inverse")
        )
        batch = math.prod(self._outer)
        self._means, self._squares = (
            buffer(name, (batch, self._parts, self._channels), dtype, "global") for name in ("means", "squares")
        )

    def function(self) -> tvm.tirx.PrimFunc:
        batch = math.prod(self._outer)
        parts = loop("task", batch * self._parts, lambda task: written(lambda: self._task(task)), tirx.ForKind.PARALLEL)

        def combined() -> None:
            with repeat(batch, "n") as n, repeat(self._groups, "group") as group:
                self._combined(n, group)

        body = sequence([parts, written(combined)])
        made = tirx.PrimFunc([self._x, self._mean, self._inverse], as_root(body, [self._means, self._squares]))
        return made.with_attrs({PATTERN: Fusion.OPAQUE, "s_tir": True, "tirx.noalias": True})

    def _number(self, value: float) -> Any:
        return tirx.const(value, self._dtype)

    def _task(self, task: Any) -> None:
        n, number = tirx.floordiv(task, index(self._parts)), tirx.floormod(task, index(self._parts))
        if self._whole:
            with conditional(*([number < index(self._whole)] if self._rest else [])):
                self._part(n, number, self._length)
        if self._rest:
            with conditional(*([number >= index(self._whole)] if self._whole else [])):
                self._part(n, index(self._whole), self._rest)

    def _part(self, n: Any, number: Any, length: int) -> None:
        """The means of a part's channels, and the sums of the squared differences to them."""
        means, squares, channels = self._means, self._squares, partial(repeat, self._channels, "channel")

        def element(pixel: Any, c: Any) -> Any:
            """An element; the last index runs over all pixels, whose rows follow one another."""
            place = (number * self._length + pixel) * self._channels + c
            inner = [index(0)] * len(self._inner)
            return tirx.BufferLoad(self._x, [*unravelled(n, self._outer), *inner, place])

        with channels() as c:
            for each in (means, squares):
                store(each, self._number(0.0), n, number, c)
        with repeat(length, "pixel") as pixel, channels() as c:
            store(means, means[n, number, c] + element(pixel, c), n, number, c)
        with channels() as c:
            store(means, means[n, number, c] * self._number(1.0 / length), n, number, c)
        with repeat(length, "pixel") as pixel, channels() as c:
            moved = element(pixel, c) - means[n, number, c]
            store(squares, squares[n, number, c] + moved * moved, n, number, c)

    def _combined(self, n: Any, group: Any) -> None:
        """The results for a group, from all parts of its channels."""
        centre, spread = (buffer(name, (1,), self._dtype) for name in ("centre", "spread"))
        zero, count, first = index(0), self._pixels * self._width, group * self._width
        for each in (centre, spread):
            add(tirx.AllocBuffer(each))
            store(each, self._number(0.0), zero)

        def of_mean(part: Any, c: Any, length: int) -> Any:
            return self._means[n, part, c] * self._number(length / count)

        def of_spread(part: Any, c: Any, length: int) -> Any:
            moved = self._means[n, part, c] - centre[zero]
            return self._squares[n, part, c] + moved * moved * self._number(float(length))

        for total, value in ((centre, of_mean), (spread, of_spread)):
            for start, number, length in ((0, self._whole, self._length), (self._whole, 1, self._rest)):
                if number and length:
                    with repeat(number, "part") as part, repeat(self._width, "c") as c:
                        store(total, total[zero] + value(part + index(start), first + c, length), zero)
        with repeat(self._width, "c") as c:
            at = (*unravelled(n, self._outer), first + c)
            variance = spread[zero] * self._number(1.0 / count) + self._number(self._epsilon)
            store(self._mean, centre[zero], *at)
            store(self._inverse, self._number(1.0) / tirx.sqrt(variance), *at)
