"""The innermost loops of a sum of products, as text of LLVM: rows by vectors of columns, all sums in registers.

The instruction is a row of `instructions`.  A row of the data is `segments` of `steps` each, one after another; the
sums go through all of them.  A panel of weights has the vectors of a step side by side, and its steps in order.

Each text is one function, which says by properties of its `Kernel` how many bytes it reads and writes from each of its
addresses on.  It returns 0, and is inlined where it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from kintune.compiler.kernels.instructions import LINE_BYTES, TILE_ROWS, TILES, WORD_BYTES, Instruction
from kintune.core.candidate import digest_of

__all__ = [
    "PREFETCH",
    "WHOLE",
    "Kernel",
    "Segments",
    "Text",
    "Vectors",
    "Writer",
    "named",
    "registers_for",
    "text_of",
    "tile_declarations",
    "tile_frame",
    "together",
]

_NAME = "KERNEL"
_ALL_LEAST = int.from_bytes(bytes([0x80] * WORD_BYTES), "little", signed=True)  # four bytes of -128, as an int32
_NEAR = 4096  # bytes ahead, up to which weights are prefetched into the first cache
PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)"
"""LLVM's declaration of a prefetch."""


class Text(NamedTuple):
    """A function: its name, the declarations that it needs, and its text."""

    name: str
    declared: tuple[str, ...]
    text: str

    @property
    def whole(self) -> str:
        """Declarations and text."""
        return together([self])


def together(texts: Iterable[Text]) -> str:
    """The declarations and texts of several functions, each once."""
    each = list(dict.fromkeys(texts))
    declared = dict.fromkeys(line for text in each for line in text.declared)
    return "\n".join((*declared, *(text.text for text in each)))


class Segments(NamedTuple):
    """Where the segments of a row lie: `number` of them, in groups of `inner`.

    Within a group they are `near` bytes apart, groups are `far` bytes apart.
    """

    number: int = 1
    inner: int = 1
    near: int = 0
    far: int = 0

    @property
    def last(self) -> int:
        """The greatest of their places, in bytes from the first."""
        return max(each // self.inner * self.far + each % self.inner * self.near for each in range(self.number))

    def lines(self) -> list[str]:
        """The lines that compute `%place`, the bytes from the first segment of a row to number `%s`."""
        if self.inner == 1:
            return [f"  %place = mul i64 %s, {self.far}"]
        return [
            f"  %group = udiv i64 %s, {self.inner}",
            f"  %within = urem i64 %s, {self.inner}",
            f"  %gb = mul i64 %group, {self.far}",
            f"  %nb = mul i64 %within, {self.near}",
            "  %place = add i64 %gb, %nb",
        ]


WHOLE = Segments()
"""A row in one segment."""


class Kernel(NamedTuple):
    """`rows` of the data by `vectors` of columns; a segment of a row has `steps`, of which `unroll` are written out.

    Each row has an address of its own; with a `pitch`, the function has the address of the first one, and the others
    are so many bytes apart.  With `adds`, sums are added to those in memory.  The sums of each row have an address of
    their own if they are `apart`: so they stay in registers from call to call, where each row is a small buffer.  Steps
    are added to `ways` sums in turns, so that a product need not wait for the one before; `ways` divides `unroll`.

    For an instruction of tiles, `rows` are tiles of `height` rows, `pitch` bytes apart; each has an address of its own,
    unless they are `joined`.  A step takes `words` words of a row, at most 16.

    Each step prefetches weights `ahead` bytes behind those that it reads, if that is not 0.  With `lines`, each turn of
    `unroll` steps prefetches so many lines of the cache from an address on, which is the last argument.
    """

    instruction: Instruction
    rows: int
    vectors: int
    steps: int
    unroll: int = 1
    segments: Segments = WHOLE
    pitch: int = 0
    adds: bool = False
    height: int = TILE_ROWS
    words: int = 1
    joined: bool = False
    ahead: int = 0
    lines: int = 0
    bits: int = 32
    counted: bool = False
    apart: bool = False
    ways: int = 1

    @property
    def addresses(self) -> int:
        """The addresses of the data that the function takes."""
        return 1 if self.joined or (self.pitch and not self.instruction.tiles) else self.rows

    @property
    def row_bytes(self) -> int:
        """The bytes that are read from each of these addresses on."""
        whole = self.segments.last + self.whole_steps * self.words * WORD_BYTES
        if not self.instruction.tiles:
            return whole + (self.rows - 1) * self.pitch
        return whole + (self.height * (self.rows if self.joined else 1) - 1) * self.pitch

    @property
    def panel_bytes(self) -> int:
        """The bytes that are read of a panel of weights."""
        return ((self.segments.number - 1) * self.steps + self.whole_steps) * self.step_bytes

    @property
    def sums_bytes(self) -> int:
        """The bytes of the sums that lie at one address."""
        return self.line if self.apart else self.rows * (self.height if self.instruction.tiles else 1) * self.line

    @property
    def line(self) -> int:
        """The bytes of the sums of a row, and of a word's weights."""
        return self.vectors * self.instruction.vector_bytes

    @property
    def step_bytes(self) -> int:
        """The bytes of the weights of a step."""
        return self.words * self.line * self.bits // 32

    @property
    def whole_steps(self) -> int:
        """The steps of a segment that are computed: turns of `unroll` of them."""
        return -(-self.steps // self.unroll) * self.unroll

    @property
    def turns(self) -> int:
        """The turns of the innermost loop in a call."""
        return self.segments.number * self.whole_steps // self.unroll

    def lines_for(self, calls: int) -> int:
        """The lines of another panel that each turn prefetches, so that so many calls prefetch it together."""
        return -(-self.panel_bytes // (LINE_BYTES * calls * self.turns))


def text_of(kernel: Kernel) -> Text:
    """The function of a kernel.

    It takes the addresses of the data (`row_bytes`), of a panel of weights (`panel_bytes`) and of the sums (`[rows,
    vectors * lanes]`; `sums_bytes`; of each row, if they are `apart`).  For instructions of tiles, there are also
    `NAME_begin` and `NAME_end`, which each thread calls before and after.
    """
    writer = (_Tiles if kernel.instruction.tiles else Vectors)(kernel)
    ahead = f"_ahead_{kernel.lines}" if kernel.lines else ""
    name = f"kt_{kernel.instruction.name}_{kernel.rows}x{kernel.vectors}{ahead}"
    return named(name, writer.declared(), writer.written())


def named(prefix: str, declared: Iterable[str], lines: Iterable[str]) -> Text:
    """The text, whose lines call the function `KERNEL`, by a name that stands for its content."""
    text = "\n".join(lines)
    name = f"{prefix}_{digest_of(text.encode())[:16]}"
    return Text(name, tuple(each for each in declared if each), text.replace(_NAME, name))


def registers_for(tiles: int, vectors: int) -> int:
    """The tiles that a kernel needs at least: its sums, a row of the weights, and one of the data."""
    return tiles * vectors + vectors + 1


class Writer:
    """The loops over segments and steps; what a kind of kernels does in them is in its methods."""

    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel

    def declared(self) -> list[str]:
        """The declarations that the text needs."""
        return [self.k.instruction.declaration, PREFETCH if self.k.ahead or self.k.lines else ""]

    def _parameters(self) -> list[str]:
        """The function's parameters."""
        further = ["%ahead"] if self.k.lines else []
        sums = [f"%c{row}" for row in range(self.k.rows)] if self.k.apart else ["%c"]
        pointers = [*(f"%r{row}" for row in range(self.k.addresses)), "%w", *self._scaling(), *sums, *further]
        return [*(f"ptr {each}" for each in pointers), *(["i32 %steps"] if self.k.counted else [])]

    def _scaling(self) -> list[str]:
        """Parameters behind the weights."""
        return []

    def written(self) -> Iterator[str]:
        """The lines of the function."""
        k = self.k
        yield f"define i32 @{_NAME}({', '.join(self._parameters())}) {{"
        yield "entry:"
        if k.counted:
            yield "  %count = zext i32 %steps to i64"
        yield from self._entry()
        yield "  br label %segment"
        yield "segment:"
        yield "  %s = phi i64 [0, %entry], [%s1, %ended]"
        yield from self._through_segments()
        yield from k.segments.lines()
        yield f"  %ws = mul i64 %s, {k.steps * k.step_bytes}"
        yield "  %wp = getelementptr i8, ptr %w, i64 %ws"
        yield from self._segment()
        yield "  br label %step"
        yield "step:"
        yield "  %k = phi i64 [0, %segment], [%k1, %step]"
        yield from self._through_steps()
        yield f"  %kb = mul i64 %k, {k.words * WORD_BYTES}"
        yield "  %at = add i64 %kb, %place"
        yield f"  %wk = mul i64 %k, {k.step_bytes}"
        if k.lines:
            yield f"  %fs = mul i64 %s, {k.whole_steps // k.unroll}"
            yield f"  %ft = udiv i64 %k, {k.unroll}"
            yield "  %fk = add i64 %fs, %ft"
            yield f"  %fb = mul i64 %fk, {k.lines * LINE_BYTES}"
        for u in range(k.unroll):
            yield from self._step(u)
        yield f"  %k1 = add i64 %k, {k.unroll}"
        yield f"  %more = icmp ult i64 %k1, {'%count' if k.counted else k.steps}"
        yield "  br i1 %more, label %step, label %ended"
        yield "ended:"
        yield from self._ended()
        yield "  %s1 = add i64 %s, 1"
        yield f"  %again = icmp ult i64 %s1, {k.segments.number}"
        yield "  br i1 %again, label %segment, label %done"
        yield "done:"
        yield from self._stores()
        yield "  ret i32 0"
        yield "}"

    def _entry(self) -> Iterator[str]:
        """Before all loops."""
        yield from ()

    def _through_segments(self) -> Iterator[str]:
        """What goes from segment to segment."""
        yield from ()

    def _segment(self) -> Iterator[str]:
        """At the begin of a segment."""
        yield from ()

    def _through_steps(self) -> Iterator[str]:
        """What goes from step to step."""
        yield from ()

    def _step(self, u: int) -> Iterator[str]:
        """Step `u` of those that are written out."""
        yield from ()

    def _ended(self) -> Iterator[str]:
        """At the end of a segment."""
        yield from ()

    def _stores(self) -> Iterator[str]:
        """Behind all loops."""
        yield from ()

    def _asked(self, u: int) -> Iterator[str]:
        """The prefetches of a step."""
        k = self.k
        for number in range(u, k.lines, k.unroll):
            yield f"  %fo{number} = add i64 %fb, {number * LINE_BYTES}"
            yield from _prefetch(f"l{number}", "%ahead", f"%fo{number}", 2)
        for number in range(-(-k.step_bytes // LINE_BYTES) if k.ahead else 0):
            yield f"  %po{u}_{number} = add i64 %wk, {k.ahead + u * k.step_bytes + number * LINE_BYTES}"
            nearness = 3 if k.ahead < _NEAR else 2
            yield from _prefetch(f"n{u}_{number}", "%wp", f"%po{u}_{number}", nearness)


def _prefetch(name: str, base: str, offset: str, nearness: int) -> list[str]:
    return [
        f"  %f{name} = getelementptr i8, ptr {base}, i64 {offset}",
        f"  call void @llvm.prefetch.p0(ptr %f{name}, i32 0, i32 {nearness}, i32 1)",
    ]


class Vectors(Writer):
    """Sums in vector registers."""

    @property
    def stored(self) -> list[tuple[int, int]]:
        """The sums that are stored, by row and vector."""
        return list(product(range(self.k.rows), range(self.k.vectors)))

    @property
    def last(self) -> int:
        """The number of products of a sum in a turn of the loop."""
        return self.k.unroll

    @property
    def _sums(self) -> list[tuple[int, int]]:
        """All sums, with those of the row that corrects signed bytes."""
        signed = ((self.k.rows, vector) for vector in range(self.k.vectors) if self.k.instruction.signed)
        return [*self.stored, *signed]

    def _entry(self) -> Iterator[str]:
        k = self.k
        for row in range(k.addresses, k.rows):
            yield f"  %r{row} = getelementptr i8, ptr %r0, i64 {row * k.pitch}"
        for r, v in self.stored:
            base, row = (f"%c{r}", 0) if k.apart else ("%c", r)
            yield f"  %c{r}_{v} = getelementptr i8, ptr {base}, i64 {row * k.line + v * k.instruction.vector_bytes}"
            if k.adds:
                yield f"  %i{r}_{v} = load {k.instruction.sums}, ptr %c{r}_{v}, align 4"

    def _through_segments(self) -> Iterator[str]:
        for r, v in self._sums:
            first = f"%i{r}_{v}" if self.k.adds and r < self.k.rows else "zeroinitializer"
            yield f"  %b{r}_{v} = phi {self.k.instruction.sums} [{first}, %entry], [%e{r}_{v}, %ended]"

    def _through_steps(self) -> Iterator[str]:
        for (r, v), way in product(self._sums, range(self.k.ways)):
            begin = "zeroinitializer" if way else f"%b{r}_{v}"
            values = f"[{begin}, %segment], [%t{r}_{v}_{self.last + way}, %step]"
            yield f"  %t{r}_{v}_{way} = phi {self.k.instruction.sums} {values}"

    def _step(self, u: int) -> Iterator[str]:
        k, operand = self.k, self.k.instruction.operand
        for v in range(k.vectors):
            yield f"  %wo{u}_{v} = add i64 %wk, {u * k.line + v * k.instruction.vector_bytes}"
            yield f"  %wa{u}_{v} = getelementptr i8, ptr %wp, i64 %wo{u}_{v}"
            yield f"  %w{u}_{v} = load {operand}, ptr %wa{u}_{v}, align 1"
        yield from self._asked(u)
        words = f"<{k.instruction.lanes} x i32>"
        for r in range(k.rows + k.instruction.signed):
            value = str(_ALL_LEAST) if r == k.rows else f"%a{u}_{r}"
            if r < k.rows:
                yield f"  %ao{u}_{r} = add i64 %at, {u * WORD_BYTES}"
                yield f"  %aa{u}_{r} = getelementptr i8, ptr %r{r}, i64 %ao{u}_{r}"
                yield f"  %a{u}_{r} = load i32, ptr %aa{u}_{r}, align 1"
                if k.instruction.signed:
                    value = f"%x{u}_{r}"
                    yield f"  {value} = xor i32 %a{u}_{r}, {_ALL_LEAST}"  # less 128, byte by byte
            yield f"  %ai{u}_{r} = insertelement {words} poison, i32 {value}, i32 0"
            yield f"  %as{u}_{r} = shufflevector {words} %ai{u}_{r}, {words} poison, {words} zeroinitializer"
            yield f"  %ab{u}_{r} = bitcast {words} %as{u}_{r} to {operand}"
            for v in range(k.vectors):
                yield from k.instruction.product(f"t{r}_{v}_{u + k.ways}", f"t{r}_{v}_{u}", f"ab{u}_{r}", f"w{u}_{v}")

    def _ended(self) -> Iterator[str]:
        k = self.k
        for r, v in self._sums if k.ways == 1 else ():
            yield f"  %e{r}_{v} = phi {k.instruction.sums} [%t{r}_{v}_{self.last}, %step]"
        for (r, v), way in product(self._sums, range(1, k.ways)):
            last, before = self.last + way, f"%g{r}_{v}_{way - 1}" if way > 1 else f"%t{r}_{v}_{self.last}"
            target = f"%e{r}_{v}" if way == k.ways - 1 else f"%g{r}_{v}_{way}"
            yield f"  {target} = {k.instruction.adding} {k.instruction.sums} {before}, %t{r}_{v}_{last}"

    def _stores(self) -> Iterator[str]:
        total = self.k.instruction.sums
        for r, v in self.stored:
            value = f"%e{r}_{v}"
            if self.k.instruction.signed:
                value = f"%d{r}_{v}"
                yield f"  {value} = sub {total} %e{r}_{v}, %e{self.k.rows}_{v}"
            yield f"  store {total} {value}, ptr %c{r}_{v}, align 4"


class _Tiles(Writer):
    """Sums in tile registers; a step loads its weights first, which stay, and the data of one tile after the other."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        first = kernel.rows * kernel.vectors
        self._weights = list(range(first, first + kernel.vectors))
        self._data = list(range(first + kernel.vectors, TILES))[: kernel.rows]  # used again if they are fewer

    @property
    def _grid(self) -> list[tuple[int, int, int]]:
        """The number, the tile of rows and the vector of each sum."""
        return [(number, *each) for number, each in enumerate(product(range(self.k.rows), range(self.k.vectors)))]

    def declared(self) -> list[str]:
        return [*super().declared(), *tile_declarations(self.k.instruction.function)]

    def written(self) -> Iterator[str]:
        k = self.k
        of_data, of_weights, of_sums = (k.words * WORD_BYTES, k.height), (LINE_BYTES, k.words), (LINE_BYTES, k.height)
        shapes = [
            of_data if at in self._data else of_weights if at in self._weights else of_sums for at in range(TILES)
        ]
        yield tile_frame(_NAME, shapes)
        yield from super().written()

    def _entry(self) -> Iterator[str]:
        k = self.k
        for tile in range(k.addresses, k.rows):
            yield f"  %r{tile} = getelementptr i8, ptr %r0, i64 {tile * k.height * k.pitch}"
        for number, tile, vector in self._grid:
            place = tile * k.height * k.line + vector * LINE_BYTES
            yield f"  %c{number} = getelementptr i8, ptr %c, i64 {place}"
            load = f"tileloadd64(i8 {number}, ptr %c{number}, i64 {k.line})"
            yield f"  call void @llvm.x86.{load if k.adds else f'tilezero(i8 {number})'}"

    def _step(self, u: int) -> Iterator[str]:
        k = self.k
        for vector, register in enumerate(self._weights):
            yield f"  %wo{u}_{vector} = add i64 %wk, {u * k.step_bytes + vector * LINE_BYTES}"
            yield f"  %wa{u}_{vector} = getelementptr i8, ptr %wp, i64 %wo{u}_{vector}"
            yield f"  call void @llvm.x86.tileloadd64(i8 {register}, ptr %wa{u}_{vector}, i64 {k.line})"
        yield from self._asked(u)
        for tile in range(k.rows):
            register = self._data[tile % len(self._data)]
            yield f"  %ao{u}_{tile} = add i64 %at, {u * k.words * WORD_BYTES}"
            yield f"  %aa{u}_{tile} = getelementptr i8, ptr %r{tile}, i64 %ao{u}_{tile}"
            yield f"  call void @llvm.x86.tileloadd64(i8 {register}, ptr %aa{u}_{tile}, i64 {k.pitch})"
            for number, row, vector in self._grid:
                if row == tile:
                    used = f"i8 {number}, i8 {register}, i8 {self._weights[vector]}"
                    yield f"  call void @{k.instruction.function}({used})"

    def _stores(self) -> Iterator[str]:
        for number, _, _ in self._grid:
            yield f"  call void @llvm.x86.tilestored64(i8 {number}, ptr %c{number}, i64 {self.k.line})"


def tile_declarations(function: str) -> list[str]:
    """LLVM's declarations of the instructions of tiles, the product `function` among them."""
    register = "i8 immarg"
    given = {
        "ldtilecfg": "ptr",
        "tilerelease": "",
        "tilezero": register,
        "tileloadd64": f"{register}, ptr, i64",
        "tilestored64": f"{register}, ptr, i64",
    }
    declared = [f"declare void @llvm.x86.{name}({types})" for name, types in given.items()]
    return [*declared, f"declare void @{function}({register}, {register}, {register})"]


def tile_frame(name: str, shapes: Iterable[tuple[int, int]]) -> str:
    """The text that defines two functions: `NAME_begin` configures the tiles and `NAME_end` releases them.

    Each thread calls them before and after its products.  `shapes` gives the bytes of a row and the number of rows of
    each of the `TILES` tiles.
    """
    sizes = list(shapes)
    widths = ", ".join(f"i16 {width}" for width, _ in sizes)
    heights = ", ".join(f"i8 {height}" for _, height in sizes)
    return f"""define i32 @{name}_begin() {{
  %config = alloca [64 x i8], align 64
  store <64 x i8> zeroinitializer, ptr %config, align 64
  store i8 1, ptr %config, align 64
  %widths = getelementptr i8, ptr %config, i64 16
  store <8 x i16> <{widths}>, ptr %widths, align 16
  %heights = getelementptr i8, ptr %config, i64 48
  store <8 x i8> <{heights}>, ptr %heights, align 16
  call void @llvm.x86.ldtilecfg(ptr %config)
  ret i32 0
}}

define i32 @{name}_end() {{
  call void @llvm.x86.tilerelease()
  ret i32 0
}}
"""
