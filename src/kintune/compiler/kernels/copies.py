"""Functions that copy, round and clear rows for a micro-kernel, as text of LLVM.

All have the prefix `kt_` and return zero.  They are inlined where they are called.

`kt_round(source, target, n, stride)` rounds n floats to bf16 (to the nearest, ties to even), and `kt_copy` copies n
values of 16 bits.  They write whole parts of 32 values, the next one `stride` bytes behind the last; what is beyond n
is zero.  `kt_put` rounds as `kt_round` does and writes n values, nothing beyond.
`kt_pair(one, other, target, n, stride)` rounds two rows of n floats and interleaves them, `kt_join` interleaves rows of
n values of 16 bits.
`kt_zero(target, bytes)` clears memory.  `kt_own(target, n, stride)` and `kt_fetch` prefetch n cache lines, `stride`
bytes apart: `kt_own` to write them, `kt_fetch` to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kintune.compiler.kernels.instructions import ROUND
from kintune.compiler.kernels.microkernel import PREFETCH, Text

__all__ = ["CHUNK", "copying_text", "pairing_text", "touched_bytes"]

CHUNK = 32
"""The values of a row that are converted at once: a row of a tile."""

_LANES = ", ".join(f"i32 {lane}" for lane in range(CHUNK))

_SIZES = {"float": 4, "i16": 2}

_DECLARED = (
    PREFETCH,
    "declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, i32, <32 x i1>, <32 x float>)",
    "declare <32 x i16> @llvm.masked.load.v32i16.p0(ptr, i32, <32 x i1>, <32 x i16>)",
    "declare void @llvm.masked.store.v32i16.p0(<32 x i16>, ptr, i32, <32 x i1>)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)",
)


def copying_text(*, converts: bool) -> Text:
    """Conversions and copies; `converts` says that the CPU has an instruction to round (`ROUND`)."""
    wide = "  %wide = load <32 x float>, ptr %from, align 4"
    rounding = [wide, *_rounded("wide", "rounded", converts), "  store <32 x bfloat> %rounded, ptr %to, align 2"]
    part = _rounded("part", "part_rounded", converts)
    put = [
        "  %bits = bitcast <32 x bfloat> %part_rounded to <32 x i16>",
        "  call void @llvm.masked.store.v32i16.p0(<32 x i16> %bits, ptr %last_to, i32 2, <32 x i1> %mask)",
    ]
    copied = ["  %whole = load <32 x i16>, ptr %from, align 2", "  store <32 x i16> %whole, ptr %to, align 2"]
    functions = [
        _asking("kt_own", writes=1),
        _asking("kt_fetch", writes=0),
        _moving("kt_round", "float", rounding, [*part, "  store <32 x bfloat> %part_rounded, ptr %last_to, align 2"]),
        _moving("kt_put", "float", rounding, [*part, *put]),
        _ZERO,
        _moving("kt_copy", "i16", copied, ["  store <32 x i16> %part, ptr %last_to, align 2"]),
    ]
    return Text("kt_copies", (*_DECLARED, *([ROUND.declaration] if converts else [])), "".join(functions))


def _asking(name: str, writes: int) -> str:
    """A function that prefetches lines, to write them or to read them."""
    return f"""
define i32 @{name}(ptr %target, i32 %n, i32 %stride) {{
entry:
  %wide_stride = sext i32 %stride to i64
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %to = phi ptr [ %target, %entry ], [ %next_to, %loop ]
  call void @llvm.prefetch.p0(ptr %to, i32 {writes}, i32 3, i32 1)
  %next = add i32 %i, 1
  %next_to = getelementptr i8, ptr %to, i64 %wide_stride
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def _moving(name: str, kind: str, whole: Sequence[str], rest: Sequence[str]) -> str:
    """A function that goes through values of a kind: the lines for a whole part, and for the `rest`, `%part`."""
    return f"""
define i32 @{name}(ptr %source, ptr %target, i32 %n, i32 %stride) {{
entry:
  %wide_stride = sext i32 %stride to i64
  %count = lshr i32 %n, 5
  %rest = and i32 %n, 31
  %none = icmp eq i32 %count, 0
  br i1 %none, label %tail, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %from = phi ptr [ %source, %entry ], [ %next_from, %loop ]
  %to = phi ptr [ %target, %entry ], [ %next_to, %loop ]
{_joined(whole)}
  %next = add i32 %i, 1
  %next_from = getelementptr i8, ptr %from, i64 {CHUNK * _SIZES[kind]}
  %next_to = getelementptr i8, ptr %to, i64 %wide_stride
  %more = icmp ult i32 %next, %count
  br i1 %more, label %loop, label %tail
tail:
  %last_from = phi ptr [ %source, %entry ], [ %next_from, %loop ]
  %last_to = phi ptr [ %target, %entry ], [ %next_to, %loop ]
  %whole_only = icmp eq i32 %rest, 0
  br i1 %whole_only, label %done, label %partial
partial:
  %one = insertelement <32 x i32> poison, i32 %rest, i32 0
  %all = shufflevector <32 x i32> %one, <32 x i32> poison, <32 x i32> zeroinitializer
  %mask = icmp ult <32 x i32> <{_LANES}>, %all
  %part = {_masked(kind, "last_from")}
{_joined(rest)}
  br label %done
done:
  ret i32 0
}}
"""


_ZERO = """
define i32 @kt_zero(ptr %target, i32 %bytes) {
  %wide = zext i32 %bytes to i64
  call void @llvm.memset.p0.i64(ptr align 2 %target, i8 0, i64 %wide, i1 false)
  ret i32 0
}
"""


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _masked(kind: str, place: str) -> str:
    """The load of the values at a place that `%mask` selects; the others are zero."""
    vector = f"<32 x {kind}>"
    name = f"@llvm.masked.load.v32{'f32' if kind == 'float' else kind}.p0"
    return f"call {vector} {name}(ptr %{place}, i32 {_SIZES[kind]}, <32 x i1> %mask, {vector} zeroinitializer)"


def _rounded(source: str, target: str, converts: bool) -> list[str]:
    """The lines that round 32 floats."""
    if not converts:
        return [f"  %{target} = fptrunc <32 x float> %{source} to <32 x bfloat>"]
    halves = [", ".join(f"i32 {lane + first}" for lane in range(16)) for first in (0, 16)]
    lines = [
        f"  %{source}_{half} = shufflevector <32 x float> %{source}, <32 x float> poison, <16 x i32> <{lanes}>"
        for half, lanes in zip(("low", "high"), halves, strict=True)
    ]
    given = ", ".join(f"{kind} %{source}_{half}" for kind, half in zip(ROUND.operands, ("high", "low"), strict=True))
    return [*lines, f"  %{target} = call {ROUND.result} @{ROUND.function}({given})"]


def _pairing(name: str, kind: str, loads: Sequence[str]) -> str:
    """A function that interleaves two rows of values of a kind, of which `loads` give 16 bits each."""
    order = ", ".join(f"i32 {lane}, i32 {lane + CHUNK}" for lane in range(CHUNK))
    return f"""
define i32 @{name}(ptr %one, ptr %other, ptr %target, i32 %n, i32 %stride) {{
entry:
  %wide_stride = sext i32 %stride to i64
  br label %loop
loop:
  %left = phi i32 [ %n, %entry ], [ %next_left, %loop ]
  %from_a = phi ptr [ %one, %entry ], [ %next_a, %loop ]
  %from_b = phi ptr [ %other, %entry ], [ %next_b, %loop ]
  %to = phi ptr [ %target, %entry ], [ %next_to, %loop ]
  %single = insertelement <32 x i32> poison, i32 %left, i32 0
  %all = shufflevector <32 x i32> %single, <32 x i32> poison, <32 x i32> zeroinitializer
  %mask = icmp slt <32 x i32> <{_LANES}>, %all
{_joined(loads)}
  %both = shufflevector <32 x i16> %a_bits, <32 x i16> %b_bits, <64 x i32> <{order}>
  store <64 x i16> %both, ptr %to, align 2
  %next_left = sub i32 %left, {CHUNK}
  %next_a = getelementptr i8, ptr %from_a, i64 {CHUNK * _SIZES[kind]}
  %next_b = getelementptr i8, ptr %from_b, i64 {CHUNK * _SIZES[kind]}
  %next_to = getelementptr i8, ptr %to, i64 %wide_stride
  %more = icmp sgt i32 %next_left, 0
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def pairing_text() -> Text:
    """`kt_pair` and `kt_join`, for a CPU that has instructions to round."""
    pair = [f"  %{name} = {_masked('float', f'from_{name}')}" for name in "ab"]
    pair += [line for name in "ab" for line in _rounded(name, f"{name}_short", converts=True)]
    pair += [f"  %{name}_bits = bitcast <32 x bfloat> %{name}_short to <32 x i16>" for name in "ab"]
    join = [f"  %{name}_bits = {_masked('i16', f'from_{name}')}" for name in "ab"]
    both = _pairing("kt_pair", "float", pair) + _pairing("kt_join", "i16", join)
    return Text("kt_pairs", (*_DECLARED, ROUND.declaration), both)


_MOVES = {"round": (4, 2), "put": (4, 2), "copy": (2, 2), "pair": (4, 4), "join": (2, 4)}
"""The bytes of a value that a function reads, and of what it writes for it."""


def touched_bytes(name: str, numbers: Sequence[Any]) -> tuple[Any, ...]:
    """The bytes that a function reads or writes from each of its addresses on, in their order.

    `numbers` are its other arguments.  Prefetches touch nothing.
    """
    own = name.removeprefix("kt_")
    if own in ("own", "fetch"):
        return (0,)
    if own == "zero":
        return (numbers[0],)
    if own in _MOVES:
        n, stride = numbers
        size_read, size = _MOVES[own]
        whole, rest = divmod(n, CHUNK)
        last = rest if own == "put" and rest else CHUNK
        written = (whole - (rest == 0)) * stride + last * size
        return (n * size_read,) * (2 if own in ("pair", "join") else 1) + (written,)
    return ()
