"""The inner kernels of sums in panels as LLVM's text: products of a few rows by a panel of columns, and conversions.

All functions have the prefix `kt_` and return zero.  They are inlined where they are called.  Sums are of fp32.

`kt_round(source, target, n, stride)` rounds n floats to bf16 (to the nearest, ties to even), `kt_move` copies n floats,
and `kt_copy` n values of 16 bits.  They write whole parts of 32 values, the next one `stride` bytes behind the last;
what is beyond n is zero.  `kt_put` rounds as `kt_round` does and writes n values, nothing beyond.
`kt_pair(one, other, target, n, stride)` rounds two rows of n floats and interleaves them, `kt_join` interleaves rows of
n values of 16 bits.
`kt_zero(target, bytes)` clears memory.  `kt_own(target, n, stride)` and `kt_fetch` prefetch n cache lines, `stride`
bytes apart: `kt_own` to write them, `kt_fetch` to read them.

`kt_amx_M`, `kt_dot_M` and `kt_fma_M` (a, stride, b, c, steps, runs, jump, add) compute c = a * b, or c += a * b if
`add` is not zero, for M tiles or rows of a.  The rows of a are `stride` bytes apart.  A row has `runs` runs of `steps`
steps; each run begins `jump` bytes behind the one before.  `kt_amx_M_ahead_L` and the like have one more argument, an
address from which on they prefetch L cache lines in each step.  `kt_tiles_begin` and `kt_tiles_end` are called before
and after kernels with tiles, by each thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kintune.compiler.programs.amx_text import TILES, tile_frame

__all__ = [
    "CHUNK",
    "LINE_BYTES",
    "TILE_ROWS",
    "amx_text",
    "copying_text",
    "pairing_text",
    "touched_bytes",
    "vector_text",
]

CHUNK = 32
"""The values of a row that are converted at once: a row of a tile."""

TILE_ROWS = 16
"""The rows of a tile of 1024 bytes."""

_LANES = ", ".join(f"i32 {lane}" for lane in range(CHUNK))

_ROUNDING = """
declare <32 x float> @llvm.masked.load.v32f32.p0(ptr, i32, <32 x i1>, <32 x float>)
declare <32 x i16> @llvm.masked.load.v32i16.p0(ptr, i32, <32 x i1>, <32 x i16>)
declare void @llvm.masked.store.v32i16.p0(<32 x i16>, ptr, i32, <32 x i1>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
{declaration}
define i32 @kt_round(ptr %source, ptr %target, i32 %n, i32 %stride) {{
{before}
  %wide = load <32 x float>, ptr %from, align 4
{whole}
  store <32 x {narrow}> %rounded, ptr %to, align 2
{between}
  %part = {load_floats}
{part}
  store <32 x {narrow}> %part_rounded, ptr %last_to, align 2
  br label %done
done:
  ret i32 0
}}

define i32 @kt_put(ptr %source, ptr %target, i32 %n, i32 %stride) {{
{before}
  %wide = load <32 x float>, ptr %from, align 4
{whole}
  store <32 x {narrow}> %rounded, ptr %to, align 2
{between}
  %part = {load_floats}
{part}
  %bits = bitcast <32 x {narrow}> %part_rounded to <32 x i16>
  call void @llvm.masked.store.v32i16.p0(<32 x i16> %bits, ptr %last_to, i32 2, <32 x i1> %mask)
  br label %done
done:
  ret i32 0
}}

define i32 @kt_move(ptr %source, ptr %target, i32 %n, i32 %stride) {{
{before}
  %whole = load <32 x float>, ptr %from, align 4
  store <32 x float> %whole, ptr %to, align 4
{between}
  %part = {load_floats}
  store <32 x float> %part, ptr %last_to, align 4
  br label %done
done:
  ret i32 0
}}

define i32 @kt_zero(ptr %target, i32 %bytes) {{
  %wide = zext i32 %bytes to i64
  call void @llvm.memset.p0.i64(ptr align 2 %target, i8 0, i64 %wide, i1 false)
  ret i32 0
}}

define i32 @kt_copy(ptr %source, ptr %target, i32 %n, i32 %stride) {{
{before}
  %whole = load <32 x i16>, ptr %from, align 2
  store <32 x i16> %whole, ptr %to, align 2
{between_copy}
  %part = {load_halves}
  store <32 x i16> %part, ptr %last_to, align 2
  br label %done
done:
  ret i32 0
}}
"""

_ASK = """
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

_MASKED = (
    "call <32 x {type}> @llvm.masked.load.v32{name}.p0"
    "(ptr %last_from, i32 {size}, <32 x i1> %mask, <32 x {type}> zeroinitializer)"
)

_BEFORE = """entry:
  %wide_stride = sext i32 %stride to i64
  %count = lshr i32 %n, 5
  %rest = and i32 %n, 31
  %none = icmp eq i32 %count, 0
  br i1 %none, label %tail, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %from = phi ptr [ %source, %entry ], [ %next_from, %loop ]
  %to = phi ptr [ %target, %entry ], [ %next_to, %loop ]"""

_BETWEEN = """  %next = add i32 %i, 1
  %next_from = getelementptr i8, ptr %from, i64 {bytes}
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
  %mask = icmp ult <32 x i32> <{lanes}>, %all"""

_CONVERT = "declare <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float>, <16 x float>)"


def copying_text(*, converts: bool) -> str:
    """Conversions and copies; `converts` says that the CPU has instructions to round (avx512_bf16)."""
    asking = "\ndeclare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)\n"
    asking += _ASK.format(name="kt_own", writes=1) + _ASK.format(name="kt_fetch", writes=0)
    floats, halves = ({"bytes": CHUNK * size, "lanes": _LANES} for size in (4, 2))
    return asking + _ROUNDING.format(
        declaration=_CONVERT if converts else "",
        narrow="bfloat",
        load_floats=_MASKED.format(name="f32", type="float", size=4),
        load_halves=_MASKED.format(name="i16", type="i16", size=2),
        before=_BEFORE,
        between=_BETWEEN.format(**floats),
        between_copy=_BETWEEN.format(**halves),
        whole=_rounded("wide", "rounded", converts=converts),
        part=_rounded("part", "part_rounded", converts=converts),
    )


def _rounded(source: str, target: str, *, converts: bool) -> str:
    if not converts:
        return f"  %{target} = fptrunc <32 x float> %{source} to <32 x bfloat>"
    halves = [", ".join(f"i32 {lane + first}" for lane in range(16)) for first in (0, 16)]
    lines = [
        f"  %{source}_{half} = shufflevector <32 x float> %{source}, <32 x float> poison, <16 x i32> <{lanes}>"
        for half, lanes in zip(("low", "high"), halves, strict=True)
    ]
    call = "@llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    lines.append(f"  %{target} = call <32 x bfloat> {call}(<16 x float> %{source}_high, <16 x float> %{source}_low)")
    return "\n".join(lines)


_PAIR = """
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
  %mask = icmp slt <32 x i32> <{lanes}>, %all
{loads}
  %both = shufflevector <32 x i16> %a_bits, <32 x i16> %b_bits, <64 x i32> <{order}>
  store <64 x i16> %both, ptr %to, align 2
  %next_left = sub i32 %left, {chunk}
  %next_a = getelementptr i8, ptr %from_a, i64 {bytes}
  %next_b = getelementptr i8, ptr %from_b, i64 {bytes}
  %next_to = getelementptr i8, ptr %to, i64 %wide_stride
  %more = icmp sgt i32 %next_left, 0
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def pairing_text() -> str:
    """`kt_pair` and `kt_join`, for a CPU that has instructions to round; `copying_text` must stand before them."""
    order = ", ".join(f"i32 {lane}, i32 {lane + CHUNK}" for lane in range(CHUNK))

    def loaded(type_name: str, short: str, size: int, target: str) -> str:
        load = _MASKED.format(name=short, type=type_name, size=size)
        return "\n".join(f"  %{target.format(name)} = {load.replace('%last_from', f'%from_{name}')}" for name in "ab")

    rounded = [_rounded(name, f"{name}_short", converts=True) for name in "ab"]
    bits = [f"  %{name}_bits = bitcast <32 x bfloat> %{name}_short to <32 x i16>" for name in "ab"]
    pair = "\n".join([loaded("float", "f32", 4, "{}"), *rounded, *bits])
    join = loaded("i16", "i16", 2, "{}_bits")
    return "".join(
        _PAIR.format(name=name, lanes=_LANES, order=order, chunk=CHUNK, bytes=CHUNK * size, loads=loads)
        for name, size, loads in (("kt_pair", 4, pair), ("kt_join", 2, join))
    )


_LOOP = """
define i32 @{name}(ptr %a, i32 %stride, ptr %b, ptr %c, i32 %steps, i32 %runs, i32 %jump, i32 %add{further}) {{
entry:
  %wide = sext i32 %stride to i64
  %wide_jump = sext i32 %jump to i64
{addresses}
  %fresh = icmp eq i32 %add, 0
  br i1 %fresh, label %zero, label %more
zero:
{zero}
  br label %run
more:
{more}
  br label %run
run:
  %r = phi i32 [ 0, %zero ], [ 0, %more ], [ %next_r, %between ]
  %ra = phi ptr [ %a, %zero ], [ %a, %more ], [ %next_ra, %between ]
  %rb = phi ptr [ %b, %zero ], [ %b, %more ], [ %next_b, %between ]
{kept}
  br label %loop
loop:
  %i = phi i32 [ 0, %run ], [ %next, %loop ]
  %pa = phi ptr [ %ra, %run ], [ %next_a, %loop ]
  %pb = phi ptr [ %rb, %run ], [ %next_b, %loop ]
{body}
  %next = add i32 %i, 1
  %next_a = getelementptr i8, ptr %pa, i64 {step_a}
  %next_b = getelementptr i8, ptr %pb, i64 {step_b}
  %last = icmp eq i32 %next, %steps
  br i1 %last, label %between, label %loop
between:
  %next_r = add i32 %r, 1
  %next_ra = getelementptr i8, ptr %ra, i64 %wide_jump
  %last_r = icmp eq i32 %next_r, %runs
  br i1 %last_r, label %end, label %run
end:
{end}
  ret i32 0
}}
"""

LINE_BYTES = 64
"""A line of the caches, and a vector."""

_MOVES = {"round": (4, 2), "put": (4, 2), "move": (4, 4), "copy": (2, 2), "pair": (4, 4), "join": (2, 4)}
"""The bytes of a value that a function reads, and of what it writes for it."""

_NEARNESS = 2  # the locality of a prefetch, into the second cache
_TILE_LINE = 128  # bytes of a row of two tiles
_A, _B = 4, 6  # the first tile registers of a and of b; before them are the sums


def touched_bytes(name: str, numbers: Sequence[Any], columns: int) -> tuple[Any, ...]:
    """The bytes that a function reads or writes from each of its addresses on, in their order.

    `numbers` are its other arguments; a product has so many `columns`.  Prefetches touch nothing.
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
    product = re.fullmatch(r"(amx|dot|fma)_(\d+)(_ahead_\d+)?", own)
    if product is None:
        return ()
    stride, steps, runs, jump, _ = numbers
    rows, step_a, step_b, line = _sizes(product[1], int(product[2]), columns)
    a = (rows - 1) * stride + (runs - 1) * jump + steps * step_a
    return a, steps * runs * step_b, rows * line, *((0,) if product[3] else ())


def _sizes(kind: str, number: int, columns: int) -> tuple[int, int, int, int]:
    """The rows of a product; the bytes of a step in a row and in a panel; and those of the sums of a row."""
    if kind == "amx":
        return number * TILE_ROWS, 2 * CHUNK, TILE_ROWS * _TILE_LINE, _TILE_LINE
    return number, 4, columns * 4, columns * 4


def amx_text(lines: int = 0) -> str:
    """Kernels of one and two tiles of rows by two of columns.

    A step is of 32 values.  `b` has rows of two tiles; `c` has rows of 32 sums.  With `lines`, there are also kernels
    whose steps each prefetch so many cache lines into the second cache, from the address in the last argument.
    `copying_text` must stand before them.
    """
    frame = tile_frame("kt_tiles", "tdpbf16ps", [(64, TILE_ROWS)] * TILES)
    return "\n" + frame + "".join(_amx(1, each) + _amx(2, each) for each in sorted({0, lines}))


def _amx(tiles: int, lines: int) -> str:
    grid = [(row, column) for row in range(tiles) for column in range(2)]
    _, step_a, step_b, line = _sizes("amx", tiles, 2 * LINE_BYTES // 4)
    addresses = [f"  %below = mul i64 %wide, {TILE_ROWS}"] if tiles > 1 else []
    addresses += [
        f"  %c{row}{column} = getelementptr i8, ptr %c, i64 {row * TILE_ROWS * line + column * 64}"
        for row, column in grid
    ]
    zero = [f"  call void @llvm.x86.tilezero(i8 {2 * row + column})" for row, column in grid]
    more = [
        f"  call void @llvm.x86.tileloadd64(i8 {2 * row + column}, ptr %c{row}{column}, i64 {line})"
        for row, column in grid
    ]
    kept = [_ASKED_RUN] if lines else []
    body = [_ASKED_STEP] if lines else []
    body.append("  %pb1 = getelementptr i8, ptr %pb, i64 64")
    loads_b = [
        f"  call void @llvm.x86.tileloadd64(i8 {_B + column}, ptr %pb{column or ''}, i64 {line})" for column in (0, 1)
    ]
    for row in range(tiles):
        if row:
            body.append("  %pa1 = getelementptr i8, ptr %pa, i64 %below")
        body.append(f"  call void @llvm.x86.tileloadd64(i8 {_A + row}, ptr %pa{row or ''}, i64 %wide)")
        for column in (0, 1):
            if not row:
                body.append(loads_b[column])
            body.append(f"  call void @llvm.x86.tdpbf16ps(i8 {2 * row + column}, i8 {_A + row}, i8 {_B + column})")
    body += _asking(lines)
    end = [
        f"  call void @llvm.x86.tilestored64(i8 {2 * row + column}, ptr %c{row}{column}, i64 {line})"
        for row, column in grid
    ]
    parts = (addresses, zero, more, kept, body, end)
    return _function(f"kt_amx_{tiles}", parts, step_a, step_b, lines)


_ASKED_RUN = "  %rf = phi ptr [ %ahead, %zero ], [ %ahead, %more ], [ %next_f, %between ]"
_ASKED_STEP = "  %pf = phi ptr [ %rf, %run ], [ %next_f, %loop ]"


def _asking(lines: int) -> list[str]:
    """The prefetches of a step."""
    if not lines:
        return []
    text = []
    for number in range(lines):
        text.append(f"  %f{number} = getelementptr i8, ptr %pf, i64 {number * LINE_BYTES}")
        text.append(f"  call void @llvm.prefetch.p0(ptr %f{number}, i32 0, i32 {_NEARNESS}, i32 1)")
    return [*text, f"  %next_f = getelementptr i8, ptr %pf, i64 {lines * LINE_BYTES}"]


def _function(name: str, parts: Sequence[Sequence[str]], step_a: int, step_b: int, lines: int) -> str:
    addresses, zero, more, kept, body, end = ("\n".join(part) for part in parts)
    return _LOOP.format(
        name=f"{name}_ahead_{lines}" if lines else name,
        addresses=addresses,
        zero=zero,
        more=more,
        kept=kept,
        body=body,
        end=end,
        step_a=step_a,
        step_b=step_b,
        further=", ptr %ahead" if lines else "",
    )


_FLOATS = "<16 x float>"
_PRODUCT = {
    "dot": (
        "declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)",
        "@llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> {sum}, <32 x bfloat> {a}, <32 x bfloat> {b})",
        "<32 x bfloat>",
    ),
    "fma": (
        "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
        "@llvm.fma.v16f32(<16 x float> {a}, <16 x float> {b}, <16 x float> {sum})",
        "<16 x float>",
    ),
}


def vector_text(kind: str, rows: int, vectors: int, lines: int = 0) -> str:
    """The kernel `kt_KIND_ROWS` of some rows by vectors of 16 columns; `kind` is "dot" (bf16) or "fma" (fp32).

    A step is of two values of bf16 or one of fp32.  `b` has all columns of a step side by side, for bf16 in pairs; `c`
    has rows of all columns.  `lines` are as for `amx_text`.
    """
    declaration = _PRODUCT[kind][0]
    return f"\n{declaration}\n" + "".join(_vectors(kind, rows, vectors, each) for each in sorted({0, lines}))


def _vectors(kind: str, rows: int, vectors: int, lines: int) -> str:
    _, product, operand = _PRODUCT[kind]
    grid = [(row, vector) for row in range(rows) for vector in range(vectors)]
    addresses = [f"  %o{row} = mul i64 %wide, {row}" for row in range(1, rows)]
    addresses += [
        f"  %c{row}_{vector} = getelementptr i8, ptr %c, i64 {(row * vectors + vector) * LINE_BYTES}"
        for row, vector in grid
    ]
    more = [f"  %m{row}_{vector} = load {_FLOATS}, ptr %c{row}_{vector}, align 4" for row, vector in grid]
    kept = [
        f"  %k{row}_{vector} = phi {_FLOATS} [ zeroinitializer, %zero ], "
        f"[ %m{row}_{vector}, %more ], [ %t{row}_{vector}, %between ]"
        for row, vector in grid
    ]
    kept += [_ASKED_RUN] if lines else []
    body = [_ASKED_STEP] if lines else []
    body += [
        f"  %s{row}_{vector} = phi {_FLOATS} [ %k{row}_{vector}, %run ], [ %t{row}_{vector}, %loop ]"
        for row, vector in grid
    ]
    for vector in range(vectors):
        body.append(f"  %q{vector} = getelementptr i8, ptr %pb, i64 {vector * LINE_BYTES}")
        body.append(f"  %b{vector} = load {operand}, ptr %q{vector}, align 4")
    for row in range(rows):
        place = "%pa"
        if row:
            place = f"%p{row}"
            body.append(f"  {place} = getelementptr i8, ptr %pa, i64 %o{row}")
        body += [
            f"  %w{row} = load i32, ptr {place}, align 4",
            f"  %v{row} = insertelement <16 x i32> poison, i32 %w{row}, i32 0",
            f"  %u{row} = shufflevector <16 x i32> %v{row}, <16 x i32> poison, <16 x i32> zeroinitializer",
            f"  %a{row} = bitcast <16 x i32> %u{row} to {operand}",
        ]
        for vector in range(vectors):
            call = product.format(sum=f"%s{row}_{vector}", a=f"%a{row}", b=f"%b{vector}")
            body.append(f"  %t{row}_{vector} = call {_FLOATS} {call}")
    body += _asking(lines)
    end = [f"  store {_FLOATS} %t{row}_{vector}, ptr %c{row}_{vector}, align 4" for row, vector in grid]
    parts: tuple[list[str], ...] = (addresses, [], more, kept, body, end)
    _, step_a, step_b, _ = _sizes(kind, rows, vectors * LINE_BYTES // 4)
    return _function(f"kt_{kind}_{rows}", parts, step_a, step_b, lines)
