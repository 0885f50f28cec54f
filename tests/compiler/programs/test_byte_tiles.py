"""The program for products of bytes by AMX computes exactly what the untuned program does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, Sketch
from kintune.errors import BuildError
from kintune.hardware.amx import permit_amx
from kintune.hardware.cpu import host_extensions
from kintune.search.processor import Processor
from kintune.search.sketch_program import precision_of, program_of
from tests.compiler.programs.test_byte_products import MACHINE, has_a_place, large_bytes, layers, run, workload_of
from tests.compiler.programs.test_panel_network import described
from tests.support.examples import compiled_examples
from tests.support.large import COLUMNS, DEPTH, sums_of_rows
from tests.support.quantised import Layer, chosen_by_rule, lowered, run_onnxruntime, run_untuned, write_layer
from tests.support.targets import cpu_target, native_target

pytestmark = pytest.mark.tvm

CPU = "sapphirerapids"
SERVER = Processor(lanes=16, registers=32, threads=2, caches=(48 << 10, 2 << 20, 64 << 20))


def has_tiles() -> bool:
    """Whether this CPU multiplies tiles of bytes."""
    return {"amxint8", "amxtile", "avx512vnni"}.issubset(host_extensions() or ()) and permit_amx()


def agree(layer: Layer, draw: Any) -> None:
    from kintune.compiler.programs.byte_tiles import AMX, ByteTiles
    from kintune.compiler.space.generator import default_schedule

    module, _ = workload_of(layer)
    program = ByteTiles()
    decisions = tuple(axis.values[draw(len(axis.values))] for axis in program.axes(module, AMX) or ())
    try:
        written = program.write(module, AMX, decisions)
    except BuildError:
        decisions = program.rule(module, AMX, MACHINE)[draw(3) % 3]
        written = program.write(module, AMX, decisions)
    if not has_tiles():
        assert 'call_extern("int32", "kt_tdpbusd' in str(written.script())
        return
    np.testing.assert_array_equal(run(written), run(default_schedule(module, native_target())), err_msg=str(decisions))


@compiled_examples(15, deadline=None, phases=[Phase.generate])
@given(layers().filter(has_a_place), st.data())
def test_any_layer_and_decisions(layer: Layer, data: st.DataObject) -> None:
    agree(layer, lambda count: data.draw(st.integers(0, count - 1)))


@pytest.mark.parametrize(
    "layer",
    [
        Layer(channels=64, filters=64, points=(0, 0), after="relu"),
        Layer(channels=3, filters=32, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), height=20, width=22),
        Layer(channels=32, filters=100, kernel=None, height=3, width=15),
        Layer(channels=148, filters=33, kernel=None, height=5, width=7, points=(9, 7)),
        Layer(channels=148, filters=33, height=7, width=7, points=(9, 7)),
        Layer(channels=96, filters=24, kernel=(1, 1), pads=(0, 0, 0, 0), height=28, width=28, after="residual"),
    ],
)
def test_the_first_candidates(layer: Layer) -> None:
    from kintune.compiler.programs.byte_tiles import AMX, ByteTiles

    module, _ = workload_of(layer)
    assert len(ByteTiles().rule(module, AMX, SERVER)) >= 8
    agree(layer, lambda count: 0)
    agree(layer, lambda count: count - 1)


@pytest.mark.skipif("not has_tiles()", reason="this CPU has no tiles")
def test_data_may_be_larger_than_two_gibibytes() -> None:
    from kintune.compiler.programs.byte_tiles import AMX, ByteTiles

    module = large_bytes()
    written = ByteTiles().write(module, AMX, ByteTiles().rule(module, AMX, SERVER)[0])
    assert sums_of_rows(written).tolist() == [[DEPTH * times] * COLUMNS for times in (1, 0, 0, 3)]


def test_rows_lie_in_tiles() -> None:
    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.reading import joined
    from kintune.compiler.programs.byte_tile_form import heights_of, tile_form

    def form(layer: Layer) -> Any:
        found = joined(workload_of(layer)[0], OF_BYTES)
        assert found is not None
        return tile_form(found[1])

    pixels = Layer(channels=96, kernel=(1, 1), pads=(0, 0, 0, 0), height=14, width=14)
    workload, found = form(pixels)
    assert (found.lines, found.length, found.pitch, found.steps, found.quads) == (1, 196, 96, 2, 12)
    assert heights_of(found) == (14, 16)
    assert not workload.is_copied
    strided = form(msgspec.structs.replace(pixels, strides=(2, 2)))[1]
    assert (strided.lines, strided.length, strided.pitch, strided.through) == (7, 7, 192, False)
    lines = form(Layer(channels=64, height=28, width=28))[1]
    assert (lines.lines, lines.length, lines.pitch, lines.steps) == (28, 28, 64, 9)
    image = form(Layer(channels=64, height=7, width=7))[1]
    assert (image.lines, image.length, image.through) == (1, 6 * 9 + 7, True)
    odd, filled = form(Layer(channels=148, kernel=None, height=3, width=5))
    assert (odd.depth, filled.steps, filled.quads) == (192, 3, 16)


def test_decisions_that_make_no_program_are_refused() -> None:
    from kintune.compiler.programs.byte_tiles import AMX, ByteTiles

    module, _ = workload_of(Layer(filters=64))
    program = ByteTiles()
    axes = program.axes(module, AMX) or ()
    with pytest.raises(BuildError, match="do not fit"):
        program.write(module, AMX, tuple(axis.values[-1] for axis in axes))
    with pytest.raises(BuildError, match="7 decisions, not 1"):
        program.write(module, AMX, ((0,),))


def test_it_is_offered_beside_vectors_where_the_target_has_tiles() -> None:
    from kintune.compiler.programs.byte_tiles import ByteTiles
    from kintune.compiler.programs.registry import instructions_of
    from kintune.compiler.space.sketches import generate_sketches

    module, _ = workload_of(Layer())
    for target, names in (
        (cpu_target(CPU), ["byte_tiles", "bytes"]),
        (cpu_target(CPU, "-amx-int8"), ["bytes"]),
        (cpu_target("cascadelake"), ["bytes"]),
    ):
        sketches = generate_sketches("w", module, target)
        assert [program_of(sketch).partition(".")[0] for sketch in sketches] == names
        assert {precision_of(sketch) for sketch in sketches} == {"fp32"}  # both compute the same
        needed = [instructions_of(program_of(sketch)) for sketch in sketches]
        assert needed == [("amxint8", "amxtile") if name == "byte_tiles" else () for name in names]
    row, _ = workload_of(Layer(channels=64, kernel=None, height=1, width=1))
    assert not ByteTiles().variants(row, cpu_target(CPU))


def test_equal_weights_stay_equal_when_packed() -> None:
    """Measurements fill them with one value, in whatever form they are."""
    from kintune.compiler.programs.byte_tiles import AMX, ByteTiles

    module, _ = workload_of(Layer(channels=5, filters=19))
    copied_first = (*ByteTiles().rule(module, AMX, MACHINE)[0][:-1], (0,))
    written = ByteTiles().write(module, AMX, copied_first)
    text = str(written.script())
    packing = text[text.index("packed_bytes") : text.index("bordered_bytes")]
    assert "T.if_then_else" not in packing
    assert "T.Select" not in packing


def chosen(network: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate by tiles of each workload that has one."""
    return chosen_by_rule(network, target, "byte_tiles", SERVER)


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
    if not has_tiles():
        network, target = lowered(written, CPU)
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
    network, target = lowered(written, CPU)
    model, text = load(parse_ref(str(written.path))), resolve_target(f"llvm -mcpu={CPU}", 2)
    sketches = [sketch for sketch, _ in chosen(network, target).values()]
    assert {"amxint8", "amxtile", "avx512vnni"} <= set(described(text, sketches, model).isa)
    assert not {"amxint8", "amxtile"} & set(described(text, [], model).isa)
