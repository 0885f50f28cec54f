"""The innermost loops of a product with blockwise quantised weights, which are unpacked in vector registers.

A weight of a column is in each lane.  Those of 4 bits lie eight to a lane of 32 bits, those of 2 bits sixteen.  They
are looked up in a table of 16 floats where the CPU can (`PERMUTE`), which reads only the low four bits of a lane; with
2 bits, the upper two of these are the next weight and make no difference.  Otherwise they are masked and converted.

A segment of a row is a block.  The products of a block are added up first; their sum times the scale of the block is
added to the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kintune.compiler.kernels.instructions import PERMUTE, WORD_BYTES, fused
from kintune.compiler.kernels.microkernel import Kernel, Segments, Text, Vectors, named
from kintune.models.blockwise import PACKED, REAL

__all__ = ["Packing", "product_text", "unpacking_text"]

_UNROLL = {2: 2, 4: 4, 8: 8}
"""Loads of each vector that are written out."""

_AHEAD = 8192
"""The distance in bytes at which weights are prefetched into the second cache.  The hardware does not prefetch so far
ahead, and not beyond the end of a page."""


class Packing(NamedTuple):
    """`blocks` blocks of `block` weights of `bits` bits, for `vectors` of `lanes` columns.

    `zeros` is as in `Blockwise`; a byte has those of `in_byte` blocks.  With `permutes` there are 16
    lanes, and the CPU has what `PERMUTE` needs.
    """

    bits: int
    lanes: int
    vectors: int
    block: int
    blocks: int
    zeros: str = ""
    permutes: bool = False

    @property
    def middle(self) -> int:
        """What is taken off integers and zero points, so that the sums stay small."""
        return 1 << (self.bits - 1)

    @property
    def in_byte(self) -> int:
        """The weights, or zero points, that a byte has."""
        return 8 // self.bits

    @property
    def mask(self) -> int:
        """The bits of a weight or zero point."""
        return (1 << self.bits) - 1

    @property
    def values(self) -> int:
        """The weights of a column that one load of a vector brings."""
        return 32 // self.bits if self.bits < 8 else 1

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.vectors * self.lanes

    @property
    def panel_bytes(self) -> tuple[int, int, int]:
        """The bytes that are read of a panel of weights, of its scales, and of its zero points."""
        scales = self.blocks * self.columns * 4
        zeros = {"": 0, REAL: scales, PACKED: -(-self.blocks * self.bits // 8) * self.columns}[self.zeros]
        return self.kernel(0).panel_bytes, scales, zeros

    @property
    def floats_bytes(self) -> int:
        """The bytes of an unpacked panel."""
        return self.blocks * self.block * self.columns * 4

    def kernel(self, rows: int) -> Kernel:
        """The kernel of so many rows; a step of it is a load of each vector."""
        loads = self.block // self.values
        unroll = min(_UNROLL[self.bits], loads)  # a divisor: a block has at least 16 weights
        segments = Segments(self.blocks, far=self.block * WORD_BYTES)
        return Kernel(
            fused(self.lanes, 32 if self.permutes else 16), rows, self.vectors, loads, unroll, segments,
            words=self.values, ahead=_AHEAD, bits=self.bits,
        )  # fmt: skip


def product_text(packing: Packing, rows: int) -> Text:
    """The function that multiplies.

    It takes the addresses of the rows of the data (`row_bytes` of the kernel are read of each); of a panel of weights,
    its scales and its zero points (`panel_bytes`); and of the sums `[rows, vectors * lanes]` (`sums_bytes`).
    """
    writer = _Products(packing, rows)
    return named(f"kt_blockwise_{rows}x{packing.vectors}", writer.declared(), writer.written())


def unpacking_text(packing: Packing) -> Text:
    """The function that unpacks a panel.

    It takes the addresses of a panel of weights, its scales and its zero points (`panel_bytes`); and that of the floats
    `[blocks * block, vectors * lanes]` (`floats_bytes`).
    """
    writer = _Unpacked(packing, 0)
    return named("kt_unpacked", writer.declared(), writer.written())


class _Blockwise(Vectors):
    """Loads of packed weights, and their scales."""

    def __init__(self, packing: Packing, rows: int) -> None:
        super().__init__(packing.kernel(rows))
        self.p = packing
        self.vector, self.words = self.k.instruction.sums, f"<{packing.lanes} x i32>"

    @property
    def last(self) -> int:
        return self.k.unroll * self.k.words

    def declared(self) -> list[str]:
        return [*super().declared(), PERMUTE.declaration if self.p.permutes and self.p.bits < 8 else ""]

    def _scaling(self) -> list[str]:
        return ["%scales", "%points"]

    def _segment(self) -> Iterator[str]:
        p = self.p
        yield f"  %sb = mul i64 %s, {p.columns}"
        if p.zeros == PACKED and p.bits == 8:
            yield f"  %zb = mul i64 %s, {p.columns}"
        elif p.zeros == PACKED:  # several in a byte
            yield f"  %zr = lshr i64 %s, {p.in_byte.bit_length() - 1}"
            yield f"  %zb = mul i64 %zr, {p.columns}"
            yield "  %zt = trunc i64 %s to i32"
            yield f"  %zu = and i32 %zt, {p.in_byte - 1}"
            yield f"  %zx = shl i32 %zu, {p.bits.bit_length() - 1}"
            yield f"  %zy = insertelement {self.words} poison, i32 %zx, i32 0"
            yield f"  %zs = shufflevector {self.words} %zy, {self.words} poison, {self.words} zeroinitializer"

    def _loads(self, u: int) -> Iterator[str]:
        """The weights of all vectors, `u` loads behind the first of a turn."""
        nbytes = self.k.step_bytes // self.k.vectors
        kind = self.words if self.p.bits < 8 else f"<{self.p.lanes} x i8>"
        for v in range(self.k.vectors):
            yield f"  %wo{u}_{v} = add i64 %wk, {u * self.k.step_bytes + v * nbytes}"
            yield f"  %wa{u}_{v} = getelementptr i8, ptr %wp, i64 %wo{u}_{v}"
            yield f"  %w{u}_{v} = load {kind}, ptr %wa{u}_{v}, align 1"
        yield from self._asked(u)

    def _value(self, u: int, v: int, j: int) -> Iterator[str]:
        """Weight `j` of each lane of a load as a float, `f{u * words + j}_{v}`, less the number in the middle."""
        p, at, word = self.p, f"{u * self.k.words + j}_{v}", f"%w{u}_{v}"
        if p.bits == 8:
            yield f"  %m{at} = zext <{p.lanes} x i8> {word} to {self.words}"
        elif j:
            yield f"  %h{at} = lshr {self.words} {word}, {self._all('i32', p.bits * j)}"
            word = f"%h{at}"
        if p.bits < 8 and p.permutes:
            table = ", ".join(f"float {(number & p.mask) - p.middle}.0" for number in range(16))
            values, indices = PERMUTE.operands
            yield f"  %f{at} = call {PERMUTE.result} @{PERMUTE.function}({values} <{table}>, {indices} {word})"
            return
        if p.bits < 8:
            yield f"  %m{at} = and {self.words} {word}, {self._all('i32', p.mask)}"
        yield f"  %i{at} = sub {self.words} %m{at}, {self._all('i32', p.middle)}"
        yield f"  %f{at} = sitofp {self.words} %i{at} to {self.vector}"

    def _scales(self, v: int) -> Iterator[str]:
        """The scales `sv` and the zero points `zf` of a vector of columns, for a block."""
        p = self.p
        yield f"  %so{v} = add i64 %sb, {v * p.lanes}"
        yield f"  %sp{v} = getelementptr float, ptr %scales, i64 %so{v}"
        yield f"  %sv{v} = load {self.vector}, ptr %sp{v}, align 4"
        if p.zeros == REAL:
            yield f"  %zp{v} = getelementptr float, ptr %points, i64 %so{v}"
            yield f"  %zi{v} = load {self.vector}, ptr %zp{v}, align 4"
            yield f"  %zf{v} = fsub {self.vector} %zi{v}, {self._all('float', f'{p.middle}.0')}"
        elif p.zeros == PACKED:
            yield f"  %zo{v} = add i64 %zb, {v * p.lanes}"
            yield f"  %zp{v} = getelementptr i8, ptr %points, i64 %zo{v}"
            yield f"  %zi{v} = load <{p.lanes} x i8>, ptr %zp{v}, align 1"
            yield f"  %zw{v} = zext <{p.lanes} x i8> %zi{v} to {self.words}"
            found = f"%zw{v}"
            if p.bits < 8:
                yield f"  %zh{v} = lshr {self.words} %zw{v}, %zs"
                yield f"  %zm{v} = and {self.words} %zh{v}, {self._all('i32', p.mask)}"
                found = f"%zm{v}"
            yield f"  %zc{v} = sub {self.words} {found}, {self._all('i32', p.middle)}"
            yield f"  %zf{v} = sitofp {self.words} %zc{v} to {self.vector}"

    def _all(self, kind: str, number: int | str) -> str:
        """A vector of one number."""
        return "<" + ", ".join([f"{kind} {number}"] * self.p.lanes) + ">"


class _Products(_Blockwise):
    """Multiplies while it unpacks.  With zero points, the data of a block are added up, too."""

    def _through_steps(self) -> Iterator[str]:
        for r, v in self.stored:
            yield f"  %t{r}_{v}_0 = phi {self.vector} [zeroinitializer, %segment], [%t{r}_{v}_{self.last}, %step]"
        for r in range(self.k.rows) if self.p.zeros else ():
            yield f"  %q{r}_0 = phi {self.vector} [zeroinitializer, %segment], [%q{r}_{self.last}, %step]"

    def _step(self, u: int) -> Iterator[str]:
        yield from self._loads(u)
        for j in range(self.k.words):
            at = u * self.k.words + j
            for r in range(self.k.rows):
                yield f"  %xa{r}_{at} = add i64 %at, {at * WORD_BYTES}"
                yield f"  %xp{r}_{at} = getelementptr i8, ptr %r{r}, i64 %xa{r}_{at}"
                yield f"  %xv{r}_{at} = load float, ptr %xp{r}_{at}, align 4"
                yield f"  %xi{r}_{at} = insertelement {self.vector} poison, float %xv{r}_{at}, i32 0"
                given = f"{self.vector} %xi{r}_{at}, {self.vector} poison, {self.words} zeroinitializer"
                yield f"  %x{r}_{at} = shufflevector {given}"
            for v in range(self.k.vectors):
                yield from self._value(u, v, j)
                for r in range(self.k.rows):
                    yield from self._sum(f"t{r}_{v}_{at + 1}", f"t{r}_{v}_{at}", f"x{r}_{at}", f"f{at}_{v}")
            for r in range(self.k.rows) if self.p.zeros else ():
                yield f"  %q{r}_{at + 1} = fadd {self.vector} %q{r}_{at}, %x{r}_{at}"

    def _ended(self) -> Iterator[str]:
        for v in range(self.k.vectors):
            yield from self._scales(v)
        for r, v in self.stored:
            found = f"t{r}_{v}_{self.last}"
            if self.p.zeros:
                yield f"  %zq{r}_{v} = fmul contract {self.vector} %zf{v}, %q{r}_{self.last}"
                yield f"  %u{r}_{v} = fsub contract {self.vector} %{found}, %zq{r}_{v}"
                found = f"u{r}_{v}"
            yield from self._sum(f"e{r}_{v}", f"b{r}_{v}", f"sv{v}", found)

    def _sum(self, target: str, total: str, a: str, b: str) -> list[str]:
        return self.k.instruction.product(target, total, a, b)


class _Unpacked(_Blockwise):
    """Writes the weights as floats."""

    def _segment(self) -> Iterator[str]:
        yield from super()._segment()
        for v in range(self.k.vectors):
            yield from self._scales(v)
        yield f"  %cb = mul i64 %s, {self.p.block * self.k.line}"

    def _step(self, u: int) -> Iterator[str]:
        if not u:
            yield f"  %ck = mul i64 %k, {self.k.words * self.k.line}"
            yield "  %co = add i64 %cb, %ck"
        yield from self._loads(u)
        for j in range(self.k.words):
            at = u * self.k.words + j
            for v in range(self.k.vectors):
                yield from self._value(u, v, j)
                found = f"f{at}_{v}"
                if self.p.zeros:
                    yield f"  %d{at}_{v} = fsub {self.vector} %{found}, %zf{v}"
                    found = f"d{at}_{v}"
                yield f"  %e{at}_{v} = fmul {self.vector} %{found}, %sv{v}"
                yield f"  %co{at}_{v} = add i64 %co, {at * self.k.line + v * self.k.instruction.vector_bytes}"
                yield f"  %cp{at}_{v} = getelementptr i8, ptr %c, i64 %co{at}_{v}"
                yield f"  store {self.vector} %e{at}_{v}, ptr %cp{at}_{v}, align 4"

    def _ended(self) -> Iterator[str]:
        yield from ()
