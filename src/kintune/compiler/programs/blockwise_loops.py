"""The loops around the innermost ones of a product with blockwise quantised weights: the whole program.

Integers, scales and zero points are packed once, in panels of the columns that are computed at once.  A task of the
parallel loop takes a block of rows and a part of the panels.  Few rows are multiplied while the weights are unpacked in
registers.  For many, a task unpacks a panel to floats first, and multiplies all its rows with that.

Rows and columns beyond the last repeat the last one, and are not stored.  Data that do not fill the last block of
weights are copied, with zeros behind them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import IMPORT, address, call_kernel
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.instructions import fused
from kintune.compiler.kernels.microkernel import Kernel, Text, text_of
from kintune.compiler.kernels.unpacking import Packing, product_text, unpacking_text
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import buffer, index, loop, sequence
from kintune.compiler.programs.task_blocks import block_over, stored_vector, tasks_over, unravelled, with_body
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "write_blockwise"]

_UNROLL = 4  # products with unpacked weights that are written out; the depth is whole blocks, so a multiple of it


class Blocking(NamedTuple):
    """Register tiles of `rows` by `vectors`; tasks are `blocks` of rows by about `parts` parts of the panels.

    With `unpacks`, a panel is unpacked to memory for all rows of a block.
    """

    rows: int
    vectors: int
    unpacks: bool
    blocks: int
    parts: int


class _Panels(NamedTuple):
    """The packed weights: buffers of integers, scales and zero points, the last None where there are none."""

    integers: Any
    scales: Any
    zeros: Any

    @property
    def buffers(self) -> list[Any]:
        return [each for each in self if each is not None]

    def addresses(self, panel: Any, packing: Packing) -> list[Any]:
        """The addresses of a panel's integers, scales and zero points; of scales again where there are no points."""
        zeros = self.scales if self.zeros is None else self.zeros
        return [
            address(each, panel * index(math.prod(map(int, each.shape[1:])))).touched(nbytes)
            for each, nbytes in zip((self.integers, self.scales, zeros), packing.panel_bytes, strict=True)
        ]


def write_blockwise(
    module: tvm.IRModule, w: Contraction, epilogue: Epilogue | None, lanes: int, permutes: bool, b: Blocking
) -> tvm.IRModule:
    """The program; `epilogue` is what follows the sums, if anything does.

    `permutes` says that the CPU has AVX-512, with 16 lanes.
    """
    writer = _Writer(w, epilogue, lanes, permutes, b)
    statements, buffers = writer.packing()
    data = w.data
    if w.blockwise.depth != w.blockwise.inputs:
        data = buffer("filled", (w.positions * w.blockwise.depth,), "float32", "global")
        statements.append(writer.filling(data))
        buffers.append(data)
    statements.append(writer.computing(data))
    return with_body(module, statements, buffers, set(w.parameters), epilogue)


class _Writer:
    def __init__(self, w: Contraction, epilogue: Epilogue | None, lanes: int, permutes: bool, b: Blocking) -> None:
        self._w, self._p, self._epilogue, self._lanes, self._b = w, w.blockwise, epilogue, lanes, b
        self._permutes = permutes
        self._panel = b.vectors * lanes
        self._number = -(-w.filters // self._panel)
        self._panels = self._buffers()

    def _buffers(self) -> _Panels:
        p, each = self._p, (self._number, self._p.blocks, self._panel)
        if p.bits == 4:
            integers = buffer(
                "integers", (self._number, p.depth // 8, self._b.vectors, self._lanes, 4), "uint8", "global"
            )
        else:
            integers = buffer("integers", (self._number, p.depth, self._panel), "uint8", "global")
        zeros = None
        if p.zeros:
            rows = int(self._w.zeros.shape[0])
            zeros = buffer("points", (self._number, rows, self._panel), str(self._w.zeros.dtype), "global")
        return _Panels(integers, buffer("steps", each, "float32", "global"), zeros)

    def packing(self) -> tuple[list[Any], list[Any]]:
        """The blocks that write the packed weights, and the buffers of these; each weight is only moved."""
        p, panels, w = self._p, self._panels, self._w

        def column(o: Any, within: Any) -> Any:
            found = o * index(self._panel) + within
            return tirx.min(found, index(w.filters - 1)) if w.filters % self._panel else found

        def pairs(o: Any, k: Any, v: Any, lane: Any, e: Any) -> Any:
            at = column(o, v * index(self._lanes) + lane)
            return tirx.BufferStore(panels.integers, w.weights[k * index(4) + e, at], [o, k, v, lane, e])

        def rows(source: Any, target: Any) -> Any:
            return lambda o, k, c: tirx.BufferStore(target, source[k, column(o, c)], [o, k, c])

        found = [
            _packed(
                "packed_integers",
                pairs if p.bits == 4 else rows(w.weights, panels.integers),
                w.weights,
                panels.integers,
            ),
            _packed("packed_scales", rows(w.scales, panels.scales), w.scales, panels.scales),
        ]
        if panels.zeros is not None:
            found.append(_packed("packed_zeros", rows(w.zeros, panels.zeros), w.zeros, panels.zeros))
        return found, panels.buffers

    def filling(self, target: Any) -> Any:
        """The data with zeros behind them."""
        w, p = self._w, self._p
        lead = [int(extent) for extent in w.data.shape[:-1]]

        def body(row: Any) -> Any:
            start = row * index(p.depth)

            def copied(k: Any) -> Any:
                at = (*unravelled(row, lead), k)
                return tirx.BufferStore(target, w.data[at], [start + k])

            def zero(k: Any) -> Any:
                return tirx.BufferStore(target, tirx.const(0.0, "float32"), [start + index(p.inputs) + k])

            return sequence([loop("k", p.inputs, copied), loop("z", p.depth - p.inputs, zero)])

        return block_over("filled_data", [("row", w.positions)], body, [w.data], [target], parallel=w.positions > 1)

    def computing(self, data: Any) -> Any:
        """The parallel loop."""
        w, p, b, panel = self._w, self._p, self._b, self._panel
        own = -(-self._number // b.parts)
        parts = -(-self._number // own)
        groups = -(-w.positions // (b.blocks * b.rows))
        packing, made = self._packing(), self._product()
        kernel = self._kernel()
        sums = buffer("sums", (b.rows * panel,), "float32", "global")
        buffers, texts, floats = [sums], [made], None
        if b.unpacks:
            texts.append(unpacking_text(packing))
            floats = buffer("floats", (p.depth * panel,), "float32", "global")
            buffers.append(floats)
        exact = w.positions == b.blocks * groups * b.rows

        def tile(row: Any, o: Any) -> Any:
            """The sums of some rows from `row` on with one panel, and what follows."""
            last = index(w.positions - 1)
            rows = [row + index(r) if exact else tirx.min(row + index(r), last) for r in range(b.rows)]
            weights = self._panels.addresses(o, packing) if floats is None else [address(floats, index(0))]
            read = [address(data, each * index(p.depth)) for each in rows]
            call = call_kernel(made.name, kernel, read, weights, address(sums, index(0)))

            def stored(r: Any) -> Any:
                def element(v: Any, lane: Any) -> Any:
                    return sums[r * index(panel) + v * index(self._lanes) + lane]

                lead = unravelled(row + r, w.extents)
                vector = stored_vector(self._lanes, w.filters, panel, self._epilogue, w.result, element, lead)
                body = loop("v", b.vectors, lambda v: vector(o, v))
                return body if exact else tirx.IfThenElse(row + r < index(w.positions), body, None)

            return sequence([call, loop("r", b.rows, stored)])

        def body(block: Any, part: Any) -> Any:
            def one(each: Any) -> Any:
                o, first = part * index(own) + each, block * index(groups * b.rows)
                tiles = loop("q", groups, lambda q: tile(first + q * index(b.rows), o))
                if floats is not None:
                    target = address(floats, index(0)).touched(packing.floats_bytes)
                    call = tirx.call_extern("int32", texts[-1].name, *self._panels.addresses(o, packing), target)
                    tiles = sequence([tirx.Evaluate(call), tiles])
                return tiles if self._number % own == 0 else tirx.IfThenElse(o < index(self._number), tiles, None)

            declared = dict.fromkeys(line for text in texts for line in text.declared)
            source = tvm.ir.StringImm("\n".join((*declared, *(text.text for text in texts))))
            return tirx.AttrStmt(index(0), IMPORT, source, loop("o", own, one))

        target = w.result if self._epilogue is None else self._epilogue.target
        operands = [] if self._epilogue is None else self._epilogue.operands
        return tasks_over(w.name, b.blocks, parts, body, [data, *self._panels.buffers, *operands], [target], buffers)

    def _kernel(self) -> Kernel:
        """The inner loops that multiply."""
        if self._b.unpacks:
            return Kernel(fused(self._lanes, 16), self._b.rows, self._b.vectors, self._p.depth, _UNROLL)
        return self._packing().kernel(self._b.rows)

    def _product(self) -> Text:
        return text_of(self._kernel()) if self._b.unpacks else product_text(self._packing(), self._b.rows)

    def _packing(self) -> Packing:
        p = self._p
        return Packing(p.bits, self._lanes, self._b.vectors, p.block, p.blocks, p.zeros, self._permutes)


def _packed(name: str, body: Any, source: Any, target: Any) -> Any:
    loops = [(axis, int(extent)) for axis, extent in zip("okvle", target.shape, strict=False)]
    return block_over(name, loops, body, [source], [target], parallel=False, annotations={PACKS: True})
