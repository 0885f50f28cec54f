"""Sums in panels compute what the workload computes, up to the rounding of bf16; each kind that this CPU has."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, NamedChoice
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.outcome import Status
from kintune.core.stage_requests import ProfileContext, ProfileItem
from kintune.errors import BuildError
from kintune.hardware.amx import permit_amx
from kintune.hardware.cpu import host_extensions
from kintune.search.processor import Processor
from kintune.search.sketch_program import precision_of, program_of
from tests.support.convolutions import Case, run, workload
from tests.support.examples import compiled_examples
from tests.support.products import product
from tests.support.tiles import runnable_tiles

pytestmark = pytest.mark.tvm

NARROW = frozenset({"bf16"})
ERROR = 6e-3
"""The norm of the difference over that of the result, at most."""

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long

SAPPHIRE_RAPIDS = {"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2}
CORTEX_A76 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 2}


def kinds() -> list[str]:
    """The kinds of inner kernels that this CPU can run."""
    has = set(host_extensions() or ())
    found = ["dot"] if has.issuperset({"avx512f", "avx512bf16"}) else []
    return found + (["amx"] if has.issuperset({"amxtile", "amxbf16", "avx512bf16"}) and permit_amx() else [])


def agree(module: Any, target: Any, draw: Any = None) -> None:
    """Compare each kind with the untuned program, with decisions that `draw` takes out of so many.

    Tiles are compared where they are made of vectors, too.
    """
    from kintune.compiler.programs.panel_sum import NarrowPanels

    expected, found_here, program = run(module, target), kinds(), NarrowPanels()
    for kind in (*found_here, *(["amx"] if "dot" in found_here and "amx" not in found_here else [])):
        axes = program.axes(module, kind) or ()
        decisions = tuple(axis.values[draw(len(axis.values)) if draw else 0] for axis in axes)
        with runnable_tiles("amxtile", "amxbf16", "avx512bf16"):
            written = program.write(module, kind, decisions)
        found = run(written, target, written=True)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error <= ERROR, (kind, decisions, error)


@compiled_examples(9, deadline=None, phases=PHASES)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=3).filter(lambda shape: np.prod(shape) <= 300),
    st.integers(1, 140),
    st.integers(1, 200),
    st.booleans(),
    st.data(),
)
def test_products_of_any_size(
    here: Any, shape: list[int], columns: int, reduced: int, epilogue: bool, data: st.DataObject
) -> None:
    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue)
    agree(module, here, lambda number: data.draw(st.integers(0, number - 1)))


@compiled_examples(12, deadline=None, phases=PHASES)
@given(
    st.builds(
        Case,
        height=st.integers(13, 20),
        width=st.integers(13, 20),
        channels=st.sampled_from([1, 3, 8, 16, 20, 32, 40]),
        filters=st.sampled_from([1, 5, 16, 32, 33, 70]),
        images=st.integers(1, 2),
        kernel=st.sampled_from([(1, 1), (3, 3), (1, 3), (5, 2), (7, 7)]),
        stride=st.sampled_from([1, 2, (2, 1)]),
        dilation=st.sampled_from([1, 1, (1, 2), 2]),
        pads=st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3)]),
        after=st.sampled_from([(), ("bias", "relu"), ("bias", "residual", "relu"), ("bias", "silu"), ("twice",)]),
    ).filter(lambda case: case.kernel != (1, 1) or not any(case.pads)),
    st.data(),
)
def test_convolutions_of_any_kind(here: Any, case: Case, data: st.DataObject) -> None:
    module = workload(case)
    agree(module, here, lambda number: data.draw(st.integers(0, number - 1)))


@pytest.mark.parametrize(("width", "left"), [(1, 4), (2, 3), (5, 40)])
def test_all_that_is_read_of_a_line_may_be_padding(here: Any, width: int, left: int) -> None:
    pads = (1, left, 1, left)
    agree(workload(Case(13, width, channels=32, stride=(1, 2 * left + width), pads=pads, after=("bias",))), here)


def test_a_spectrum_is_a_sum_in_panels(here: Any) -> None:
    """A kernel longer than its steps, along the only channel: rows overlap."""
    agree(workload(Case(1, 700, channels=1, filters=33, kernel=(1, 64), stride=(1, 16))), here)


def test_weights_may_lie_across(here: Any) -> None:
    import tvm
    from tvm import te

    a, w = te.placeholder((33, 70), name="a"), te.placeholder((50, 70), name="w")
    k = te.reduce_axis((0, 70), name="k")
    out = te.compute((33, 50), lambda i, j: te.sum(a[i, k] * w[j, k], axis=k), name="matmul")
    function = te.create_prim_func([a, w, out], index_dtype_override="int64").with_attr("layout_free_buffers", [1])
    agree(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), here)


@pytest.mark.parametrize(
    ("rows", "columns", "calls"),
    [
        (128, 64, ["4 kt_tdpbf16ps_2x2_ahead_8"]),
        (48, 64, ["1 kt_tdpbf16ps_2x2_ahead_16", "1 kt_tdpbf16ps_1x2_ahead_16"]),
        (32, 64, ["1 kt_tdpbf16ps_2x2_ahead_32"]),
        (1088, 64, ["32 kt_tdpbf16ps_2x2_ahead_1", "2 kt_tdpbf16ps_2x2"]),  # more groups than lines
        (128, 32, ["4 kt_tdpbf16ps_2x2"]),  # there is no next panel
    ],
)
def test_groups_of_rows_ask_for_all_of_the_next_panel(rows: int, columns: int, calls: list[str]) -> None:
    """A step reads 2048 bytes of a panel, 32 lines: so many do the groups ask for together."""
    from kintune.compiler.programs.panel_sum import NarrowPanels

    module = product(rows, columns=columns, reduced=64)
    units, parts, _ = (axis.values for axis in NarrowPanels().axes(module, "amx") or ())
    assert (units[-1], parts[0]) == ((rows // 16,), (1,))
    written = str(NarrowPanels().write(module, "amx", (units[-1], (1,), (1,)))["main"])
    found, extent = [], 1
    for line in map(str.strip, written.splitlines()):
        if loop := re.fullmatch(r"for group in range\(T.int64\((\d+)\)\):", line):
            extent = int(loop[1])
        elif call := re.match(r'T\.call_extern\("int32", "(kt_tdpbf16ps_\dx2\w*)_[0-9a-f]{16}"', line):
            found.append(f"{extent} {call[1]}")
            extent = 1
    assert found == calls


def test_what_is_no_such_sum_is_left_alone() -> None:
    from kintune.compiler.programs.panel_sum import NarrowPanels

    for module in (
        workload(Case(channels=32, filters=32, groups=2)),
        workload(Case(weight=False)),
        workload(Case(before="relu")),
        workload(Case(after=("relu", "mean"))),
    ):
        assert NarrowPanels().variants(module, _target(SAPPHIRE_RAPIDS)) == ()
        with pytest.raises(BuildError):
            NarrowPanels().write(module, "amx", ((0,), (0,), (0,)))
    with pytest.raises(BuildError, match="3 decisions"):
        NarrowPanels().write(workload(Case(channels=32)), "amx", ())
    with pytest.raises(BuildError, match="no variant fma"):
        NarrowPanels().axes(workload(Case(channels=32)), "fma")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (SAPPHIRE_RAPIDS, ["amx"]),
        ({**SAPPHIRE_RAPIDS, "mattr": ["-amx-bf16"]}, ["dot"]),
        ({"kind": "llvm", "mcpu": "znver4", "num-cores": 2}, ["dot"]),
        ({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}, []),
        ({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}, []),
        ({**CORTEX_A76, "mattr": ["+bf16"]}, ["bfdot"]),
        (CORTEX_A76, []),
    ],
)
def test_instructions_are_those_of_the_target(target: dict[str, Any], kind: list[str]) -> None:
    from kintune.compiler.programs.registry import instructions_of
    from kintune.compiler.space.sketches import generate_sketches

    module = product(64, columns=64, reduced=64)
    sketches = generate_sketches("w", module, _target(target), NARROW)
    narrow = [sketch for sketch in sketches if precision_of(sketch) == "bf16"]
    assert [program_of(sketch).partition(":")[2] for sketch in narrow] == kind
    needed = "bf16" if kind == ["bfdot"] else "avx512bf16"
    assert all(needed in instructions_of(program_of(sketch)) for sketch in narrow)
    assert not any(instructions_of(program_of(sketch)) for sketch in sketches if sketch not in narrow)
    plain = generate_sketches("w", module, _target(target))
    assert plain == tuple(sketch for sketch in sketches if sketch not in narrow)
    assert all(precision_of(sketch) == "fp32" and b"precision" not in sketch.trace for sketch in plain)


@pytest.mark.parametrize("case", [None, Case(height=14, width=14, channels=64, filters=64, after=("bias", "relu"))])
def test_candidates_have_features(case: Case | None) -> None:
    from kintune.compiler.space.packing import packing_of
    from kintune.compiler.space.replay import apply_candidate
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace

    module = workload(case) if case else product(197, columns=96, reduced=128)
    target = _target(SAPPHIRE_RAPIDS)
    sketches = [s for s in generate_sketches("w", module, target, NARROW) if precision_of(s) == "bf16"]
    space = TvmSpace({"w": module}, sketches, target, Processor(16, 32, 2), 1)
    candidates = space.rules("w", 6)
    assert len(candidates) == 6
    drafts = space.verify(candidates)
    assert all(draft is not None and np.isfinite(draft.features).all() for draft in drafts)
    assert len({packing_of(apply_candidate(module, sketches[0], each, target)) for each in candidates}) == 1


def test_first_candidates_divide_the_work() -> None:
    """Two threads have the same number of tasks, and no panel is computed for nothing."""
    from kintune.compiler.programs.panel_sum import NarrowPanels

    module = product(128, columns=768, reduced=768)
    program = NarrowPanels()
    for threads in (1, 2):
        machine = Processor(16, 32, threads, (48 << 10, 2 << 20, 64 << 20))
        (units,), (parts,), _ = program.rule(module, "amx", machine)[0]
        tasks = -(-8 // units) * parts
        assert tasks % threads == 0


def test_a_candidate_is_compared_with_the_untuned_program_by_norm(native: str) -> None:
    import tvm

    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.hardware.cores import choose_cores
    from kintune.measure.interference import InterferenceFilter
    from kintune.measure.run import Runner

    target = tvm.target.Target(json.loads(native))
    for module in (product(33, columns=50, reduced=100), workload(Case(height=9, filters=40, after=("bias", "relu")))):
        reference = build_candidate(target, save_workload(module), None, Candidate.untuned("w"))
        runner = Runner(choose_cores(1), interference=InterferenceFilter(waited=lambda: 0.0))
        context = ProfileContext(
            MeasurementProtocol(threads=1, repeats=2, max_seconds=0.01), {"w": reference}, 0.0, 0.0
        )
        runner.begin(context)
        for sketch in generate_sketches("w", module, target, NARROW):
            if precision_of(sketch) == "bf16":
                decisions = tuple(axis.values[0] for axis in sketch.axes if isinstance(axis, NamedChoice))
                built = build_candidate(target, save_workload(module), sketch, Candidate("w", sketch.digest, decisions))
                assert built.precision == "bf16"
                assert "avx512bf16" in built.instructions
                assert [each.dtype for each in built.operands if each.role == "weight"] == ["bfloat16"]
                outcome = runner.profile(ProfileItem("w", built))
                assert outcome.status is Status.OK, outcome.cause


def _target(target: dict[str, Any]) -> Any:
    import tvm

    return tvm.target.Target(target)
