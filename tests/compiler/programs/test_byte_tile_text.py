"""The inner kernels of tiles of bytes are valid LLVM for any x86, whatever this CPU has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.programs.test_panel_text import compiled

pytestmark = pytest.mark.tvm

FEATURES = "+avx512f,+avx512bw,+avx512vl,+amx-tile,+amx-int8"
GRIDS = [(tiles, vectors) for tiles in (1, 2, 3, 4) for vectors in (1, 2)]


@pytest.mark.parametrize(("tiles", "vectors"), [(1, 1), (2, 2), (1, 2), (4, 1)])
def test_tiles_compile(tiles: int, vectors: int, tmp_path: Path) -> None:
    from kintune.compiler.programs.byte_tile_text import TileKernel, tile_kernel_text

    name, text = tile_kernel_text(TileKernel(tiles, vectors, 14, 12, 48, 3, 2, 1, 0, 500))
    made = compiled(text, FEATURES, tmp_path)
    assert all(f"{name}{suffix}".encode() in made for suffix in ("", "_begin", "_end"))
    assert text.count("tdpbusd(i8 ") == tiles * vectors + 1  # with its declaration


@pytest.mark.parametrize(("tiles", "vectors"), GRIDS)
def test_no_register_has_two_uses(tiles: int, vectors: int) -> None:
    from kintune.compiler.programs.amx_text import TILES
    from kintune.compiler.programs.byte_tile_text import TileKernel, registers_for, tile_kernel_text

    if registers_for(tiles, vectors) > TILES:
        return
    _, text = tile_kernel_text(TileKernel(tiles, vectors, 16, 16, 64, 1, 1, 1, 0, 0))
    products = [
        line.split("tdpbusd(")[1].rstrip(")") for line in text.splitlines() if "call" in line and "tdpb" in line
    ]
    registers = [tuple(int(each.split()[1]) for each in product.split(", ")) for product in products]
    sums, data, weights = ({each[place] for each in registers} for place in range(3))
    assert len(sums) == len(products) == tiles * vectors
    assert len(sums) + len(data) + len(weights) == len(sums | data | weights)
    assert sums | data | weights <= set(range(TILES))


def test_another_shape_has_another_name() -> None:
    from kintune.compiler.programs.byte_tile_text import TileKernel, tile_kernel_text

    kernel = TileKernel(2, 2, 16, 16, 64, 1, 1, 1, 0, 0)
    names = {tile_kernel_text(each)[0] for each in (kernel, kernel._replace(height=7), kernel._replace(quads=3))}
    assert len(names) == 3
