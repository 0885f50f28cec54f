"""The innermost loops of a product with blockwise quantised weights, as text of LLVM.

Weights are unpacked in vector registers, a weight of a column in each lane.  Those of 4 bits lie eight to a lane of 32
bits.  With AVX-512 they are looked up in a table of 16 floats by a permutation, which reads only the low four bits of a
lane.  Otherwise they are masked and converted.

The products of a block are added up first.  Their sum times the scale of the block is added to the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kintune.core.candidate import digest_of
from kintune.models.blockwise import PACKED, REAL

__all__ = ["FLOATS", "Kernel", "product_text", "unpacking_text"]

FLOATS = 32
"""The bits of weights that are unpacked already."""

_NAME = "KERNEL"
_PERMUTE = "llvm.x86.avx512.permvar.sf.512"
_UNROLL = {4: 4, 8: 8, FLOATS: 4}
"""Loads of each vector that are written out."""

_AHEAD = 8192
"""The distance in bytes at which weights are prefetched into the second cache.  The hardware does not prefetch so far
ahead, and not beyond the end of a page."""


class Kernel(NamedTuple):
    """`rows` of the data by `vectors` of `lanes` columns; `blocks` blocks of `block` weights of `bits` bits.

    `zeros` is as in `Blockwise`; a byte has those of two blocks if they have 4 bits.  With `permutes` there are 16
    lanes, and the CPU has AVX-512.
    """

    bits: int
    lanes: int
    vectors: int
    rows: int
    block: int
    blocks: int
    zeros: str = ""
    permutes: bool = False

    @property
    def middle(self) -> int:
        """What is taken off integers and zero points, so that the sums stay small."""
        return 1 << (self.bits - 1)

    @property
    def values(self) -> int:
        """The weights of a column that one load of a vector brings."""
        return 8 if self.bits == 4 else 1

    @property
    def load_bytes(self) -> int:
        """The bytes of such a load."""
        return self.lanes * self.values * self.bits // 8

    @property
    def loads(self) -> int:
        """The loads of a vector for a block."""
        return self.block // self.values

    @property
    def unroll(self) -> int:
        """The loads of a vector in a turn of the loop, a divisor of `loads`; a block has at least 16 weights."""
        return min(_UNROLL[self.bits], self.loads)

    @property
    def panel_bytes(self) -> tuple[int, int, int]:
        """The bytes that are read of a panel of weights, of its scales, and of its zero points."""
        columns = self.vectors * self.lanes
        scales = 0 if self.bits == FLOATS else self.blocks * columns * 4
        zeros = {"": 0, REAL: scales, PACKED: -(-self.blocks * self.bits // 8) * columns}[self.zeros]
        return self.blocks * self.loads * self.vectors * self.load_bytes, scales, zeros

    @property
    def row_bytes(self) -> int:
        """The bytes that are read of a row of the data."""
        return self.blocks * self.block * 4

    @property
    def sums_bytes(self) -> int:
        """The bytes of the sums."""
        return self.rows * self.vectors * self.lanes * 4

    @property
    def floats_bytes(self) -> int:
        """The bytes of an unpacked panel."""
        return self.blocks * self.block * self.vectors * self.lanes * 4

    @property
    def vector(self) -> str:
        """The type of a vector of floats."""
        return f"<{self.lanes} x float>"

    @property
    def words(self) -> str:
        """The type of a vector of int32."""
        return f"<{self.lanes} x i32>"


def product_text(kernel: Kernel) -> tuple[str, str, str]:
    """The name of the function that multiplies, its declarations, and its text.

    It takes the addresses of the rows of the data (`row_bytes` are read of each); of a panel of weights, its scales and
    its zero points (`panel_bytes`); and of the sums `[rows, vectors * lanes]` (`sums_bytes`).  It returns 0.  Weights
    that are floats have no scales: the addresses are not read.
    """
    return _named(kernel, _product(kernel))


def unpacking_text(kernel: Kernel) -> tuple[str, str, str]:
    """The name of the function that unpacks a panel, its declarations, and its text.

    It takes the addresses of a panel of weights, its scales and its zero points (`panel_bytes`); and that of the floats
    `[blocks * block, vectors * lanes]` (`floats_bytes`).  It returns 0.
    """
    return _named(kernel, _unpacking(kernel))


def _named(k: Kernel, lines: Iterator[str]) -> tuple[str, str, str]:
    text = "\n".join(lines)
    name = f"kintune_blockwise_{digest_of(text.encode())[:16]}"
    declared = ["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] if k.bits != FLOATS else []
    if k.permutes and k.bits == 4:
        declared.append(f"declare <16 x float> @{_PERMUTE}(<16 x float>, <16 x i32>)")
    return name, "\n".join(declared), text.replace(_NAME, name)


def _product(k: Kernel) -> Iterator[str]:
    sums = [(row, vector) for row in range(k.rows) for vector in range(k.vectors)]
    rows = ", ".join(f"ptr %r{row}" for row in range(k.rows))
    yield f"define i32 @{_NAME}({rows}, ptr %w, ptr %s, ptr %z, ptr %c) {{"
    yield "entry:"
    yield "  br label %block"
    yield "block:"
    yield "  %b = phi i64 [0, %entry], [%b1, %ended]"
    for r, v in sums:
        yield f"  %t{r}_{v} = phi {k.vector} [zeroinitializer, %entry], [%n{r}_{v}, %ended]"
    yield from _places(k)
    yield f"  %xb = mul i64 %b, {k.block * 4}"
    yield "  br label %step"
    yield "step:"
    yield "  %k = phi i64 [0, %block], [%k1, %step]"
    last = k.unroll * k.values
    for r, v in sums:
        yield f"  %a{r}_{v}_0 = phi {k.vector} [zeroinitializer, %block], [%a{r}_{v}_{last}, %step]"
    for r in range(k.rows) if k.zeros else ():
        yield f"  %q{r}_0 = phi {k.vector} [zeroinitializer, %block], [%q{r}_{last}, %step]"
    yield from _step_places(k)
    yield f"  %xk = mul i64 %k, {k.values * 4}"
    yield "  %xo = add i64 %xb, %xk"
    for u in range(k.unroll):
        yield from _loads(k, u)
        for j in range(k.values):
            at = u * k.values + j
            for r in range(k.rows):
                yield from _broadcast(k, r, at)
            for v in range(k.vectors):
                yield from _value(k, u, v, j)
                for r in range(k.rows):
                    yield from _multiply_add(k, f"a{r}_{v}_{at + 1}", f"f{at}_{v}", f"x{r}_{at}", f"a{r}_{v}_{at}")
            for r in range(k.rows) if k.zeros else ():
                yield f"  %q{r}_{at + 1} = fadd {k.vector} %q{r}_{at}, %x{r}_{at}"
    yield f"  %k1 = add i64 %k, {k.unroll}"
    yield f"  %more = icmp ult i64 %k1, {k.loads}"
    yield "  br i1 %more, label %step, label %ended"
    yield "ended:"
    for v in range(k.vectors) if k.bits != FLOATS else ():
        yield from _scales(k, v)
    for r, v in sums:
        if k.bits == FLOATS:
            yield f"  %n{r}_{v} = fadd {k.vector} %t{r}_{v}, %a{r}_{v}_{last}"
            continue
        found = f"a{r}_{v}_{last}"
        if k.zeros:
            yield f"  %zq{r}_{v} = fmul contract {k.vector} %zf{v}, %q{r}_{last}"
            yield f"  %d{r}_{v} = fsub contract {k.vector} %{found}, %zq{r}_{v}"
            found = f"d{r}_{v}"
        yield from _multiply_add(k, f"n{r}_{v}", found, f"sv{v}", f"t{r}_{v}")
    yield from _next_block(k)
    for r, v in sums:
        yield f"  %c{r}_{v} = getelementptr i8, ptr %c, i64 {(r * k.vectors + v) * k.lanes * 4}"
        yield f"  store {k.vector} %n{r}_{v}, ptr %c{r}_{v}, align 4"
    yield "  ret i32 0"
    yield "}"


def _unpacking(k: Kernel) -> Iterator[str]:
    width = k.vectors * k.lanes * 4
    yield f"define i32 @{_NAME}(ptr %w, ptr %s, ptr %z, ptr %c) {{"
    yield "entry:"
    yield "  br label %block"
    yield "block:"
    yield "  %b = phi i64 [0, %entry], [%b1, %ended]"
    yield from _places(k)
    for v in range(k.vectors):
        yield from _scales(k, v)
    yield f"  %cb = mul i64 %b, {k.block * width}"
    yield "  br label %step"
    yield "step:"
    yield "  %k = phi i64 [0, %block], [%k1, %step]"
    yield from _step_places(k)
    yield f"  %ck = mul i64 %k, {k.values * width}"
    yield "  %co = add i64 %cb, %ck"
    for u in range(k.unroll):
        yield from _loads(k, u)
        for j in range(k.values):
            at = u * k.values + j
            for v in range(k.vectors):
                yield from _value(k, u, v, j)
                found = f"f{at}_{v}"
                if k.zeros:
                    yield f"  %d{at}_{v} = fsub {k.vector} %{found}, %zf{v}"
                    found = f"d{at}_{v}"
                yield f"  %e{at}_{v} = fmul {k.vector} %{found}, %sv{v}"
                yield f"  %co{at}_{v} = add i64 %co, {at * width + v * k.lanes * 4}"
                yield f"  %cp{at}_{v} = getelementptr i8, ptr %c, i64 %co{at}_{v}"
                yield f"  store {k.vector} %e{at}_{v}, ptr %cp{at}_{v}, align 4"
    yield f"  %k1 = add i64 %k, {k.unroll}"
    yield f"  %more = icmp ult i64 %k1, {k.loads}"
    yield "  br i1 %more, label %step, label %ended"
    yield "ended:"
    yield from _next_block(k)
    yield "  ret i32 0"
    yield "}"


def _next_block(k: Kernel) -> Iterator[str]:
    yield "  %b1 = add i64 %b, 1"
    yield f"  %again = icmp ult i64 %b1, {k.blocks}"
    yield "  br i1 %again, label %block, label %done"
    yield "done:"


def _places(k: Kernel) -> Iterator[str]:
    """The bytes from the first weight and scale of a panel to those of a block."""
    yield f"  %wb = mul i64 %b, {k.loads * k.vectors * k.load_bytes}"
    yield f"  %sb = mul i64 %b, {k.vectors * k.lanes}"
    if k.zeros == PACKED and k.bits == 8:
        yield f"  %zb = mul i64 %b, {k.vectors * k.lanes}"
    elif k.zeros == PACKED:  # two in a byte
        yield "  %zr = lshr i64 %b, 1"
        yield f"  %zb = mul i64 %zr, {k.vectors * k.lanes}"
        yield "  %zt = trunc i64 %b to i32"
        yield "  %zu = and i32 %zt, 1"
        yield "  %zx = shl i32 %zu, 2"
        yield f"  %zy = insertelement {k.words} poison, i32 %zx, i32 0"
        yield f"  %zs = shufflevector {k.words} %zy, {k.words} poison, {k.words} zeroinitializer"


def _step_places(k: Kernel) -> Iterator[str]:
    yield f"  %wk = mul i64 %k, {k.vectors * k.load_bytes}"
    yield "  %wo = add i64 %wb, %wk"
    yield "  %wp = getelementptr i8, ptr %w, i64 %wo"


def _loads(k: Kernel, u: int) -> Iterator[str]:
    """The weights of all vectors, `u` loads behind the first of a step."""
    kind = {4: k.words, 8: f"<{k.lanes} x i8>", FLOATS: k.vector}[k.bits]
    name = "f" if k.bits == FLOATS else "w"
    for v in range(k.vectors):
        yield f"  %wa{u}_{v} = getelementptr i8, ptr %wp, i64 {(u * k.vectors + v) * k.load_bytes}"
        yield f"  %{name}{u}_{v} = load {kind}, ptr %wa{u}_{v}, align 1"
        if k.bits != FLOATS:
            yield f"  %pf{u}_{v} = getelementptr i8, ptr %wa{u}_{v}, i64 {_AHEAD}"
            yield f"  call void @llvm.prefetch.p0(ptr %pf{u}_{v}, i32 0, i32 2, i32 1)"


def _value(k: Kernel, u: int, v: int, j: int) -> Iterator[str]:
    """Weight number `j` of each lane of a load as a float, `f{u * values + j}_{v}`, less the number in the middle."""
    at, word = f"{u * k.values + j}_{v}", f"%w{u}_{v}"
    if k.bits == FLOATS:
        return
    if k.bits == 8:
        yield f"  %m{at} = zext <{k.lanes} x i8> {word} to {k.words}"
        yield f"  %i{at} = sub {k.words} %m{at}, {_all(k, 'i32', k.middle)}"
        yield f"  %f{at} = sitofp {k.words} %i{at} to {k.vector}"
        return
    if j:
        yield f"  %h{at} = lshr {k.words} {word}, {_all(k, 'i32', 4 * j)}"
        word = f"%h{at}"
    if k.permutes:
        table = ", ".join(f"float {number - 8}.0" for number in range(16))
        yield f"  %f{at} = call <16 x float> @{_PERMUTE}(<16 x float> <{table}>, <16 x i32> {word})"
        return
    yield f"  %m{at} = and {k.words} {word}, {_all(k, 'i32', 15)}"
    yield f"  %i{at} = sub {k.words} %m{at}, {_all(k, 'i32', k.middle)}"
    yield f"  %f{at} = sitofp {k.words} %i{at} to {k.vector}"


def _scales(k: Kernel, v: int) -> Iterator[str]:
    """The scales `sv` and the zero points `zf` of a vector of columns, for a block."""
    yield f"  %so{v} = add i64 %sb, {v * k.lanes}"
    yield f"  %sp{v} = getelementptr float, ptr %s, i64 %so{v}"
    yield f"  %sv{v} = load {k.vector}, ptr %sp{v}, align 4"
    if k.zeros == REAL:
        yield f"  %zp{v} = getelementptr float, ptr %z, i64 %so{v}"
        yield f"  %zi{v} = load {k.vector}, ptr %zp{v}, align 4"
        yield f"  %zf{v} = fsub {k.vector} %zi{v}, {_all(k, 'float', f'{k.middle}.0')}"
    elif k.zeros == PACKED:
        yield f"  %zo{v} = add i64 %zb, {v * k.lanes}"
        yield f"  %zp{v} = getelementptr i8, ptr %z, i64 %zo{v}"
        yield f"  %zi{v} = load <{k.lanes} x i8>, ptr %zp{v}, align 1"
        yield f"  %zw{v} = zext <{k.lanes} x i8> %zi{v} to {k.words}"
        found = f"%zw{v}"
        if k.bits == 4:
            yield f"  %zh{v} = lshr {k.words} %zw{v}, %zs"
            yield f"  %zm{v} = and {k.words} %zh{v}, {_all(k, 'i32', 15)}"
            found = f"%zm{v}"
        yield f"  %zc{v} = sub {k.words} {found}, {_all(k, 'i32', k.middle)}"
        yield f"  %zf{v} = sitofp {k.words} %zc{v} to {k.vector}"


def _broadcast(k: Kernel, r: int, at: int) -> Iterator[str]:
    """A value of a row of the data in all lanes."""
    yield f"  %xa{r}_{at} = add i64 %xo, {at * 4}"
    yield f"  %xp{r}_{at} = getelementptr i8, ptr %r{r}, i64 %xa{r}_{at}"
    yield f"  %xv{r}_{at} = load float, ptr %xp{r}_{at}, align 4"
    yield f"  %xi{r}_{at} = insertelement {k.vector} poison, float %xv{r}_{at}, i32 0"
    yield f"  %x{r}_{at} = shufflevector {k.vector} %xi{r}_{at}, {k.vector} poison, {k.words} zeroinitializer"


def _multiply_add(k: Kernel, name: str, a: str, b: str, c: str) -> Iterator[str]:
    """`name` = `a` * `b` + `c`, which LLVM may make one instruction (`contract`)."""
    yield f"  %p_{name} = fmul contract {k.vector} %{a}, %{b}"
    yield f"  %{name} = fadd contract {k.vector} %p_{name}, %{c}"


def _all(k: Kernel, kind: str, number: int | str) -> str:
    return "<" + ", ".join([f"{kind} {number}"] * k.lanes) + ">"
