"""The innermost loops of a sum of products of bytes by AMX, as text of LLVM: some tiles by some columns of tiles.

`tdpbusd` multiplies a tile of the data, of at most 16 rows of at most 64 bytes, with a tile of weights for 16 filters,
and adds to a tile of int32.  Nothing is rounded or saturated.
"""

from __future__ import annotations

from typing import NamedTuple

from kintune.compiler.programs.amx_text import TILES, tile_frame
from kintune.compiler.programs.byte_kernel import LANES, STEP, last_place, segment_place
from kintune.core.candidate import digest_of

__all__ = ["MOST_QUADS", "MOST_ROWS", "TileKernel", "registers_for", "tile_kernel_text"]

MOST_ROWS = 16
"""The rows of a tile, at most."""

MOST_QUADS = 16
"""The parts of four bytes in a row of a tile, at most."""

_NAME = "KERNEL"
_CACHE_LINE = 64
_NEARNESS = 3

_TEXT = """declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)

define i32 @KERNEL({rows}, ptr %w, ptr %c) {{
entry:
{entry}
  br label %segment
segment:
  %s = phi i64 [0, %entry], [%s1, %ended]
{place}
  %ws = mul i64 %s, {segment}
  %wp = getelementptr i8, ptr %w, i64 %ws
  br label %step
step:
  %k = phi i64 [0, %segment], [%k1, %step]
  %kb = mul i64 %k, {bytes}
  %at = add i64 %kb, %place
  %wk = mul i64 %k, {panel}
{body}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {chunks}
  br i1 %more, label %step, label %ended
ended:
  %s1 = add i64 %s, 1
  %again = icmp ult i64 %s1, {segments}
  br i1 %again, label %segment, label %done
done:
{end}
  ret i32 0
}}
"""


class TileKernel(NamedTuple):
    """`tiles` of the data by `vectors` of 16 filters.  A tile has `height` rows, `pitch` bytes apart, of `quads` times
    four bytes.

    A row of the data is `segments` of `chunks` rows of tiles each, one after another.  Segments lie in groups of
    `inner`: within a group they are `near` bytes apart, groups are `far` bytes apart.

    Weights are prefetched `ahead` steps before they are used; with 0 they are not prefetched.
    """

    tiles: int
    vectors: int
    height: int
    quads: int
    pitch: int
    segments: int
    chunks: int
    inner: int
    near: int
    far: int
    ahead: int = 0

    @property
    def tile_bytes(self) -> int:
        """The bytes from the first that is read of the rows of a tile of the data to behind the last."""
        whole = last_place(self.segments, self.inner, self.near, self.far) + self.chunks * self.quads * STEP
        return (self.height - 1) * self.pitch + whole

    @property
    def panel_bytes(self) -> int:
        """The bytes that are read of a panel of weights."""
        return self.segments * self.chunks * self.quads * self.line_bytes

    @property
    def sums_bytes(self) -> int:
        """The bytes of the sums."""
        return self.tiles * self.height * self.line_bytes

    @property
    def line_bytes(self) -> int:
        """The bytes of the sums of a row, and of the weights of four bytes of a row."""
        return self.vectors * LANES * STEP


def registers_for(tiles: int, vectors: int) -> int:
    """The tiles that a kernel needs at least: its sums, a row of the weights, and one of the data."""
    return tiles * vectors + vectors + 1


def tile_kernel_text(kernel: TileKernel) -> tuple[str, str]:
    """The name of the function and its text.

    It takes the addresses of the first rows of the tiles of the data (`tile_bytes` are read from each on); of a panel
    of weights `[segments * chunks * quads, vectors * 16, 4]` (`panel_bytes`); and of the sums `[tiles, height,
    vectors * 16]` (`sums_bytes`).  It returns 0.

    `NAME_begin` and `NAME_end` are called before and after, by each thread.
    """
    text = _text(kernel)
    name = f"kintune_byte_tiles_{digest_of(text.encode())[:16]}"
    return name, text.replace(_NAME, name)


def _text(k: TileKernel) -> str:
    grid = [(tile, vector) for tile in range(k.tiles) for vector in range(k.vectors)]
    line = k.line_bytes
    a, b = _registers(k)
    data, weights = {*a}, {*b}
    shapes = [
        (k.quads * STEP, k.height) if at in data else (64, k.quads) if at in weights else (64, k.height)
        for at in range(TILES)
    ]
    sums = [f"ptr %c{tile}_{vector}, i64 {line}" for tile, vector in grid]
    entry = [
        f"  %c{tile}_{vector} = getelementptr i8, ptr %c, i64 {tile * k.height * line + vector * LANES * 4}"
        for tile, vector in grid
    ]
    entry += [f"  call void @llvm.x86.tilezero(i8 {at})" for at in range(len(grid))]
    return tile_frame(_NAME, "tdpbusd", shapes) + _TEXT.format(
        rows=", ".join(f"ptr %r{tile}" for tile in range(k.tiles)),
        entry="\n".join(entry),
        place="\n".join(segment_place(k.inner, k.near, k.far)),
        segment=k.chunks * k.quads * line,
        bytes=k.quads * STEP,
        panel=k.quads * line,
        body="\n".join(_step(k, a, b, line)),
        chunks=k.chunks,
        segments=k.segments,
        end="\n".join(f"  call void @llvm.x86.tilestored64(i8 {at}, {place})" for at, place in enumerate(sums)),
    )


def _registers(k: TileKernel) -> tuple[list[int], list[int]]:
    """The registers of the data's tiles and of the weights'; those of the data may be used again."""
    first = k.tiles * k.vectors
    weights = list(range(first, first + k.vectors))
    return list(range(first + k.vectors, TILES))[: k.tiles], weights


def _step(k: TileKernel, a: list[int], b: list[int], line: int) -> list[str]:
    """The loads and products of one row of tiles: the weights are loaded first, and stay."""

    def data(tile: int) -> list[str]:
        return [
            f"  %aa{tile} = getelementptr i8, ptr %r{tile}, i64 %at",
            f"  call void @llvm.x86.tileloadd64(i8 {a[tile % len(a)]}, ptr %aa{tile}, i64 {k.pitch})",
        ]

    def weights(vector: int) -> list[str]:
        return [
            f"  %wo{vector} = add i64 %wk, {vector * LANES * STEP}",
            f"  %wa{vector} = getelementptr i8, ptr %wp, i64 %wo{vector}",
            f"  call void @llvm.x86.tileloadd64(i8 {b[vector]}, ptr %wa{vector}, i64 {line})",
        ]

    def product(tile: int, vector: int) -> str:
        registers = tile * k.vectors + vector, a[tile % len(a)], b[vector]
        return "  call void @llvm.x86.tdpbusd(i8 {}, i8 {}, i8 {})".format(*registers)

    lines: list[str] = []
    for vector in range(k.vectors):
        lines += weights(vector)
    for number in range(k.quads * k.vectors if k.ahead else 0):
        lines += [
            f"  %po{number} = add i64 %wk, {k.ahead * k.quads * line + number * _CACHE_LINE}",
            f"  %pa{number} = getelementptr i8, ptr %wp, i64 %po{number}",
            f"  call void @llvm.prefetch.p0(ptr %pa{number}, i32 0, i32 {_NEARNESS}, i32 1)",
        ]
    for tile in range(k.tiles):
        lines += [*data(tile), *(product(tile, vector) for vector in range(k.vectors))]
    return lines
