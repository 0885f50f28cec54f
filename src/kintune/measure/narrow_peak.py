"""Measures how fast a CPU multiplies and adds shorter numbers in registers: bf16, and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.compiler.kernels.calls import IMPORT
from kintune.compiler.kernels.instructions import (
    BYTES,
    LINE_BYTES,
    PAIRS,
    TILE_ROWS,
    TILES,
    WORD_BYTES,
    Instruction,
    is_available,
)
from kintune.compiler.kernels.microkernel import tile_declarations, tile_frame
from kintune.compiler.programs.panel_sum import BF16
from kintune.core.quantisation import INT8
from kintune.hardware.amx import permit_amx
from kintune.measure.backend import MeasurementBackend
from kintune.measure.chains import chains_within
from kintune.measure.evaluator import evaluator

__all__ = ["measure_narrow_peaks"]

_STEPS = 1 << 13
_REPEATS = 100
_FUNCTION = "kt_peak"
_SUMS = 4  # tiles, which hide the latency of one

_TILE_LOOP = """
define i32 @kt_peak(i32 %steps) {{
entry:
  call i32 @kt_tiles_begin()
{zero}
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
{products}
  %next = add i32 %i, 1
  %last = icmp eq i32 %next, %steps
  br i1 %last, label %end, label %loop
end:
  call i32 @kt_tiles_end()
  ret i32 0
}}
"""

_VECTOR_LOOP = """
{declared}
define i32 @kt_peak(i32 %steps) {{
entry:
  %one = insertelement <{lanes} x i32> poison, i32 %steps, i32 0
  %all = shufflevector <{lanes} x i32> %one, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer
  %value = bitcast <{lanes} x i32> %all to {operand}
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
{chains}
{products}
  %next = add i32 %i, 1
  %last = icmp eq i32 %next, %steps
  br i1 %last, label %end, label %loop
end:
{total}
  %bits = bitcast <{lanes} x {sum}> %total{final} to <{lanes} x i32>
  %result = extractelement <{lanes} x i32> %bits, i32 0
  ret i32 %result
}}
"""


def measure_narrow_peaks(target: str, threads: int, backend: MeasurementBackend | None = None) -> dict[str, float]:
    """GFLOP/s by precision ("bf16", "int8") of `threads` threads, by the fastest instructions that the target has.

    `target` is canonical (JSON).  A product and its addition count as two.  A precision without instructions of its own
    is left out.  The programs run on `backend`, by default in this process.  With a `backend`, AMX is left out: a
    process has to request it from the system, which only this process does.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    found: dict[str, float] = {}
    for precision, instructions in ((BF16, PAIRS), (INT8, BYTES)):
        for each in instructions:
            if not is_available(each, compiler_target) or (each.tiles and not (backend is None and permit_amx())):
                continue
            text, products = (_tiles if each.tiles else _vectors)(each)
            run: Callable[[], tuple[float, ...]] = evaluator(
                _repeated(threads, text), compiler_target, [(threads,)], _REPEATS, backend
            )
            gflops = threads * _STEPS * 2 * products / min(run()) / 1e9
            found[precision] = max(gflops, found.get(precision, 0.0))
    return found


def _repeated(threads: int, text: str) -> Any:
    """A TIR function that runs the loop of the text on each thread."""
    steps, name, imported = _STEPS, _FUNCTION, IMPORT

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def arithmetic(out: T.Buffer((threads,), "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.func_attr({"tirx.noalias": True})
        for thread in T.parallel(threads):
            with T.attr("inner", imported, text):
                out[thread] = T.Cast("float32", T.call_extern("int32", name, steps))

    return arithmetic


def _tiles(instruction: Instruction) -> tuple[str, int]:
    """The text of a loop over products of tiles, and the products of a step."""
    zero = "\n".join(f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(TILES))
    products = "\n".join(
        f"  call void @{instruction.function}(i8 {number}, i8 {4 + number // 2}, i8 {6 + number % 2})"
        for number in range(_SUMS)
    )
    frame = tile_frame("kt_tiles", [(LINE_BYTES, TILE_ROWS)] * TILES)
    text = [*tile_declarations(instruction.function), frame, _TILE_LOOP.format(zero=zero, products=products)]
    depth = LINE_BYTES // WORD_BYTES * instruction.step
    return "\n".join(text), _SUMS * TILE_ROWS * instruction.lanes * depth


def _vectors(instruction: Instruction) -> tuple[str, int]:
    """The text of a loop over independent products of vectors, and the products of a step."""
    number, lanes = chains_within(instruction.registers), instruction.lanes
    adds = "fadd" if instruction.total == "float" else "add"
    chains, products, sums = [], [], []
    for chain in range(number):
        chains.append(f"  %c{chain} = phi {instruction.sums} [ zeroinitializer, %entry ], [ %n{chain}, %loop ]")
        products += instruction.product(f"n{chain}", f"c{chain}", "value", "value")
        before = f"%total{chain - 1}" if chain else "zeroinitializer"
        sums.append(f"  %total{chain} = {adds} {instruction.sums} {before}, %n{chain}")
    text = _VECTOR_LOOP.format(
        lanes=lanes,
        sum=instruction.total,
        declared=instruction.declaration,
        operand=instruction.operand,
        chains="\n".join(chains),
        products="\n".join(products),
        total="\n".join(sums),
        final=number - 1,
    )
    return text, number * lanes * instruction.step
