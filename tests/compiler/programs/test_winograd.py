"""Winograd's convolution computes what the direct one does, and is offered for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, Sketch
from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.support.convolutions import Case, run, workload
from tests.support.examples import compiled_examples
from tests.support.targets import cpu_target

if TYPE_CHECKING:
    from tests.support.networks import RunsProgram, Small

pytestmark = pytest.mark.tvm

VARIANTS = ("4x16", "2x16")
ERRORS = {"2": 1e-5, "4": 1e-4}
"""The largest error over the largest value that each size of tiles may have."""

AFTER = (
    (),
    ("bias", "relu"),
    ("bias", "residual", "relu"),
    ("bias", "silu"),
    ("bias", "relu", "twice"),
)
MEAN = ("relu", "mean")


def programs() -> tuple[Any]:
    from kintune.compiler.programs.winograd import BlockedWinograd

    return (BlockedWinograd(),)


@pytest.mark.parametrize("after", [*AFTER, MEAN])
def test_it_is_offered_where_all_that_follows_is_computed_with_it(after: tuple[str, ...], here: Any) -> None:
    """A mean cannot be computed tile by tile."""
    (blocked,) = programs()
    offered = blocked.variants(workload(Case(after=after)), here)
    assert len(set(offered)) == len(offered) <= 2
    assert bool(offered) == ("mean" not in after)


def test_what_follows_is_computed_tile_by_tile(here: Any) -> None:
    module = workload(Case(height=7, width=9, after=("bias", "residual", "relu")))
    (blocked,) = programs()
    script = str(blocked.write(module, "4x16", ((1,), (1,), (1,), (1,))).script())
    assert script.count("T.sblock(") == 3  # with the root
    assert "pad_temp" not in script


def test_is_offered_where_zeros_cost_less_than_it_saves(here: Any) -> None:
    (blocked,) = programs()
    wide = Case(height=32, width=32, channels=96, filters=28)
    assert blocked.variants(workload(wide), here)
    for narrow in (Case(height=32, width=32, channels=3), Case(height=32, width=32, filters=1)):
        assert not blocked.variants(workload(narrow), here)


def test_it_comes_before_the_plain_sum(here: Any) -> None:
    """What is compiled without measuring has the first program, and Winograd's has less arithmetic."""
    from kintune.compiler.programs.registry import applicable

    module = workload(Case(height=32, width=32, channels=96, filters=32))
    names = [program.name for program, _, _ in applicable(module, cpu_target("znver4"))]
    assert names.index("winograd_blocked") < names.index("vectors")


def test_blocks_stay_in_the_own_cache() -> None:
    """What is transformed and does not stay there is written to memory: a block of 7 MB takes 1.45 times as long."""
    module = workload(Case(height=897, width=161, channels=64, filters=64))
    machine = Processor(8, 16, 2, (32 << 10, 512 << 10, 32 << 20))
    (blocked,) = programs()
    geometry = blocked.case(module, "4x8").g
    tiling = blocked.picked(blocked.case(module, "4x8"), blocked.rule(module, "4x8", machine)[0])
    tiles = geometry.tiles / tiling.blocks
    assert geometry.places * tiles * 4 * (geometry.channels + geometry.filters / tiling.parts) <= 512 << 10


@pytest.mark.parametrize(
    "changes",
    [
        *({"kernel": kernel} for kernel in ((1, 1), (5, 5), (3, 1), (1, 3), (2, 2))),
        *({"stride": stride} for stride in (2, (1, 2))),
        *({"dilation": dilation} for dilation in (2, (2, 1))),
    ],
    ids=str,
)
def test_is_not_offered_for_what_looks_alike(here: Any, changes: dict[str, Any]) -> None:
    module = workload(Case(12, 12, pads=(2, 2, 2, 1), after=("bias", "relu"), **changes))
    for program in programs():
        assert tuple(program.variants(module, here)) == ()
        with pytest.raises(BuildError):
            program.write(module, "4x16", ((0,),) * 4)


def test_is_not_offered_where_it_saves_nothing(here: Any) -> None:
    """One value takes a whole tile."""
    for program in programs():
        assert tuple(program.variants(workload(Case(height=1, width=1)), here)) == ()


def test_a_weight_that_another_block_reads_stays(here: Any) -> None:
    """It would be gone."""
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 8, 8, 16), name="data")
    weight = te.placeholder((3, 3, 16, 16), name="weight")
    found = topi.add(topi.nn.conv2d_nhwc(data, weight, 1, 1, 1), topi.sum(weight))
    function = te.create_prim_func([data, weight, found]).with_attr("layout_free_buffers", [1])
    for program in programs():
        assert tuple(program.variants(tvm.IRModule({"main": function}), here)) == ()


def test_two_convolutions_are_left_alone(here: Any) -> None:
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 8, 8, 16), name="data")
    first, second = (te.placeholder((3, 3, 16, 16), name=name) for name in ("first", "second"))
    found = topi.nn.conv2d_nhwc(topi.nn.conv2d_nhwc(data, first, 1, 1, 1), second, 1, 1, 1)
    function = te.create_prim_func([data, first, second, found]).with_attr("layout_free_buffers", [1, 2])
    for program in programs():
        assert tuple(program.variants(tvm.IRModule({"main": function}), here)) == ()


def test_what_a_schedule_has_changed_is_left_alone(here: Any) -> None:
    import tvm

    schedule = tvm.s_tir.Schedule(workload(Case()))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("conv2d_nhwc", func_name="main"))[1])
    for program in programs():
        assert tuple(program.variants(schedule.mod, here)) == ()


def test_vectors_have_lanes_that_the_compiler_knows() -> None:
    """LLVM computes vectors whose lanes are no power of two one by one."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    from kintune.compiler.programs.winograd import BlockedWinograd

    program, module = BlockedWinograd(), workload(Case(height=16, width=16, channels=32, filters=96))
    written = program.write(module, VARIANTS[0], ((1,), (3,), (1,), (1,)))
    lanes: set[int] = set()

    def note(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED:
            lanes.add(int(loop.extent))

    structural_walk(written["main"].body, [(tirx.For, note)])
    assert 16 in lanes
    assert all(each & (each - 1) == 0 for each in lanes)


@compiled_examples(16, deadline=None)
@given(
    st.builds(Case, height=st.integers(3, 14), width=st.integers(3, 14), after=st.sampled_from(((), ("bias",)))),
    st.sampled_from(VARIANTS),
    st.sampled_from((float("nan"), float("inf"), float("-inf"), 1e20)),
    st.integers(0, 13),
    st.integers(0, 13),
)
def test_an_extreme_value_spreads_over_the_tiles_that_read_it_alone(
    here: Any, case: Case, variant: str, value: float, row: int, column: int
) -> None:
    """A tile of m x m results reads (m + 2) x (m + 2) values; where the direct result is no number, it has none."""
    row, column, size = row % case.height, column % case.width, int(variant[0])
    (blocked,) = programs()
    module = workload(case)
    decisions = tuple(axis.values[0] for axis in blocked.axes(module, variant) or ())
    place = {(0, row, column, 3): value}
    expected = run(module, here, extremes=place)
    found = run(blocked.write(module, variant, decisions), here, written=True, extremes=place)
    reads = np.zeros(found.shape, bool)
    for top in range(0, found.shape[1], size):
        for left in range(0, found.shape[2], size):
            if top - 1 <= row <= top + size and left - 1 <= column <= left + size:
                reads[:, top : top + size, left : left + size] = True
    scale = np.abs(expected[~reads]).max(initial=16.0)  # of sums of 144 products
    assert (np.abs(found[~reads] - expected[~reads]) <= ERRORS[variant[0]] * scale).all()
    assert not np.isfinite(found[~np.isfinite(expected)]).any()


def narrow() -> Any:
    from kintune.compiler.programs.winograd import NarrowWinograd

    return NarrowWinograd()


def test_only_so_many_lines_are_asked_for_as_the_next_panel_has() -> None:
    """A panel of 64 columns and 64 channels has 128 lines, and a group of rows reads it in 32 steps."""
    module = workload(Case(height=16, width=16, channels=64, filters=128))
    for number, lines in ((1, 1), (4, 2), (16, 4)):
        decisions = ((6,), (4,), (number,), (1,))
        assert f'"kt_vdpbf16ps_6x4_ahead_{lines}_' in str(narrow().write(module, "2x16", decisions)), number


@pytest.mark.parametrize(
    ("cpu", "channels", "variants"),
    [
        ("znver4", 64, ("2x16",)),
        ("znver4", 3, ()),  # the transforms cost more than is saved
        ("sapphirerapids", 64, ()),  # which has tiles of bf16
        ("skylake-avx512", 64, ()),
        ("core-avx2", 64, ()),
    ],
)
def test_where_it_is_offered_in_bf16(cpu: str, channels: int, variants: tuple[str, ...]) -> None:
    module = workload(Case(height=14, width=14, channels=channels, filters=64))
    assert narrow().variants(module, cpu_target(cpu)) == variants


def test_saves_arithmetic() -> None:
    from kintune.compiler.programs.winograd import BlockedWinograd

    module = workload(Case(height=14, width=14, channels=64, filters=64))
    assert narrow().saved_flops(module, "2x16") == BlockedWinograd().saved_flops(module, "2x16") > 0


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    """The program's name; it is offered in both sizes wherever it can compute a convolution."""
    from kintune.compiler.programs import registry, winograd

    name = "winograd_blocked"
    found = next(each for each in registry.PROGRAMS if each.name == name)
    monkeypatch.setattr(winograd, "_BEHIND", 1e9)
    monkeypatch.setattr(registry, "PROGRAMS", (found,))
    return name


def chosen(workload: str, module: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate of each size of tiles."""
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.search.processor import Processor
    from kintune.search.sketch_program import by_program

    found = {}
    for name, sketches in by_program(generate_sketches(workload, module, target)).items():
        if name:
            space = TvmSpace({workload: module}, sketches, target, Processor(8, 16), 1)
            candidate = space.rules(workload, 1)[0]
            found[name.partition(":")[2][0]] = next(s for s in sketches if s.digest == candidate.sketch), candidate
    return found


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("size", ["4", "2"])
def test_a_network_computes_the_same(size: str, small_conv: Small, run_program: RunsProgram) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.space.packing import packing_of
    from kintune.compiler.space.replay import apply_candidate

    programs = {}
    for each in small_conv.lowered.workloads:
        found = chosen(each.digest, each.module, small_conv.target)
        if size in found:
            programs[each.digest] = found[size]
            assert packing_of(apply_candidate(each.module, *found[size], small_conv.target))
    assert len(programs) >= 1
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tensor.shape, np.float32) for tensor in small_conv.model.inputs]
    plain, tuned = (assemble(small_conv.lowered, c, small_conv.target) for c in ({}, programs))
    assert sum(w.numpy().size for w in tuned.weights) > sum(w.numpy().size for w in plain.weights)
    for ours, theirs in zip(run_program(tuned, *inputs), run_program(plain, *inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_arithmetic_is_less_than_the_workload_s() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.registry import flops_of, least_flops

    described = describe("conv", workload(Case(height=28, width=28, channels=128, filters=128)))
    names = [f"winograd_blocked.5:{variant}" for variant in ("4x16", "2x16")]
    four, two = (flops_of(described.module, described.flops, name) for name in names)
    assert 0.25 * described.flops < four < 0.35 * described.flops < two < 0.6 * described.flops
    assert least_flops(described.module, described.flops, [*names, ""]) == four
    assert flops_of(described.module, described.flops, "") == described.flops
