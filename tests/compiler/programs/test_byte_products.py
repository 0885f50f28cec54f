"""Products of bytes: how rows lie in tiles, and whole networks; `test_sums` compares what the programs compute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch
from kintune.errors import BuildError
from kintune.search.sketch_program import program_of
from tests.compiler.programs.test_panel_network import described
from tests.support.quantised import Layer, chosen_by_rule, lowered, run_onnxruntime, run_untuned, write_layer
from tests.support.sums import MACHINE
from tests.support.targets import cpu_target
from tests.support.tiles import has_tiles

pytestmark = pytest.mark.tvm

TILES = "sapphirerapids"
AMX = ("amxint8", "amxtile")


def workload_of(layer: Layer) -> Any:
    """The kernel that multiplies bytes."""
    with tempfile.TemporaryDirectory() as folder:
        network, _ = lowered(write_layer(layer, Path(folder)), "cascadelake")
    multiplied = [each for each in network.workloads if "kintune.bytes" in str(each.module.script())]
    (kernel,) = [each.module for each in multiplied if not each.name.startswith("sum")]
    return kernel


def test_rows_lie_in_tiles() -> None:
    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.reading import require
    from kintune.compiler.programs.byte_products import tile_heights, tile_lines

    def lines(layer: Layer) -> Any:
        return tile_lines(require(workload_of(layer), OF_BYTES).found)

    pixels = Layer(channels=96, kernel=(1, 1), pads=(0, 0, 0, 0), height=14, width=14)
    found = lines(pixels)
    assert (found.number, found.length, found.pitch) == (1, 196, 96)
    assert tile_heights(found.length) == (14, 16)
    assert not found.image.is_copied
    strided = lines(msgspec.structs.replace(pixels, strides=(2, 2)))
    assert (strided.number, strided.length, strided.pitch, strided.through) == (7, 7, 192, False)
    short = lines(Layer(channels=64, height=28, width=28))
    assert (short.number, short.length, short.pitch) == (28, 28, 64)
    image = lines(Layer(channels=64, height=7, width=7))
    assert (image.number, image.length, image.through) == (1, 6 * 9 + 7, True)
    assert lines(Layer(channels=148, kernel=None, height=3, width=5)).image.depth == 192


def test_tiles_are_offered_where_the_target_has_them_and_rows_fill_them() -> None:
    from kintune.compiler.programs.byte_products import ByteProducts, ByteTiles
    from kintune.compiler.space.sketches import generate_sketches

    module, row = workload_of(Layer()), workload_of(Layer(channels=64, kernel=None, height=1, width=1))
    for target, names in (
        (cpu_target(TILES), ["byte_tiles", "bytes"]),
        (cpu_target(TILES, "-amx-int8"), ["bytes"]),
        (cpu_target("core-avx2"), []),
    ):
        found = [program_of(sketch).partition(".")[0] for sketch in generate_sketches("w", module, target)]
        assert [each for each in found if each] == names
        assert not ByteTiles().variants(row, target)
    with pytest.raises(BuildError, match="variant amx"):  # tiles have a program of their own
        ByteProducts().axes(module, "amx")


def chosen(network: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate by tiles of each workload that has one."""
    return chosen_by_rule(network, target, "byte_tiles", MACHINE)


@pytest.mark.parametrize(
    "layer",
    [
        Layer(channels=32, points=(3, 120), after="relu"),
        Layer(channels=20, signed=True, points=(-100, 5), kernel=None, height=5),
        Layer(channels=16, filters=40, signed=True, points=(7, -3), after="residual", strides=(2, 1)),
        Layer("qlinear", channels=12, signed_weights=False, weight_point=128, points=(10, 100)),
        Layer("integer", channels=24, points=(10, 0)),
        Layer("dynamic", channels=24, kernel=None),
    ],
)
def test_a_network_is_within_a_step_of_onnxruntime(layer: Layer, tmp_path: Path) -> None:
    written = write_layer(layer, tmp_path)
    if not has_tiles(*AMX):
        network, target = lowered(written, TILES)
        assert chosen(network, target)
        return
    programs: list[str] = []

    def choose(network: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
        found = chosen(network, target)
        programs.extend(found)
        return found

    found, expected = run_untuned(written, choose), run_onnxruntime(written)
    assert programs
    steps = abs(found.astype(np.float64) - expected.astype(np.float64))
    assert steps.max(initial=0) <= written.step * 1.001


def test_a_file_lists_what_its_kernels_need(tmp_path: Path) -> None:
    """Also for another CPU than this one."""
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    written = write_layer(Layer(channels=16), tmp_path)
    network, target = lowered(written, TILES)
    model, text = load(parse_ref(str(written.path))), resolve_target(f"llvm -mcpu={TILES}", 2)
    sketches = [sketch for sketch, _ in chosen(network, target).values()]
    assert {"amxint8", "amxtile", "avx512vnni"} <= set(described(text, sketches, model).isa)
    assert not {"amxint8", "amxtile"} & set(described(text, [], model).isa)
