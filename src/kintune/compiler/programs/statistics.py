"""The kernel that computes mean and inverse standard deviation of groups of channels, where channels lie last.

Parts of the pixels are distributed over threads.  Each part is read twice while it lies in the cache: for the means of
its channels, and for the sums of the squared differences to these.  Then the parts of all channels of a group are
combined by the formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances" (1979).  So the tensor is read from memory once, and a mean far from zero costs no digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from kintune.compiler.kernels.loops import as_root, buffer, index, loop, sequence
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
        body = sequence(
            [
                loop("task", batch * self._parts, self._any_part, tirx.ForKind.PARALLEL),
                loop("n", batch, lambda n: loop("group", self._groups, lambda group: self._combined(n, group))),
            ]
        )
        made = tirx.PrimFunc([self._x, self._mean, self._inverse], as_root(body, [self._means, self._squares]))
        return made.with_attrs({PATTERN: Fusion.OPAQUE, "s_tir": True, "tirx.noalias": True})

    def _number(self, value: float) -> Any:
        return tirx.const(value, self._dtype)

    def _outer_indices(self, n: Any) -> list[Any]:
        found: list[Any] = []
        for place in reversed(range(len(self._outer))):
            extent = index(self._outer[place])
            found.append(tirx.floormod(n, extent) if place else n)
            n = tirx.floordiv(n, extent)
        return found[::-1]

    def _element(self, n: Any, pixel: Any, channel: Any) -> Any:
        """An element; the last index runs over all pixels, whose rows follow one another."""
        at = [*self._outer_indices(n), *[index(0)] * len(self._inner), pixel * self._channels + channel]
        return tirx.BufferLoad(self._x, at)

    def _any_part(self, task: Any) -> Any:
        n, number = tirx.floordiv(task, index(self._parts)), tirx.floormod(task, index(self._parts))
        if not self._rest:
            return self._part(n, number, self._length)
        whole, last = self._part(n, number, self._length), self._part(n, index(self._whole), self._rest)
        return tirx.IfThenElse(number < index(self._whole), whole, last) if self._whole else last

    def _part(self, n: Any, number: Any, length: int) -> Any:
        """The means of a part's channels, and the sums of the squared differences to them."""
        means, squares, first = self._means, self._squares, number * self._length

        def channels(body: Callable[[Any], Any]) -> Any:
            return loop("channel", self._channels, body)

        def over(body: Callable[[Any, Any], Any]) -> Any:
            return loop("pixel", length, lambda pixel: channels(lambda c: body(first + pixel, c)))

        def add(pixel: Any, c: Any) -> Any:
            return tirx.BufferStore(means, means[n, number, c] + self._element(n, pixel, c), [n, number, c])

        def add_square(pixel: Any, c: Any) -> Any:
            moved = self._element(n, pixel, c) - means[n, number, c]
            return tirx.BufferStore(squares, squares[n, number, c] + moved * moved, [n, number, c])

        def clear(c: Any) -> Any:
            return sequence([tirx.BufferStore(each, self._number(0.0), [n, number, c]) for each in (means, squares)])

        def divide(c: Any) -> Any:
            return tirx.BufferStore(means, means[n, number, c] * self._number(1.0 / length), [n, number, c])

        return sequence([channels(clear), over(add), channels(divide), over(add_square)])

    def _combined(self, n: Any, group: Any) -> Any:
        """The results for a group, from all parts of its channels."""
        centre, spread = (buffer(name, (1,), self._dtype) for name in ("centre", "spread"))
        zero, count = index(0), self._pixels * self._width

        def over(body: Callable[[Any, Any, int], Any]) -> Any:
            def channels(part: Any, length: int) -> Any:
                return loop("c", self._width, lambda c: body(part, group * self._width + c, length))

            loops = []
            if self._whole:
                loops.append(loop("part", self._whole, lambda part: channels(part, self._length)))
            if self._rest:
                loops.append(channels(index(self._whole), self._rest))
            return sequence(loops)

        def add_mean(part: Any, c: Any, length: int) -> Any:
            return tirx.BufferStore(
                centre, centre[zero] + self._means[n, part, c] * self._number(length / count), [zero]
            )

        def add_spread(part: Any, c: Any, length: int) -> Any:
            moved = self._means[n, part, c] - centre[zero]
            more = self._squares[n, part, c] + moved * moved * self._number(float(length))
            return tirx.BufferStore(spread, spread[zero] + more, [zero])

        def result(c: Any) -> Any:
            at = [*self._outer_indices(n), group * self._width + c]
            variance = spread[zero] * self._number(1.0 / count) + self._number(self._epsilon)
            inverse = self._number(1.0) / tirx.sqrt(variance)
            return sequence(
                [tirx.BufferStore(self._mean, centre[zero], at), tirx.BufferStore(self._inverse, inverse, at)]
            )

        return sequence(
            [
                tirx.AllocBuffer(centre),
                tirx.AllocBuffer(spread),
                tirx.BufferStore(centre, self._number(0.0), [zero]),
                tirx.BufferStore(spread, self._number(0.0), [zero]),
                over(add_mean),
                over(add_spread),
                loop("c", self._width, result),
            ]
        )
