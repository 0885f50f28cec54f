"""Writes attention in bf16: a task is a block of queries of one head, and sees all keys.

A task first brings keys and values into panels, as the micro-kernel reads the second factor of a
product: pairs of neighbours along the sum lie side by side.  Of keys the sum goes along the depth, so that they are
transposed in pairs.  Of values it goes along the keys, so that two rows are interleaved.  Then, for 32 queries at a
time:

1. The queries are rounded, and multiplied with all panels of keys.  The scores are of fp32.
2. Scores are scaled and changed by the steps of the pattern.  Their maxima, exponentials and sums are of fp32.
3. The exponentials are rounded, and multiplied with all panels of values.  Each row is divided by its sum.

All scores of these queries are kept, so nothing is computed online.  A block of queries, and the last queries of a
block, begin earlier where they would not fit, and compute some queries twice.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.calls import BF16_BITS, IMPORT, address, call_copy, call_kernel
from kintune.compiler.kernels.copies import CHUNK, copying_text, pairing_text
from kintune.compiler.kernels.cost import Calls, Loop, Tasks
from kintune.compiler.kernels.instructions import PAIRS, Instruction
from kintune.compiler.kernels.loops import pieces
from kintune.compiler.kernels.microkernel import Kernel, Text, text_of, together
from kintune.compiler.kernels.statements import ceildiv
from kintune.compiler.programs.attention_pattern import Access, AttentionPattern, element, place, scored
from kintune.compiler.programs.attention_tiles import LOWEST, factor_of, finished
from kintune.compiler.programs.kernel_writer import (
    add,
    alloc,
    bind,
    importing,
    load,
    repeat,
    store,
    store_vector,
    tasks,
    transposed,
    vector,
)
from kintune.compiler.programs.panel_form import Inner as Panels
from kintune.compiler.programs.powers import power_of_e

__all__ = ["LANES", "UNIT", "bytes_of_a_task", "tasks_of", "write_narrow"]

UNIT = 16
"""The rows that are computed at once, at least."""

LANES, _PAIR = PAIRS[0].lanes, PAIRS[0].step
_COLUMNS = 2 * LANES
_VECTOR_ROWS = 8
_PACKING = 24  # instructions that bring a vector of keys or values into its panel


def _kernel(instruction: Instruction, units: int, pitch: int, steps: int) -> Kernel:
    """The micro-kernel for so many units of rows, `pitch` bytes apart; it is told how many steps to take."""
    inner = Panels(instruction.variant, UNIT if instruction.tiles else _VECTOR_ROWS, _COLUMNS)
    return inner.kernel(units, steps, pitch)._replace(counted=True)


class _Sizes(NamedTuple):
    """Panels of keys and of values, and pairs along each sum: all filled up to whole parts of 32 values."""

    key_panels: int
    value_panels: int
    depth_pairs: int

    @property
    def key_pairs(self) -> int:
        return self.key_panels * _COLUMNS // _PAIR

    @property
    def line(self) -> int:
        """The floats from one row of exponentials in bf16 to the next: an odd number of lines of a cache."""
        lines = -(-self.key_pairs // LANES)
        return (lines + (lines + 1) % 2) * LANES


def _sizes(pattern: AttentionPattern) -> _Sizes:
    panels = [-(-extent // CHUNK) for extent in (pattern.columns, pattern.width, pattern.depth)]
    return _Sizes(panels[0], panels[1], panels[2] * CHUNK // _PAIR)


def bytes_of_a_task(pattern: AttentionPattern) -> int:
    """The bytes of memory of a task: its panels of keys and values, and its buffers for 32 queries."""
    sizes = _sizes(pattern)
    panels = sizes.key_panels * sizes.depth_pairs + sizes.value_panels * sizes.key_pairs
    rows = sizes.key_panels * _COLUMNS + sizes.line + sizes.value_panels * _COLUMNS + sizes.depth_pairs
    return 4 * (panels * _COLUMNS + rows * 2 * UNIT)


def tasks_of(pattern: AttentionPattern, instruction: Instruction, blocks: int) -> Tasks:
    """What the tasks do, for an estimate: keys and values are packed, then both products and a softmax of each unit."""
    sizes, units = _sizes(pattern), ceildiv(ceildiv(pattern.rows, UNIT), blocks)
    scores, mixed = (_kernel(instruction, 1, 0, steps) for steps in (sizes.depth_pairs // LANES, sizes.key_panels))
    groups = units * (1 if instruction.tiles else UNIT // _VECTOR_ROWS)
    packing = Loop(pattern.columns * (pattern.depth + pattern.width) / LANES, _PACKING, 2, 2)
    softmax = Loop(units * UNIT * sizes.key_panels * _COLUMNS / LANES, 4, 2, 2, functions=1)
    products = Calls(scores, groups * sizes.key_panels), Calls(mixed, groups * sizes.value_panels)
    return Tasks(pattern.heads * blocks, (packing, *products, softmax))


def write_narrow(
    function: Any, pattern: AttentionPattern, instruction: Instruction, blocks: int, kept: frozenset[int]
) -> Any:
    """A module whose `main` computes the attention of `function`, each head in so many blocks of queries.

    The pattern must have at least 16 queries.  Query and key must be contiguous along the depth, values along the
    width.  The parameters at the positions `kept` are addressed as bf16, although their buffers still have the type of
    the workload.
    """
    units = -(-pattern.rows // UNIT)
    each = -(-units // blocks)
    blocks = -(-units // each)
    return tasks(
        function,
        pattern.heads * blocks,
        "attention",
        lambda buffers, task: _Task(buffers, pattern, instruction, blocks, each, kept).write(task),
        result=pattern.result.parameter,
    )


class _Task:
    def __init__(
        self,
        buffers: Any,
        pattern: AttentionPattern,
        instruction: Instruction,
        blocks: int,
        units: int,
        kept: frozenset[int],
    ) -> None:
        self.buffers, self.pattern, self.instruction = buffers, pattern, instruction
        self.blocks, self.units, self.kept = blocks, units, kept
        self.sizes = sizes = _sizes(pattern)
        most = {sizes.depth_pairs: sizes.depth_pairs // LANES, sizes.line: sizes.key_panels}
        made = {(line, units): _kernel(instruction, units, 4 * line, most[line]) for line in most for units in (1, 2)}
        self._kernels = {key: (kernel, text_of(kernel)) for key, kernel in made.items()}
        self.is_plain = not pattern.steps and pattern.scale > 0  # scores are then scaled with their exponentials
        self.batch: list[Any] = []
        self.start: Any = 0

    def write(self, task: Any) -> None:
        pattern, sizes = self.pattern, self.sizes
        head = task // self.blocks if self.blocks > 1 else task
        self.batch = pattern.batch_of(head)
        if self.blocks > 1:
            rows = self.units * UNIT
            self.start = tirx.min(task % self.blocks * rows, pattern.rows - rows)
        high = 2 * UNIT
        self.rounded = alloc("rounded", high, sizes.depth_pairs)
        self.keys = alloc("keys", sizes.key_panels, sizes.depth_pairs, _COLUMNS)
        self.values = alloc("values", sizes.value_panels, sizes.key_pairs, _COLUMNS)
        self.zeros = alloc("zeros", sizes.value_panels * _COLUMNS)
        self.scores = alloc("scores", sizes.key_panels, high, _COLUMNS)
        self.powers = alloc("powers", high, sizes.line)
        self.mixed = alloc("mixed", sizes.value_panels, high, _COLUMNS)
        self.lanes = alloc("lanes", high, LANES)
        self.running = alloc("running", LANES)  # of one row: small enough to stay in a register
        self.most, self.total = alloc("most", high), alloc("total", high)
        texts = [copying_text(converts=True), pairing_text(), *(text for _, text in self._kernels.values())]
        with importing(IMPORT, together(texts)):
            if self.instruction.tiles:
                _call(f"{texts[-1].name}_begin")
            self._pack_keys()
            self._pack_values()
            self._rows()
            if self.instruction.tiles:
                _call(f"{texts[-1].name}_end")

    def _rows(self) -> None:
        """All queries of the task, 32 at a time, then 16."""
        pairs, single = divmod(self.units, 2)
        if pairs and self.pattern.rows < 2 * UNIT:  # of two units, the second one begins earlier
            pairs, single = 0, self.units
        with repeat(pairs, "pair") as pair:
            if pairs:
                self._some(self._begin(pair * (2 * UNIT), 2 * UNIT), 2)
        with repeat(single, "unit") as unit:
            if single:
                self._some(self._begin(unit * UNIT + pairs * (2 * UNIT), UNIT), 1)

    def _begin(self, first: Any, number: int) -> Any:
        """The first of so many queries, earlier where they would not fit."""
        place_of, last = self.start + first, self.pattern.rows - number
        return min(place_of, last) if isinstance(place_of, int) else tirx.min(place_of, last)

    def _address(self, access: Access, row: Any = 0, column: Any = 0, width: int = 0) -> Any:
        """The address of the first of a row of values, or of a place of the width in it."""
        buffer = self.buffers[access.parameter]
        offset: Any = 0
        for index, extent in zip(place(access, (*self.batch, row, column, 0, width)), buffer.shape, strict=True):
            offset = offset * int(extent) + index
        return address(buffer, offset, BF16_BITS if access.parameter in self.kept else "")

    def _read_row(self, access: Access, target: Any, row: Any = 0, column: Any = 0) -> None:
        """Bring a row of query or key into bf16."""
        name = "kt_copy" if access.parameter in self.kept else "kt_round"
        _call(name, self._address(access, row, column), target, self.pattern.depth, 2 * CHUNK)

    def _pack_keys(self) -> None:
        """Keys in panels: pairs of the depth, by 32 keys."""
        whole, rest = divmod(self.pattern.columns, _COLUMNS)
        with repeat(whole, "panel") as panel:
            if whole:
                self._key_panel(panel, _COLUMNS)
        if rest:
            pairs = self.sizes.depth_pairs
            _call("kt_zero", address(self.rounded, 0), 4 * _COLUMNS * pairs)
            self._key_panel(whole, rest)

    def _key_panel(self, panel: Any, number: int) -> None:
        pairs = self.sizes.depth_pairs
        with repeat(number, "key") as key:
            target = address(self.rounded, key * pairs)
            self._read_row(self.pattern.key, target, column=panel * _COLUMNS + key)
        with repeat(_COLUMNS // LANES, "group") as group, repeat(pairs // LANES, "part") as part:
            rows = [load(self.rounded, (group * LANES + i, part * LANES), LANES) for i in range(LANES)]
            for i, column in enumerate(transposed(rows)):
                store_vector(self.keys, column, [panel, part * LANES + i, group * LANES])

    def _pack_values(self) -> None:
        """Values in panels: pairs of keys, by 32 places of the width."""
        pattern, sizes = self.pattern, self.sizes
        pairs, single = divmod(pattern.columns, _PAIR)
        stride = 4 * sizes.key_pairs * _COLUMNS
        name = "kt_join" if pattern.value.parameter in self.kept else "kt_pair"

        def pair(number: Any, second: Any) -> None:
            first = self._address(pattern.value, column=number * _PAIR)
            _call(name, first, second, address(self.values, number * _COLUMNS), pattern.width, stride)

        with repeat(pairs, "pair") as number:
            pair(number, self._address(pattern.value, column=number * _PAIR + 1))
        if single:
            _call("kt_zero", address(self.zeros, 0), 4 * sizes.value_panels * _COLUMNS)
            pair(pairs, address(self.zeros, 0))
        begin = pairs + single
        if begin < sizes.key_pairs:
            with repeat(sizes.value_panels, "panel") as panel:
                target = address(self.values, (panel * sizes.key_pairs + begin) * _COLUMNS)
                _call("kt_zero", target, 4 * (sizes.key_pairs - begin) * _COLUMNS)

    def _some(self, start: Any, units: int) -> None:
        """Compute the results of so many units of queries, from query `start` on."""
        pattern, sizes, number = self.pattern, self.sizes, units * UNIT
        with repeat(number, "row") as row:
            self._read_row(pattern.query, address(self.rounded, row * sizes.depth_pairs), start + row)
        seen = self._seen(start + number)
        with repeat(seen, "panel") as panel:
            keys = address(self.keys, panel * (sizes.depth_pairs * _COLUMNS))
            scores = panel * (2 * UNIT * _COLUMNS)
            steps = sizes.depth_pairs // LANES
            self._product(self.rounded, sizes.depth_pairs, keys, self.scores, scores, steps, units)
        self._softmax(start, number, seen)
        with repeat(sizes.value_panels, "panel") as panel:
            values = address(self.values, panel * (sizes.key_pairs * _COLUMNS))
            self._product(self.powers, sizes.line, values, self.mixed, panel * (2 * UNIT * _COLUMNS), seen, units)
        self._finish(start, number)

    def _seen(self, end: Any) -> Any:
        """The panels of keys that queries before number `end` see."""
        panels, shift = self.sizes.key_panels, self.pattern.shift
        if shift is None:
            return panels
        needed = (end + (shift + _COLUMNS - 1)) // _COLUMNS
        if isinstance(needed, int):
            return max(1, min(needed, panels))
        return tirx.max(1, tirx.min(needed, panels))

    def _product(self, rows: Any, line: int, panel: Any, target: Any, offset: Any, steps: Any, units: int) -> None:
        """A product of rows that lie `line` floats apart by a panel, in steps of 32 values."""
        kernel, text = self._kernels[line, units]
        if self.instruction.tiles:
            add(_products(text, kernel, address(rows, 0), panel, address(target, offset), steps))
            return
        with repeat(units * UNIT // _VECTOR_ROWS, "group") as group:
            sums = address(target, offset + group * (_VECTOR_ROWS * _COLUMNS))
            source = address(rows, group * (_VECTOR_ROWS * line))
            add(_products(text, kernel, source, panel, sums, steps * LANES))

    def _softmax(self, start: Any, number: int, seen: Any) -> None:
        """Scores become exponentials in bf16; `total` becomes what each row of the result is multiplied by."""
        self._changed(start, number, seen)
        self._fold(self.most, number, tirx.max)
        if self.is_plain:
            with repeat(number // LANES, "group") as group, vector(LANES) as lane:
                store(self.most, self.most[group * LANES + lane] * self._scale, group * LANES + lane)
        with repeat(number, "row") as row:
            with vector(LANES) as lane:
                store(self.running, tirx.const(0, "float32"), lane)
            with repeat(seen, "panel") as panel:
                with repeat(_COLUMNS // LANES, "half") as half:
                    with vector(LANES) as lane:
                        at = (panel, row, half * LANES + lane)
                        score = self.scores[at] * self._scale if self.is_plain else self.scores[at]
                        store(self.scores, power_of_e(score - self.most[row]), *at)
                    with vector(LANES) as lane:
                        more = self.running[lane] + self.scores[panel, row, half * LANES + lane]
                        store(self.running, more, lane)
                source = address(self.scores, (panel * (2 * UNIT) + row) * _COLUMNS)
                target = address(self.powers, row * self.sizes.line + panel * (_COLUMNS // _PAIR))
                _call("kt_round", source, target, _COLUMNS, 2 * CHUNK)
            self._keep(row)
        self._fold(self.total, number, lambda one, other: one + other)
        blank = self.pattern.blank
        with repeat(number // LANES, "group") as group, vector(LANES) as lane:
            row = group * LANES + lane
            hidden = None if blank is None else element(self.buffers, blank, (*self.batch, start + row, 0, 0, 0))
            store(self.total, factor_of(self.pattern, self.total[row], hidden), row)

    def _changed(self, start: Any, number: int, seen: Any) -> None:
        """Scale scores and change them by the pattern's steps; find the largest of each row, lane by lane."""
        whole, rest = divmod(self.pattern.columns, _COLUMNS)
        if not isinstance(seen, int):
            whole = tirx.min(seen, whole)
        with repeat(number, "row") as row:
            with vector(LANES) as lane:
                store(self.running, tirx.const(LOWEST, "float32"), lane)
            with repeat(whole, "panel") as panel, repeat(_COLUMNS // LANES, "half") as half:
                self._change(start + row, row, panel, half * LANES, LANES)
            if rest:
                last = self.pattern.columns // _COLUMNS
                for first, width in pieces(rest, LANES):
                    self._change(start + row, row, last, first, width)
                for first, width in _behind(rest):  # columns without a key never count, even if all scores are LOWEST
                    with vector(width) as lane:
                        store(self.scores, tirx.const(-math.inf, "float32"), last, row, first + lane)
            self._keep(row)

    def _keep(self, row: Any) -> None:
        """Store the running maxima or sums of a row in `lanes`."""
        with vector(LANES) as lane:
            store(self.lanes, self.running[lane], row, lane)

    def _change(self, query: Any, row: Any, panel: Any, first: Any, width: int) -> None:
        """Apply scale and steps to neighbouring scores of a row, and take them into its running maxima."""
        if not self.is_plain:
            with vector(width) as lane:
                column = first + lane
                at = (*self.batch, query, panel * _COLUMNS + column, 0, 0)
                score, read = self.scores[panel, row, column] * self._scale, partial(element, self.buffers)
                value = scored(self.pattern, score, at, read)
                store(self.scores, value, panel, row, column)
        with vector(width) as lane:
            store(self.running, tirx.max(self.running[lane], self.scores[panel, row, first + lane]), lane)

    @property
    def _scale(self) -> Any:
        return tirx.const(self.pattern.scale, "float32")

    def _fold(self, target: Any, number: int, combine: Any) -> None:
        """Combine the lanes of each row into one value; 16 rows at once, after a transposition."""
        with repeat(number // LANES, "group") as group:
            found = transposed([load(self.lanes, (group * LANES + i, 0), LANES) for i in range(LANES)])
            while len(found) > 1:
                found = [bind(combine(found[i], found[i + 1])) for i in range(0, len(found), 2)]
            store_vector(target, found[0], [group * LANES])

    def _finish(self, start: Any, number: int) -> None:
        pattern = self.pattern
        output, is_kept = self.buffers[pattern.result.parameter], pattern.result.parameter in self.kept
        with repeat(number, "row") as row:
            for panel in range(self.sizes.value_panels):
                for first, width in pieces(min(_COLUMNS, pattern.width - panel * _COLUMNS), LANES):
                    with vector(width) as lane:
                        column = first + lane
                        at = (*self.batch, start + row, 0, 0, panel * _COLUMNS + column)
                        value = finished(pattern, self.mixed[panel, row, column], self.total[row])
                        if is_kept:
                            store(self.mixed, value, panel, row, column)
                        else:
                            store(output, value, *place(pattern.result, at))
                if is_kept:
                    self._put(start + row, row, panel)

    def _put(self, query: Any, row: Any, panel: int) -> None:
        """Round a panel of a row of the result, which is in `mixed`, to bf16, and store it."""
        width = min(_COLUMNS, self.pattern.width - panel * _COLUMNS)
        source = address(self.mixed, (panel * 2 * UNIT + row) * _COLUMNS)
        target = self._address(self.pattern.result, query, width=panel * _COLUMNS)
        _call("kt_put", source, target, width, 2 * CHUNK)


def _behind(first: int) -> list[tuple[int, int]]:
    """Vectors (start, lanes) that cover the columns of a panel from `first` on."""
    return [(_COLUMNS - start - width, width) for start, width in pieces(_COLUMNS - first, LANES)]


def _call(name: str, *arguments: Any) -> None:
    """A call of a function of the inner kernel's text."""
    add(call_copy(name, *arguments))


def _products(text: Text, kernel: Kernel, rows: Any, panel: Any, sums: Any, steps: Any) -> Any:
    return call_kernel(text.name, kernel, [rows], [panel], sums, steps=steps)
