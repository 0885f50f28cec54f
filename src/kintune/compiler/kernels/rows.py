"""Rows of a result, as a micro-kernel reads them: where the data lies, or from a copy that a task makes for itself.

Rows are computed in units: a unit is a row with an address of its own, or a tile of rows at one distance.  The number
of rows may be an expression whose value is known only when the program runs; a unit is a row then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.calls import Address, address
from kintune.compiler.kernels.images import Image, Writer, line_copier
from kintune.compiler.kernels.loops import INDEX, buffer, index, loop, unravelled
from kintune.compiler.kernels.statements import ceildiv

__all__ = ["Lines", "OpenRows", "Rows", "TaskLines", "TaskRows", "Units", "copied_lines"]


class Lines(NamedTuple):
    """Rows of a result: `number` lines of `length` rows, which are `pitch` values of the image apart.

    A matrix is one line.  With `through`, a line is an image, and its rows are all pixels from its first result to its
    last: those between the results of two lines of pixels are computed and not stored.
    """

    image: Image
    number: int
    length: Any
    pitch: int
    through: bool = False

    def units(self, height: int) -> Any:
        """The units of so many rows in a line."""
        return ceildiv(self.length, height)

    def offset(self, line: Any, first: Any) -> Any:
        """The values from the start of the images to a row of a line."""
        image = self.image
        if self.through:
            return (line * index(image.height * image.width) + first) * index(self.pitch)
        if image.is_plain:
            return (line * index(self.length) + first) * index(self.pitch)
        which, y = unravelled(line, (image.number, image.results[0]))
        start = (which * index(image.height) + y * index(image.strides[0])) * index(image.line)
        return start + first * index(self.pitch)

    @classmethod
    def of(cls, image: Image) -> Lines:
        """One line if there is a result for each pixel; else a line for each line of pixels of the result."""
        high, across = image.results
        if image.is_plain:
            return cls(image, 1, image.number * high * across, image.depth)
        return cls(image, image.number * high, across, image.strides[1] * image.depth)

    @classmethod
    def of_images(cls, image: Image) -> Lines:
        """A line for each image, through all its pixels; strides are 1."""
        (high, across) = image.results
        return cls(image, image.number, (high - 1) * image.width + across, image.depth, through=True)


class Units(NamedTuple):
    """The rows of a result, whose extents but for the columns are `extents`, in units of `height` rows.

    A task has `number` of them.
    """

    lines: Lines
    extents: Sequence[Any]
    height: int
    number: Any


class Rows:
    """Rows that are read where the data lies.

    A unit that would reach beyond its line begins earlier; units beyond the last one are this one again.  No task has
    units of two `batches`, which have lines of their own.
    """

    def __init__(self, of: Units, data: Any, batches: int = 1, stored: str = "") -> None:
        lines, _, height, units = self.lines, self.extents, self.height, self.units = of
        self.data, self.batches, self.type = data, batches, stored
        self.in_line = lines.units(height)
        self.total = lines.number // batches * self.in_line
        self.blocks = ceildiv(self.total, units)
        self.exact = isinstance(self.total, int) and self.total % units == 0
        self.reads, self.buffers = [data], list[Any]()
        """The buffers that a task reads, and those that it has for itself."""

    def begin(self, batch: Any, first: Any) -> tuple[list[Any], Any]:
        """The statements at the begin of the task whose first unit is given, and where what it reads begins."""
        return [], index(0)

    def share(self, block: Any, group: int) -> tuple[Any, Any]:
        """The first unit of a block, and the number of its groups of so many units."""
        first = block * index(self.units)
        if isinstance(self.total, int):
            return first, self.units // group
        return first, ceildiv(tirx.min(index(self.units), self.total - first), group)

    def addresses(self, batch: Any, first: Any, number: int, origin: Any, offset: int = 0) -> list[Address]:
        """The addresses of so many units from one on; of the values `offset` behind them."""
        numbers = [first + index(unit) for unit in range(number)]
        if not self.exact:
            numbers = [tirx.min(each, index(self.total - 1)) for each in numbers]
        return [address(self.data, self._offset(batch, each) - origin + index(offset), self.type) for each in numbers]

    def stored(self, batch: Any, first: Any, number: int, store: Callable[[Any, Any], Any]) -> Any:
        """The statement that stores so many units from one on.

        `store(row, place)` stores a row of theirs, whose indices in the result are `place`.
        """

        def unit(t: Any) -> Any:
            line, begin, skipped = self._place(batch, first + t)

            def row(r: Any) -> Any:
                place, condition = self._indices(line, begin + r)
                stored = store(t * index(self.height) + r, place)
                return stored if condition is None else tirx.IfThenElse(condition, stored, None)

            rows = loop("r", self.height, row)
            if not isinstance(skipped, tirx.IntImm):
                r = tirx.Var("r", INDEX)
                rows = tirx.For(r, index(0), index(self.height) - skipped, tirx.ForKind.SERIAL, row(skipped + r))
            return rows if self.exact else tirx.IfThenElse(first + t < index(self.total), rows, None)

        return loop("t", number, unit)

    def _place(self, batch: Any, number: Any) -> tuple[Any, Any, Any]:
        """The line of a unit, its first row there, and how many rows the unit before it has as well."""
        lines, each = self.lines, self.lines.number // self.batches
        line, within = batch, number
        if each > 1:
            line = number if self.in_line == 1 else tirx.floordiv(number, index(self.in_line))
            within = index(0) if self.in_line == 1 else tirx.floormod(number, index(self.in_line))
            line = batch * index(each) + line
        first = within * index(self.height)
        if self.height == 1 or lines.length % self.height == 0:
            return line, first, index(0)
        begin = tirx.min(first, index(lines.length - self.height))
        return line, begin, first - begin

    def _offset(self, batch: Any, number: Any) -> Any:
        """The values from the start of the data to the first row of a unit."""
        line, first, _ = self._place(batch, number)
        return self.lines.offset(line, first)

    def _indices(self, line: Any, place: Any) -> tuple[list[Any], Any]:
        """The indices of a place of a line in the result, and the condition under which there is one."""
        lines, image = self.lines, self.lines.image
        if lines.through:
            y, x = tirx.floordiv(place, index(image.width)), tirx.floormod(place, index(image.width))
            return [line, y, x], (x < index(image.results[1]) if image.width > image.results[1] else None)
        if lines.number == self.batches:
            return unravelled(line * index(lines.length) + place, self.extents), None
        return [*unravelled(line, self.extents[:-1]), place], None


class OpenRows(Rows):
    """Rows of matrices, one a unit, of which there may be any number: the statements are the same for each.

    It is `known` when a task begins, and `blocks` have about equal numbers of groups.
    """

    def __init__(self, of: Units, data: Any, batches: int, blocks: int) -> None:
        self.known = of.lines.length
        super().__init__(of._replace(lines=of.lines._replace(length=tirx.Var("number", INDEX))), data, batches)
        self.blocks = blocks

    def begin(self, batch: Any, first: Any) -> tuple[list[Any], Any]:
        """The statement that binds the number, and where what a task reads begins."""
        return [tirx.Bind(self.lines.length, index(self.known))], index(0)

    def share(self, block: Any, group: int) -> tuple[Any, Any]:
        """The first unit of a block, and the number of its groups of so many units."""
        groups = ceildiv(self.total, group)
        begin, end = (tirx.floordiv((block + k) * groups, index(self.blocks)) for k in (0, 1))
        return begin * group, end - begin


class TaskLines(Rows):
    """Rows of lines of pixels that each task copies for itself, with their borders; no task has those of two images.

    `writer` copies into a buffer of the type `stored`, and may write `slack` values behind a line.  It reads the
    buffers `around`, too.
    """

    def __init__(
        self,
        of: Units,
        data: Any,
        writer: Callable[[Any], Writer],
        stored: str,
        around: Sequence[Any] = (),
        slack: int = 0,
    ) -> None:
        super().__init__(of, data, of.lines.image.number)
        self.count = copied_lines(of.lines, of.height, of.number)
        self.data = buffer("lines", (self.count * of.lines.image.line + slack,), stored, "global")
        self.reads, self.buffers = [data, *around], [self.data]
        self.copied = line_copier(of.lines.image, writer(self.data))

    def begin(self, batch: Any, first: Any) -> tuple[list[Any], Any]:
        """The statements that copy the lines of a task, and the values before the first of them."""
        image = self.lines.image
        line, begin, _ = self._place(index(0), tirx.min(first, index(self.total - 1)))
        top = tirx.floordiv(begin, index(image.width)) if self.lines.through else line * index(image.strides[0])
        count = tirx.min(index(self.count), index(image.height) - top)
        top = batch * index(image.height) + top
        lines = loop("line", count, lambda number: self.copied(top + number, number * index(image.line)))
        return [lines], top * index(image.line)


class TaskRows(Rows):
    """Rows that each task copies for itself, `pitch` values apart, to its buffer `target`.

    `copy(batch, row, start, origin)` copies a row, by its number, to the values from `start` on.  `origin` is what
    `before` gives with statements that come first.  The end of the last unit of a line is never written.
    """

    def __init__(
        self,
        of: Units,
        data: Any,
        target: Any,
        copy: Callable[[Any, Any, Any, Any], Any],
        before: Callable[[Any, Any], tuple[list[Any], Any]] | None = None,
    ) -> None:
        super().__init__(of, target, of.lines.number)
        self.copy, self.before = copy, before
        self.reads, self.buffers = [data], [target]

    def begin(self, batch: Any, first: Any) -> tuple[list[Any], Any]:
        """The statements that copy the rows of a task, and its first unit."""
        start = first * index(self.height)
        statements, origin = ([], batch) if self.before is None else self.before(batch, start)

        def row(r: Any) -> Any:
            return self.copy(batch, self._number(start + r), r * index(self.lines.pitch), origin)

        return [*statements, loop("row", self._valid(start, self.units), row)], first

    def addresses(self, batch: Any, first: Any, number: int, origin: Any, offset: int = 0) -> list[Address]:
        """The addresses of so many units from one on; of the values `offset` behind them."""
        each = index(self.height * self.lines.pitch)
        return [address(self.data, (first - origin + index(unit)) * each + index(offset)) for unit in range(number)]

    def stored(self, batch: Any, first: Any, number: int, store: Callable[[Any, Any], Any]) -> Any:
        """The statement that stores so many units from one on."""
        start = first * index(self.height)

        def row(r: Any) -> Any:
            place, _ = self._indices(batch, self._number(start + r))
            return store(r, place)

        return loop("row", self._valid(start, number), row)

    @property
    def _divides(self) -> bool:
        """Whether each task has as many rows."""
        length, each = self.lines.length, self.units * self.height
        return isinstance(length, int) and bool(length % each == 0)

    def _valid(self, start: Any, number: int) -> Any:
        """The rows that there are of so many units from a row on."""
        rows = number * self.height
        return rows if self._divides else tirx.min(index(rows), index(self.lines.length) - start)

    def _number(self, row: Any) -> Any:
        """The number of a row, so that indices which are quotients of it are proven to be in bounds, too."""
        return row if self._divides or len(self.extents) == 1 else tirx.min(row, index(self.lines.length - 1))


def copied_lines(lines: Lines, height: int, units: int) -> int:
    """The most lines of pixels, borders included, that so many consecutive units read."""
    image = lines.image
    reach = (image.taps[0] - 1) * image.dilations[0] + 1
    if lines.through:
        across = (image.taps[1] - 1) * image.dilations[1] + 1
        return min(image.height, (units * height + image.width + across - 3) // image.width + reach)
    in_line = lines.units(height)
    number = units // in_line if units % in_line == 0 else (units + in_line - 2) // in_line + 1
    return min(image.height, int((number - 1) * image.strides[0] + reach))
