"""Measures how fast a CPU multiplies and adds shorter numbers in registers: bf16, and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.compiler.programs.amx_text import TILES, tile_frame
from kintune.compiler.programs.byte_kernel import INSTRUCTIONS, STEP, ByteInstruction
from kintune.compiler.programs.inner_calls import IMPORT
from kintune.compiler.programs.panel_sum import BF16
from kintune.core.quantisation import INT8
from kintune.hardware.amx import permit_amx
from kintune.measure.backend import MeasurementBackend
from kintune.measure.chains import chains_within
from kintune.measure.evaluator import evaluator
from kintune.runtime.target import extensions_of

__all__ = ["measure_narrow_peaks"]

_STEPS = 1 << 13
_REPEATS = 100
_REGISTERS = 32  # of CPUs with products of bf16 in vectors
_FUNCTION = "kt_peak"
_TILES = "amxtile"

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
declare <{lanes} x {sum}> @{product}(<{lanes} x {sum}>, {operand}, {operand})
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


class _Kind(NamedTuple):
    """Instructions for a precision: the extensions that they need, a loop over them as text, its FLOPs a step."""

    precision: str
    needed: frozenset[str]
    text: str
    flops: float


def measure_narrow_peaks(target: str, threads: int, backend: MeasurementBackend | None = None) -> dict[str, float]:
    """GFLOP/s by precision ("bf16", "int8") of `threads` threads, by the fastest instructions that the target has.

    `target` is canonical (JSON).  A product and its addition count as two.  A precision without instructions of its own
    is left out.  The programs run on `backend`, by default in this process.  With a `backend`, AMX is left out: a
    process has to request it from the system, which only this process does.
    """
    compiler_target = tvm.target.Target(json.loads(target))
    if compiler_target.kind.name != "llvm":
        return {}
    has = frozenset(extensions_of(compiler_target))
    found: dict[str, float] = {}
    for kind in _kinds():
        if not has.issuperset(kind.needed) or (_TILES in kind.needed and not (backend is None and permit_amx())):
            continue
        gflops = threads * _STEPS * kind.flops / _least_s(kind, compiler_target, threads, backend) / 1e9
        found[kind.precision] = max(gflops, found.get(kind.precision, 0.0))
    return found


def _kinds() -> tuple[_Kind, ...]:
    tile, chains = 4 * 16 * 16 * 2, chains_within(_REGISTERS)
    dot = _vectors("float", "llvm.x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>", 16, chains)
    return (
        _Kind(BF16, frozenset({_TILES, "amxbf16"}), _tiles("tdpbf16ps"), tile * 32),
        _Kind(BF16, frozenset({"avx512bf16"}), dot, chains * 16 * 2 * 2),
        _Kind(INT8, frozenset({_TILES, "amxint8"}), _tiles("tdpbusd"), tile * 64),
        *map(_of_bytes, INSTRUCTIONS),
    )


def _of_bytes(instruction: ByteInstruction) -> _Kind:
    lanes, chains = instruction.lanes, chains_within(instruction.registers)
    text = _vectors("i32", instruction.function, instruction.operand, lanes, chains)
    return _Kind(INT8, frozenset({instruction.feature}), text, chains * lanes * 2 * STEP)


def _least_s(kind: _Kind, target: tvm.target.Target, threads: int, backend: MeasurementBackend | None) -> float:
    run: Callable[[], tuple[float, ...]] = evaluator(
        _repeated(threads, kind.text), target, [(threads,)], _REPEATS, backend
    )
    return min(run())


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


def _tiles(product: str) -> str:
    """Four sums of tiles, which hide the latency of one."""
    shapes = [(64, 16)] * TILES
    zero = "\n".join(f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(TILES))
    products = "\n".join(
        f"  call void @llvm.x86.{product}(i8 {number}, i8 {4 + number // 2}, i8 {6 + number % 2})"
        for number in range(4)
    )
    return tile_frame("kt_tiles", product, shapes) + _TILE_LOOP.format(zero=zero, products=products)


def _vectors(total: str, product: str, operand: str, lanes: int, number: int) -> str:
    """A number of chains of vectors with so many lanes."""
    adds = "fadd" if total == "float" else "add"
    chains, products, sums = [], [], []
    for chain in range(number):
        chains.append(f"  %c{chain} = phi <{lanes} x {total}> [ zeroinitializer, %entry ], [ %n{chain}, %loop ]")
        operands = f"<{lanes} x {total}> %c{chain}, {operand} %value, {operand} %value"
        products.append(f"  %n{chain} = call <{lanes} x {total}> @{product}({operands})")
        before = f"%total{chain - 1}" if chain else "zeroinitializer"
        sums.append(f"  %total{chain} = {adds} <{lanes} x {total}> {before}, %n{chain}")
    return _VECTOR_LOOP.format(
        lanes=lanes,
        sum=total,
        product=product,
        operand=operand,
        chains="\n".join(chains),
        products="\n".join(products),
        total="\n".join(sums),
        final=number - 1,
    )
