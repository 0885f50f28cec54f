"""The programs for products of bytes compute exactly what the untuned program does, by each instruction."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, Sketch
from kintune.errors import BuildError
from kintune.search.processor import Processor
from kintune.search.sketch_program import precision_of, program_of
from tests.compiler.programs.test_panel_network import described
from tests.support.examples import compiled_examples
from tests.support.large import COLUMNS, DEPTH, large_product, sums_of_rows
from tests.support.quantised import (
    Layer,
    Matrices,
    chosen_by_rule,
    lowered,
    run_onnxruntime,
    run_untuned,
    write_layer,
    write_matrices,
)
from tests.support.targets import cpu_target, native_target
from tests.support.tiles import has_tiles, runnable_tiles

pytestmark = pytest.mark.tvm

CPU, TILES = "cascadelake", "sapphirerapids"
AMX = ("amxint8", "amxtile")
ON_ARM = {
    f"{cpu} -mtriple=aarch64-linux-gnu": variant for cpu, variant in (("neoverse-n2", "usdot"), ("cortex-a76", "sdot"))
}
VARIANTS = {CPU: "vnni", TILES: "amx", "alderlake": "vnni256", **ON_ARM}
MACHINE = Processor(lanes=16, registers=32, threads=2, caches=(48 << 10, 2 << 20, 64 << 20))


def program_of_variant(variant: str) -> Any:
    from kintune.compiler.programs.byte_products import AMX, ByteProducts, ByteTiles

    return ByteTiles() if variant == AMX else ByteProducts()


def workload_of(layer: Layer | Matrices, cpu: str = CPU) -> tuple[Any, Any]:
    """The kernel that multiplies bytes, and its target."""
    write: Any = write_layer if isinstance(layer, Layer) else write_matrices
    with tempfile.TemporaryDirectory() as folder:
        network, target = lowered(write(layer, Path(folder)), cpu)
    multiplied = [each for each in network.workloads if "kintune.bytes" in str(each.module.script())]
    (kernel,) = [each.module for each in multiplied if not each.name.startswith("sum")]
    return kernel, target


def multiplies_bytes(cpu: str = CPU) -> bool:
    """Whether this machine runs what is written for the CPU."""
    from tvm.target import codegen

    needed = {CPU: ("avx512vnni",), TILES: ("avx512vnni",), "alderlake": ("avxvnni", "avx512vnni")}.get(cpu, ())
    return any(codegen.target_has_features(each, native_target()) for each in needed)


def run(module: Any) -> np.ndarray[Any, Any]:
    """What a module computes of drawn operands, the weights among them in their own layout."""
    import tvm

    random = np.random.default_rng(3)
    arrays = []
    for parameter in module["main"].params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), np.dtype(str(parameter.dtype))
        if dtype.kind == "f":
            drawn = (random.standard_normal(shape) * 0.01).astype(dtype)
        elif dtype.itemsize == 1:
            drawn = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        else:
            drawn = random.integers(-999, 1000, shape).astype(dtype)
        arrays.append(tvm.runtime.tensor(drawn))
    tvm.compile(module, native_target())["main"](*arrays)
    return np.asarray(arrays[-1].numpy())


def agree(layer: Layer | Matrices, draw: Any, cpu: str = CPU) -> None:
    from kintune.compiler.space.generator import default_schedule

    module, target = workload_of(layer, cpu)
    variant = VARIANTS[cpu]
    program = program_of_variant(variant)
    assert program.variants(module, target) in ((variant,), ())  # little is left to vectors
    decisions = tuple(axis.values[draw(len(axis.values))] for axis in program.axes(module, variant) or ())
    with runnable_tiles(*AMX):
        try:
            written = program.write(module, variant, decisions)
        except BuildError:
            decisions = program.rule(module, variant, MACHINE)[draw(3) % 3]
            written = program.write(module, variant, decisions)
    if not multiplies_bytes(cpu):
        assert 'call_extern("int32", "kt_' in str(written.script())
        return
    np.testing.assert_array_equal(run(written), run(default_schedule(module, native_target())), err_msg=str(decisions))


def layers() -> st.SearchStrategy[Layer]:
    def whole(layer: Layer) -> Layer:
        return msgspec.structs.replace(layer, points=(layer.points[0], layer.points[1]))

    return st.builds(
        Layer,
        form=st.sampled_from(("qdq", "integer", "dynamic")),
        channels=st.integers(1, 40),
        filters=st.integers(1, 70),
        height=st.integers(3, 12),
        width=st.integers(3, 12),
        kernel=st.sampled_from((None, (1, 1), (3, 3), (1, 3), (2, 2))),
        strides=st.sampled_from(((1, 1), (2, 2), (1, 2))),
        dilations=st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 2))),
        pads=st.sampled_from(((1, 1, 1, 1), (2, 2, 2, 2), (4, 4, 4, 4), (2, 3, 4, 5), (0, 0, 0, 0))),
        points=st.tuples(st.integers(0, 255), st.integers(0, 255)),
        signed_weights=st.booleans(),
        after=st.sampled_from(("", "relu", "hard", "residual")),
        seed=st.integers(0, 99),
    ).map(whole)


def has_a_place(layer: Layer) -> bool:
    if layer.kernel is None:
        return True
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(layer.kernel, layer.dilations, strict=True)]
    return layer.height + layer.pads[0] + layer.pads[2] >= reach[0] and layer.width + sum(layer.pads[1::2]) >= reach[1]


@compiled_examples(24, deadline=None, phases=[Phase.generate])
@given(layers().filter(has_a_place), st.sampled_from((CPU, TILES, TILES, "alderlake")), st.data())
def test_any_layer_and_decisions(layer: Layer, cpu: str, data: st.DataObject) -> None:
    agree(layer, lambda count: data.draw(st.integers(0, count - 1)), cpu)


@st.composite
def matrices(draw: Any) -> Matrices:
    """Products of computed matrices, of which the second ones may be as many as the first ones."""
    rows, depth, columns = (draw(st.integers(1, 40)) for _ in range(3))
    batches = draw(st.sampled_from(((), (3,), (2, 2))))
    right = draw(st.sampled_from((batches, ())))
    points = draw(st.tuples(st.integers(0, 255), st.integers(0, 255)))
    return Matrices((*batches, rows, depth), (*right, depth, columns), points=points)


@compiled_examples(10, deadline=None, phases=[Phase.generate])
@given(matrices(), st.sampled_from((CPU, "alderlake")), st.data())
def test_computed_matrices_and_any_decisions(product: Matrices, cpu: str, data: st.DataObject) -> None:
    agree(product, lambda count: data.draw(st.integers(0, count - 1)), cpu)


@pytest.mark.parametrize("cpu", VARIANTS)
@pytest.mark.parametrize(
    "layer",
    [
        Layer(channels=64, filters=64, points=(0, 0), after="relu"),
        Layer(channels=3, filters=32, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), height=20, width=22),
        Layer(channels=148, filters=33, kernel=None, height=5, width=7, points=(9, 7)),
        Layer(channels=148, filters=33, height=7, width=7, points=(9, 7)),
        Layer(channels=96, filters=24, kernel=(1, 1), pads=(0, 0, 0, 0), height=28, width=28, after="residual"),
        Layer("dynamic", channels=64, filters=100, height=100, kernel=(3,), signed_weights=False, weight_point=178),
    ],
)
def test_the_first_candidates(layer: Layer, cpu: str) -> None:
    module, _ = workload_of(layer, cpu)
    assert len(program_of_variant(VARIANTS[cpu]).rule(module, VARIANTS[cpu], MACHINE)) >= 8
    agree(layer, lambda count: 0, cpu)
    agree(layer, lambda count: count - 1, cpu)


@pytest.mark.parametrize("cpu", [cpu for cpu in VARIANTS if cpu != TILES])
def test_batches_have_weights_of_their_own(cpu: str) -> None:
    agree(Matrices((4, 60, 64), (4, 64, 96), points=(128, 9)), lambda count: count // 2, cpu)


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        (CPU, r"vpdpbusd.*zmm"),
        (TILES, r"tdpbusd\s+%tmm"),
        ("alderlake", r"vpdpbusd.*ymm"),
        *((cpu, rf"\t{name}\t") for cpu, name in ON_ARM.items()),
    ],
)
def test_the_instruction_is_that_of_the_processor(cpu: str, instruction: str) -> None:
    import tvm

    module, target = workload_of(Layer(channels=64, filters=64), cpu)
    program = program_of_variant(VARIANTS[cpu])
    written = program.write(module, VARIANTS[cpu], program.rule(module, VARIANTS[cpu], MACHINE)[0])
    assert re.search(instruction, tvm.compile(written, target).mod.inspect_source("asm"))


@pytest.mark.parametrize(("variant", "number"), [("vnni", 6), ("amx", 7)])
def test_decisions_that_make_no_program_are_refused(variant: str, number: int) -> None:
    module, _ = workload_of(Layer(filters=64))
    program = program_of_variant(variant)
    axes = program.axes(module, variant) or ()
    with pytest.raises(BuildError, match=r"the tiling (\w+=\d+ )+does not fit"):
        program.write(module, variant, tuple(axis.values[-1] for axis in axes))
    with pytest.raises(BuildError, match=f"{number} decisions, not 1"):
        program.write(module, variant, ((0,),))


@pytest.mark.parametrize("cpu", [CPU, TILES])
def test_data_may_be_larger_than_two_gibibytes(cpu: str) -> None:
    from tvm import relax

    if not multiplies_bytes(cpu):
        pytest.skip("this CPU multiplies no bytes")
    weights = np.ones((DEPTH, COLUMNS), np.int32)

    def emit(builder: Any, data: Any) -> Any:
        return relax.op.matmul(builder.emit(relax.op.astype(data, "int32")), relax.const(weights))

    module, variant = large_product("uint8", emit), VARIANTS[cpu]
    program = program_of_variant(variant)
    with runnable_tiles(*AMX):
        written = program.write(module, variant, program.rule(module, variant, MACHINE)[0])
    assert sums_of_rows(written).tolist() == [[DEPTH * times] * COLUMNS for times in (1, 0, 0, 3)]


def test_rows_lie_in_tiles() -> None:
    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.reading import require
    from kintune.compiler.programs.byte_products import tile_heights, tile_lines

    def lines(layer: Layer) -> Any:
        return tile_lines(require(workload_of(layer)[0], OF_BYTES).found)

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


def test_each_is_offered_where_the_target_has_its_instruction() -> None:
    from kintune.compiler.programs.byte_products import ByteProducts
    from kintune.compiler.programs.registry import instructions_of
    from kintune.compiler.space.sketches import generate_sketches
    from tests.support.convolutions import Case, workload

    module, _ = workload_of(Layer())
    row, _ = workload_of(Layer(channels=64, kernel=None, height=1, width=1))
    for target, names in (
        (cpu_target(TILES), ["byte_tiles", "bytes"]),
        (cpu_target(TILES, "-amx-int8"), ["bytes"]),
        (cpu_target(CPU), ["bytes"]),
        (cpu_target("core-avx2"), []),
    ):
        sketches = generate_sketches("w", module, target)
        found = [program_of(sketch).partition(".")[0] for sketch in sketches]
        assert [each for each in found if each] == names
        assert {precision_of(sketch) for sketch in sketches} == {"fp32"}  # all compute the same
        needed = [instructions_of(program_of(sketch)) for sketch in sketches if program_of(sketch)]
        assert needed == [AMX if name == "byte_tiles" else () for name in names]
        assert not program_of_variant("amx").variants(row, target)
        assert not ByteProducts().variants(workload(Case()), target)
    for variant in ("vnni128", "amx"):  # tiles have a program of their own
        with pytest.raises(BuildError, match=f"variant {variant}"):
            ByteProducts().axes(module, variant)


@pytest.mark.parametrize("variant", ["vnni", "amx"])
def test_equal_weights_stay_equal_when_packed(variant: str) -> None:
    """Measurements fill them with one value, in whatever form they are."""
    from kintune.compiler.space.packing import computes_packing

    module, _ = workload_of(Layer(channels=5, filters=19))
    program = program_of_variant(variant)
    assert not computes_packing(program.write(module, variant, program.rule(module, variant, MACHINE)[0]))


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
