"""The innermost loops of a sum of products of bytes, as text of LLVM: some rows by some vectors in registers.

An instruction takes four bytes of the data, the same ones in each lane, and four weights of a filter in each lane, and
adds each lane's four products to a sum of int32.  Nothing is rounded or saturated.  CPUs with AVX-512 VNNI have it for
16 lanes (`vpdpbusd`), those with AVX-VNNI for 8, and those of Arm with I8MM for 4 (`usdot`).

Older CPUs of Arm multiply signed bytes alone (`sdot`).  There the data is taken less 128, and a further row, all of
whose bytes are -128, sums what that takes from each filter; it is subtracted at the end.
"""

from __future__ import annotations

from typing import NamedTuple

from kintune.core.candidate import digest_of

__all__ = ["INSTRUCTIONS", "LANES", "STEP", "ByteInstruction", "Kernel", "kernel_text", "last_place", "segment_place"]

LANES = 16
"""Sums of int32 in a vector of AVX-512."""

STEP = 4
"""Bytes of the data that are multiplied at once."""

_NAME = "KERNEL"
_ALL_LEAST = int.from_bytes(bytes([0x80] * STEP), "little", signed=True)  # four bytes of -128, as an int32


class ByteInstruction(NamedTuple):
    """An instruction that adds products of bytes: `lanes` of a vector, vector `registers`, LLVM's `function` for it.

    `name` is the processor's for it, and `variant` that of the programs that use it.  `feature` is the extension that
    has it, in LLVM's spelling.  `signed` tells that bytes of the data are signed, too.
    """

    name: str
    variant: str
    feature: str
    lanes: int
    registers: int
    function: str
    signed: bool = False

    @property
    def sums(self) -> str:
        """LLVM's type of a vector of sums."""
        return f"<{self.lanes} x i32>"

    @property
    def operand(self) -> str:
        """LLVM's type of a vector of bytes."""
        return f"<{self.lanes * STEP} x i8>"


INSTRUCTIONS = (
    ByteInstruction("vpdpbusd", "vnni", "avx512vnni", LANES, 32, "llvm.x86.avx512.vpdpbusd.512"),
    ByteInstruction("vpdpbusd", "vnni256", "avxvnni", 8, 16, "llvm.x86.avx512.vpdpbusd.256"),
    ByteInstruction("usdot", "usdot", "i8mm", 4, 32, "llvm.aarch64.neon.usdot.v4i32.v16i8"),
    ByteInstruction("sdot", "sdot", "dotprod", 4, 32, "llvm.aarch64.neon.sdot.v4i32.v16i8", signed=True),
)
"""The instructions that are known, the best first."""


class Kernel(NamedTuple):
    """`rows` of the data by `vectors` of filters; `unroll` steps are written out, with products by `instruction`.

    A row of the data is `segments` of `steps` each, of four bytes one after another.  Segments lie in groups of
    `inner`: within a group they are `near` bytes apart, groups are `far` bytes apart.
    """

    rows: int
    vectors: int
    unroll: int
    segments: int
    steps: int
    inner: int
    near: int
    far: int
    instruction: ByteInstruction = INSTRUCTIONS[0]

    @property
    def row_bytes(self) -> int:
        """The bytes from the first that is read of a row of the data to behind the last."""
        return last_place(self.segments, self.inner, self.near, self.far) + self._steps * STEP

    @property
    def panel_bytes(self) -> int:
        """The bytes that are read of a panel of weights."""
        return ((self.segments - 1) * self.steps + self._steps) * self.vectors * self.instruction.lanes * STEP

    @property
    def sums_bytes(self) -> int:
        """The bytes of the sums."""
        return self.rows * self.vectors * self.instruction.lanes * 4

    @property
    def _steps(self) -> int:
        """The steps of a segment that are computed: turns of `unroll` of them."""
        return -(-self.steps // self.unroll) * self.unroll


def kernel_text(kernel: Kernel) -> tuple[str, str]:
    """The name of the function and its text.

    It takes the addresses of the rows of the data (`row_bytes` are read of each); of a panel of weights `[segments *
    steps, vectors * lanes, 4]` (`panel_bytes`); and of the sums `[rows, vectors * lanes]` (`sums_bytes`).  It returns
    0.
    """
    text = "\n".join(_lines(kernel))
    name = f"kintune_bytes_{digest_of(text.encode())[:16]}"
    return name, text.replace(_NAME, name)


def _lines(k: Kernel) -> list[str]:
    stored = [(row, vector) for row in range(k.rows) for vector in range(k.vectors)]
    sums = [*stored, *((k.rows, vector) for vector in range(k.vectors) if k.instruction.signed)]
    lanes, total, operand = k.instruction.lanes, k.instruction.sums, k.instruction.operand
    width = k.vectors * lanes * STEP
    rows = ", ".join(f"ptr %r{row}" for row in range(k.rows))
    lines = [
        f"declare {total} @{k.instruction.function}({total}, {operand}, {operand})",
        f"define i32 @{_NAME}({rows}, ptr %w, ptr %c) {{",
        "entry:",
        "  br label %segment",
        "segment:",
        "  %s = phi i64 [0, %entry], [%s1, %ended]",
        *(f"  %b{r}_{v} = phi {total} [zeroinitializer, %entry], [%e{r}_{v}, %ended]" for r, v in sums),
        *segment_place(k.inner, k.near, k.far),
        f"  %ws = mul i64 %s, {k.steps * width}",
        "  %wp = getelementptr i8, ptr %w, i64 %ws",
        "  br label %step",
        "step:",
        "  %k = phi i64 [0, %segment], [%k1, %step]",
        *(f"  %t{r}_{v}_0 = phi {total} [%b{r}_{v}, %segment], [%t{r}_{v}_{k.unroll}, %step]" for r, v in sums),
        f"  %kb = mul i64 %k, {STEP}",
        "  %at = add i64 %kb, %place",
        f"  %wk = mul i64 %k, {width}",
    ]
    for u in range(k.unroll):
        lines += _step(k, u, width)
    lines += [
        f"  %k1 = add i64 %k, {k.unroll}",
        f"  %more = icmp ult i64 %k1, {k.steps}",
        "  br i1 %more, label %step, label %ended",
        "ended:",
        *(f"  %e{r}_{v} = phi {total} [%t{r}_{v}_{k.unroll}, %step]" for r, v in sums),
        "  %s1 = add i64 %s, 1",
        f"  %again = icmp ult i64 %s1, {k.segments}",
        "  br i1 %again, label %segment, label %done",
        "done:",
    ]
    for r, v in stored:
        value = f"%e{r}_{v}"
        if k.instruction.signed:
            value = f"%d{r}_{v}"
            lines.append(f"  {value} = sub {total} %e{r}_{v}, %e{k.rows}_{v}")
        lines += [
            f"  %c{r}_{v} = getelementptr i8, ptr %c, i64 {(r * k.vectors + v) * lanes * 4}",
            f"  store {total} {value}, ptr %c{r}_{v}, align 4",
        ]
    return [*lines, "  ret i32 0", "}"]


def segment_place(inner: int, near: int, far: int) -> list[str]:
    """The lines that compute `%place`, the bytes from the first segment of a row to number `%s`; see `Kernel`."""
    if inner == 1:
        return [f"  %place = mul i64 %s, {far}"]
    return [
        f"  %group = udiv i64 %s, {inner}",
        f"  %within = urem i64 %s, {inner}",
        f"  %gb = mul i64 %group, {far}",
        f"  %nb = mul i64 %within, {near}",
        "  %place = add i64 %gb, %nb",
    ]


def last_place(segments: int, inner: int, near: int, far: int) -> int:
    """The greatest of the places of the segments of a row, in bytes from the first; see `segment_place`."""
    return max(each // inner * far + each % inner * near for each in range(segments))


def _step(k: Kernel, u: int, width: int) -> list[str]:
    lines, total, operand = [], k.instruction.sums, k.instruction.operand
    for v in range(k.vectors):
        lines += [
            f"  %wo{u}_{v} = add i64 %wk, {u * width + v * k.instruction.lanes * STEP}",
            f"  %wa{u}_{v} = getelementptr i8, ptr %wp, i64 %wo{u}_{v}",
            f"  %w{u}_{v} = load {operand}, ptr %wa{u}_{v}, align 1",
        ]
    for r in range(k.rows + k.instruction.signed):
        value = _ALL_LEAST if r == k.rows else f"%a{u}_{r}"
        if r < k.rows:
            lines += [
                f"  %ao{u}_{r} = add i64 %at, {u * STEP}",
                f"  %aa{u}_{r} = getelementptr i8, ptr %r{r}, i64 %ao{u}_{r}",
                f"  %a{u}_{r} = load i32, ptr %aa{u}_{r}, align 1",
            ]
            if k.instruction.signed:
                value = f"%x{u}_{r}"
                lines.append(f"  {value} = xor i32 %a{u}_{r}, {_ALL_LEAST}")  # less 128, byte by byte
        lines += [
            f"  %ai{u}_{r} = insertelement {total} poison, i32 {value}, i32 0",
            f"  %as{u}_{r} = shufflevector {total} %ai{u}_{r}, {total} poison, {total} zeroinitializer",
            f"  %ab{u}_{r} = bitcast {total} %as{u}_{r} to {operand}",
        ]
        for v in range(k.vectors):
            lines.append(
                f"  %t{r}_{v}_{u + 1} = call {total} @{k.instruction.function}"
                f"({total} %t{r}_{v}_{u}, {operand} %ab{u}_{r}, {operand} %w{u}_{v})"
            )
    return lines
