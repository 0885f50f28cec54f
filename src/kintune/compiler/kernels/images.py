"""Images of pixels as sums read them: their extents, where the parts of a sum lie, and copies with borders.

A convolution reads windows of an image.  A product of matrices reads a matrix, which is an image whose lines have one
pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.loops import buffer, index, loop, sequence, unravelled
from kintune.compiler.kernels.microkernel import Segments
from kintune.compiler.kernels.statements import block_over

__all__ = ["Image", "Writer", "brought_in", "line_copier", "stores"]


class Image(NamedTuple):
    """`number` images of `height` lines of `width` pixels, with their borders; a pixel is stored as `depth` values.

    `size` are the lines and pixels without borders, of which `before` are above and to the left.  Of the values of a
    pixel, `channels` are those of the data, and zeros follow.  There are `results` by lines and columns; each is a sum
    over `taps`, by rows and columns.
    """

    number: int
    height: int
    width: int
    channels: int
    depth: int
    results: tuple[int, int]
    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)

    @classmethod
    def of_matrix(cls, rows: int, channels: int, depth: int = 0) -> Image:
        """The image of a matrix of `rows` by `channels`."""
        return cls(1, rows, 1, channels, depth or channels, (rows, 1), size=(rows, 1))

    @classmethod
    def of(cls, found: Contraction, depth: int = 0, *, whole: bool = False) -> Image:
        """The data of a contraction, of which pixels are stored as `depth` values.

        It is the `whole` data, or the part that is read, with its borders.
        """
        y, x = found.rows, found.columns
        if found.batches or found.is_matrix:
            return cls.of_matrix(math.prod(found.extents), found.channels, depth)
        read, before, size = (y.size, x.size), (0, 0), (y.size, x.size)
        if not whole:
            read = y.read, x.read
            before = min(y.before, read[0]), min(x.before, read[1])
            size = min(y.size, read[0] - before[0]), min(x.size, read[1] - before[1])
        return cls(
            found.images, *read, found.channels, depth or found.channels, (y.results, x.results), (y.kernel, x.kernel),
            (y.stride, x.stride), (y.dilation, x.dilation), before, size,
        )  # fmt: skip

    @property
    def line(self) -> int:
        """The values of a line of pixels."""
        return self.width * self.depth

    @property
    def is_copied(self) -> bool:
        """Whether the data is copied: for its borders, or because of zeros behind its channels."""
        return (self.height, self.width) != self.size or self.depth != self.channels

    @property
    def is_plain(self) -> bool:
        """Whether there is a result for each pixel, which begins there."""
        return self.strides == (1, 1) and self.results == (self.height, self.width)

    @property
    def values(self) -> int:
        """The values of a sum."""
        return math.prod(self.taps) * self.depth

    @property
    def segment(self) -> int:
        """The values of a sum that lie one after another."""
        return self.depth * (self.taps[1] if self.dilations[1] == 1 else 1)

    def segments(self, size: int) -> Segments:
        """Where such segments lie, if a value has so many bytes."""
        (rows, columns), (tall, wide) = self.taps, self.dilations
        far = self.line * tall * size
        if columns == 1 or wide == 1:
            return Segments(rows, far=far)
        return Segments(rows * columns, columns, wide * self.depth * size, far)


class Writer(NamedTuple):
    """Writes so many pixels in a buffer of one axis, from value `start` on.

    `copy(row, start, count)` writes those of a line of the data, `fill(start, count)` those of a border.
    """

    copy: Callable[[Any, Any, int], Any]
    fill: Callable[[Any, int], Any]


def brought_in(image: Image, data: Any, border: Any, around: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The buffer in which a kernel reads the data, and the statement that copies it there, if that is needed.

    `border` is the value around the data, for which the buffers `around` are read.
    """
    if not image.is_copied:
        return data, []
    lines = image.number * image.height
    target = buffer("bordered", (lines * image.line,), str(data.dtype), "global")
    copied = line_copier(image, stores(image, data, border)(target))
    body = block_over(
        "bordered_data",
        [("row", lines)],
        lambda row: copied(row, row * index(image.line)),
        [data, *around],
        [target],
        parallel=lines > 1,
    )
    return target, [body]


def line_copier(image: Image, writer: Writer) -> Callable[[Any, Any], Any]:
    """A function of `row` and `start` that gives the statement which copies a line of the data with its borders.

    `row` is the number of the line among those of all images, borders included; `start` is where it goes.
    """
    (top, left), (lines, pixels) = image.before, image.size
    right = image.width - left - pixels

    def copied(row: Any, start: Any) -> Any:
        inside = [writer.fill(start, left)] if left else []
        if pixels:
            inside.append(writer.copy(row, start + index(left * image.depth), pixels))
        if right:
            inside.append(writer.fill(start + index((left + pixels) * image.depth), right))
        if lines >= image.height and not top:
            return sequence(inside)
        y = tirx.floormod(row, index(image.height))
        is_inside = tirx.all(y >= index(top), y < index(top + lines))
        return tirx.IfThenElse(is_inside, sequence(inside), writer.fill(start, image.width))

    return copied


def stores(image: Image, data: Any, border: Any) -> Callable[[Any], Writer]:
    """A function of the target that gives a writer by stores of single values, with zeros behind the channels."""

    def made(target: Any) -> Writer:
        zero, channels = tirx.const(0, str(target.dtype)), index(image.channels)

        def put(name: str, start: Any, extent: int, value: Callable[[Any], Any]) -> Any:
            return loop(name, extent, lambda at: tirx.BufferStore(target, value(at), [start + at]))

        def written(name: str, start: Any, number: int, value: Callable[[Any], Any]) -> Any:
            """So many pixels, whose channels are numbered one after another."""
            if image.depth == image.channels:
                return put(name, start, number * image.depth, value)

            def pixel(x: Any) -> Any:
                first = start + x * index(image.depth)
                given = put("c", first, image.channels, lambda c: value(x * channels + c))
                return sequence([given, put("z", first + channels, image.depth - image.channels, lambda z: zero)])

            return loop("x", number, pixel)

        def element(row: Any, at: Any) -> Any:
            if image.size == (image.height, 1):
                place = [*unravelled(row, [int(extent) for extent in data.shape[:-1]]), at]
            else:
                y = tirx.floormod(row, index(image.height)) - index(image.before[0])
                place = [tirx.floordiv(row, index(image.height)), y]
                place += [tirx.floordiv(at, channels), tirx.floormod(at, channels)]
            return data[tuple(place)]

        return Writer(
            lambda row, start, count: written("c", start, count, lambda at: element(row, at)),
            lambda start, count: written("l", start, count, lambda at: border),
        )

    return made
