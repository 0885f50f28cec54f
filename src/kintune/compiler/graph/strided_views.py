"""Views: a tensor described as another one with its axes split, merged, permuted, repeated or sliced.

Each axis of a view is composed of parts of the axes of its source, the slowest first.  By this, the reshapes and
transposes around an operator become index arithmetic inside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tvm import relax

from kintune.compiler.programs.attention_pattern import Access, Index, Term

__all__ = ["Axis", "Part", "View", "access", "whole"]

REPEATED = -1
"""The `axis` of a part along which elements are repeated."""


class Part(NamedTuple):
    """A part of a view's axis: a digit from 0 to `extent - 1`, which counts steps of `stride` along a source's axis."""

    extent: int
    axis: int
    stride: int = 1


Axis = tuple[Part, ...]


class View(NamedTuple):
    """A view of `source`, which is None where only indices matter.

    `offsets`, one for each axis of the source, are added to the indices of the source; elements are times `scale`.
    """

    source: relax.Expr | None
    axes: tuple[Axis, ...]
    offsets: tuple[int, ...]
    scale: float = 1.0

    @classmethod
    def of(cls, source: relax.Expr | None, shape: Sequence[int]) -> View:
        """The view that is the tensor itself."""
        return cls(source, tuple(whole(extent, axis) for axis, extent in enumerate(shape)), (0,) * len(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return tuple(_extent(axis) for axis in self.axes)

    def permuted(self, order: Sequence[int]) -> View:
        """The view with its axes in another order."""
        return self._replace(axes=tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The view with another shape; None where extents do not divide each other, so that no part can be split."""
        pending = [part for axis in reversed(self.axes) for part in reversed(axis)]
        axes: list[Axis] = []
        for extent in shape:
            axis: list[Part] = []
            left = extent
            while left > 1:
                if not pending:
                    return None
                part = pending.pop()
                if left % part.extent == 0:
                    axis.append(part)
                    left //= part.extent
                elif part.extent % left == 0:
                    inner = part.extent // left
                    axis.append(part._replace(extent=left, stride=part.stride * inner))
                    pending.append(part._replace(extent=inner))
                    left = 1
                else:
                    return None
            axes.append(tuple(axis))
        return None if pending else self._replace(axes=tuple(axes))

    def broadcast(self, shape: Sequence[int]) -> View | None:
        """The view broadcast to a shape: axes of one element are repeated, and new ones added in front; else None."""
        own = ((),) * (len(shape) - len(self.axes)) + self.axes
        if len(own) != len(shape):
            return None
        axes: list[Axis] = []
        for axis, extent in zip(own, shape, strict=True):
            if not axis and extent > 1:
                axes.append((Part(extent, REPEATED, 0),))
            elif _extent(axis) == extent:
                axes.append(axis)
            else:
                return None
        return self._replace(axes=tuple(axes))

    def repeated(self, axis: int, times: int) -> View:
        """The view with each element along an axis repeated."""
        return self._with(axis, (*self.axes[axis], *whole(times, REPEATED)))

    def cut(self, axis: int, begin: int, extent: int) -> View | None:
        """The view with `extent` elements of an axis from `begin` on.

        None for several elements of an axis that has several parts.
        """
        parts = self.axes[axis]
        if extent == _extent(parts):
            return self
        offsets = list(self.offsets)
        if extent == 1:
            for part in reversed(parts):
                begin, digit = divmod(begin, part.extent)
                if part.axis != REPEATED:
                    offsets[part.axis] += digit * part.stride
            return self._with(axis, ())._replace(offsets=tuple(offsets))
        if len(parts) != 1:
            return None
        (part,) = parts
        if part.axis != REPEATED:
            offsets[part.axis] += begin * part.stride
        return self._with(axis, (part._replace(extent=extent),))._replace(offsets=tuple(offsets))

    def without(self, axis: int) -> View:
        """The view without an axis, which must have one element."""
        return self._replace(axes=self.axes[:axis] + self.axes[axis + 1 :])

    def _with(self, axis: int, parts: Axis) -> View:
        return self._replace(axes=(*self.axes[:axis], parts, *self.axes[axis + 1 :]))


def whole(extent: int, axis: int) -> Axis:
    """The axis of a view that is a whole axis of the source; an axis of one element has no parts."""
    return (Part(extent, axis),) if extent > 1 else ()


def access(
    view: View, parameter: int, coordinates: Sequence[Axis], extents: Sequence[int], loops: Iterable[int]
) -> Access | None:
    """The indices at which a kernel reads the source of a view, as sums of terms of the kernel's coordinates.

    `coordinates` composes the position along each axis of the view from the kernel's coordinates, whose extents are
    `extents`; it is aligned with the last axes of the view.  Axes of one element are broadcast.  `parameter` is the
    kernel's parameter that is the source.

    None where the indices are no such sums, or where one of `loops`, the coordinates of inner loops, would be divided.
    """
    if len(view.axes) > len(coordinates):
        return None
    terms: list[list[Term]] = [[] for _ in view.offsets]
    inner = frozenset(loops)
    for axis, counted in zip(reversed(view.axes), reversed(coordinates), strict=False):
        if not axis:
            continue
        if _extent(axis) != _extent(counted):
            return None
        pairs = _refined(counted, axis)
        if pairs is None:
            return None
        for own, part in pairs:
            if part.axis == REPEATED:
                continue
            last = own.stride * own.extent == extents[own.axis]
            term = Term(own.axis, own.stride, 0 if last else own.extent, part.stride)
            if own.axis in inner and (term.divisor > 1 or term.modulus):
                return None
            terms[part.axis].append(term)
    indices = (Index(offset, tuple(found)) for offset, found in zip(view.offsets, terms, strict=True))
    return Access(parameter, tuple(indices))


def _refined(first: Axis, second: Axis) -> list[tuple[Part, Part]] | None:
    """Splits the parts of two axes so that they have equal extents, and pairs them, the fastest first.

    None where extents do not divide each other.
    """
    ones, others = list(first), list(second)
    pairs = []
    while ones and others:
        one, other = ones.pop(), others.pop()
        extent = min(one.extent, other.extent)
        for part, rest in ((one, ones), (other, others)):
            if part.extent % extent:
                return None
            if part.extent > extent:
                rest.append(Part(part.extent // extent, part.axis, part.stride * extent))
        pairs.append((one._replace(extent=extent), other._replace(extent=extent)))
    return pairs


def _extent(axis: Axis) -> int:
    return math.prod(part.extent for part in axis)
