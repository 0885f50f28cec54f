"""The loops around the innermost ones of a sum of products of bytes: the whole program.

Weights are packed once, in panels of the filters that are computed at once.  Data with borders, or whose channels are
no whole steps, is copied first.  A task of the parallel loop takes a block of rows and a part of the panels.  Rows and
filters beyond the last repeat the last one, and are not stored.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import IMPORT, address, call_kernel
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.instructions import WORD_BYTES, Instruction
from kintune.compiler.kernels.microkernel import Kernel, text_of
from kintune.compiler.programs.byte_packing import brought_in, packed_weights
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import buffer, index, loop, sequence
from kintune.compiler.programs.task_blocks import stored_vector, tasks_over, unravelled, with_body

__all__ = ["Blocking", "write_bytes"]


class Blocking(NamedTuple):
    """`rows` by `vectors` of filters in registers, `unroll` steps written out, `blocks` of rows by `parts` of panels.

    With `panels_first` a panel is used for all rows of a block before the next one is.  A vector has as many filters as
    the instruction has lanes.
    """

    rows: int
    vectors: int
    unroll: int
    blocks: int
    parts: int
    panels_first: bool
    instruction: Instruction

    @property
    def panel(self) -> int:
        """The filters of a panel."""
        return self.vectors * self.instruction.lanes


def write_bytes(
    module: tvm.IRModule, workload: Contraction, epilogue: Epilogue | None, blocking: Blocking
) -> tvm.IRModule:
    """The program; `epilogue` is what follows the sums, if anything does."""
    w, b = workload, blocking
    packed, packing = packed_weights(w, b.panel)
    data, copying = brought_in(w)
    statements = [packing, *([] if copying is None else [copying]), _computing(w, b, epilogue, data, packed)]
    packs = set() if w.position is None else {w.position}
    return with_body(module, statements, [packed, *([] if copying is None else [data])], packs, epilogue)


def _offset(w: Contraction, row: Any) -> Any:
    """The bytes from the start of the data to those of a row of the result."""
    _, height, width = w.image
    down, right = w.rows.stride, w.columns.stride
    if not w.convolves or ((down, right) == (1, 1) and w.extents[1:] == (height, width)):
        return row * index(w.depth)
    image, y, x = unravelled(row, w.extents)
    line = image * index(height) + y * index(down)
    return (line * index(width) + x * index(right)) * index(w.depth)


def _kernel(w: Contraction, b: Blocking) -> Kernel:
    return Kernel(b.instruction, b.rows, b.vectors, w.segment // WORD_BYTES, b.unroll, w.segments)


def _computing(w: Contraction, b: Blocking, epilogue: Epilogue | None, data: Any, packed: Any) -> Any:
    panel, lanes = b.panel, b.instruction.lanes
    own = w.panels(panel) // b.parts
    groups = -(-w.positions // (b.blocks * b.rows))
    kernel = _kernel(w, b)
    name, text = (made := text_of(kernel)).name, made.whole
    sums = buffer("sums", (b.rows * panel,), "int32", "global")
    exact = w.positions == b.blocks * groups * b.rows

    def tile(batch: Any, row: Any, o: Any) -> Any:
        """The sums of some rows of a batch from `row` on with one panel, and what follows."""
        above, before = batch * index(w.positions), batch * index(w.panels(panel))
        last = index(w.positions - 1)
        rows = [row + index(r) if exact else tirx.min(row + index(r), last) for r in range(b.rows)]
        read = [address(data, _offset(w, above + each)) for each in rows]
        weights = address(packed, (before + o) * index(w.steps * panel * WORD_BYTES))
        call = call_kernel(name, kernel, read, [weights], address(sums, index(0)))

        def stored(r: Any) -> Any:
            lead = unravelled(above + row + r, w.extents)

            def element(v: Any, lane: Any) -> Any:
                return sums[r * index(panel) + v * index(lanes) + lane]

            vector = stored_vector(lanes, w.filters, panel, epilogue, w.result, element, lead)
            body = loop("v", b.vectors, lambda v: vector(o, v))
            return body if exact else tirx.IfThenElse(row + r < index(w.positions), body, None)

        return sequence([call, loop("r", b.rows, stored)])

    def body(task: Any, part: Any) -> Any:
        batch, block = (tirx.floordiv(task, index(b.blocks)), tirx.floormod(task, index(b.blocks)))
        if not w.batches:
            batch, block = index(0), task
        first = block * index(groups * b.rows)

        def at(q: Any, o: Any) -> Any:
            return tile(batch, first + q * index(b.rows), part * index(own) + o)

        if b.panels_first:
            inner = loop("o", own, lambda o: loop("q", groups, lambda q: at(q, o)))
        else:
            inner = loop("q", groups, lambda q: loop("o", own, lambda o: at(q, o)))
        return tirx.AttrStmt(index(0), IMPORT, tvm.ir.StringImm(text), inner)

    target = w.result if epilogue is None else epilogue.target
    operands = [] if epilogue is None else epilogue.operands
    blocks = math.prod(w.batches) * b.blocks
    return tasks_over(w.name, blocks, b.parts, body, [data, packed, *operands], [target], [sums])
