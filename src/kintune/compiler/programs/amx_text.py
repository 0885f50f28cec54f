"""The LLVM text that AMX programs share: declarations, and functions that configure and release a thread's tiles."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["TILES", "tile_frame"]

TILES = 8
"""The tile registers of a core with AMX."""

_TEXT = """declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.{product}(i8 immarg, i8 immarg, i8 immarg)

define i32 @{name}_begin() {{
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


def tile_frame(name: str, product: str, shapes: Sequence[tuple[int, int]]) -> str:
    """The text that declares the tile instructions, `product` among them, and defines two functions.

    `NAME_begin` configures the tiles and `NAME_end` releases them.  Each thread calls them before and after its
    products.  `shapes` gives the bytes of a row and the number of rows of each of the `TILES` tiles.
    """
    widths = ", ".join(f"i16 {width}" for width, _ in shapes)
    heights = ", ".join(f"i8 {height}" for _, height in shapes)
    return _TEXT.format(name=name, product=product, widths=widths, heights=heights)
