"""Programs of sums of products, from one table: each computes what numpy computes, at all edges of its tiles.

The cases are the programs with their instructions (`WRITERS`) by the kinds of sums (`SUMS`), which are drawn by shape,
edge and what follows; decisions are drawn, too.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, fits
from kintune.errors import BuildError
from kintune.search.sketch_program import precision_of, program_of
from tests.support import bf16
from tests.support.convolutions import Case
from tests.support.examples import compiled_examples
from tests.support.interpreter import computed
from tests.support.large import COLUMNS, DEPTH, large_product, sums_of_rows
from tests.support.sums import (
    MACHINE,
    NARROW,
    SUMS,
    WORTH,
    WRITERS,
    Image,
    Writer,
    built,
    drawn_operands,
    extreme_operands,
    runs_here,
)
from tests.support.tiles import runnable_tiles

pytestmark = pytest.mark.tvm

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long
AMX = ("amxtile", "amxbf16", "amxint8")
OFFERED = [each for each in WRITERS if each.cpu]


def named(value: Any) -> str:
    """How a case of a table is called."""
    return f"{value.program}-{value.variant}" if isinstance(value, Writer) else str(value)


def target_of(writer: Writer) -> Any:
    import json

    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target(f"llvm -mcpu={writer.cpu}", 2)))


def drawn_decisions(writer: Writer, module: Any, data: st.DataObject) -> Any:
    """Decisions that make a program, drawn from all, or, where three draws make none, from the first candidates."""
    axes = writer.made.axes(module, writer.variant)
    for _ in range(3):
        decisions = tuple(data.draw(st.sampled_from(axis.values)) for axis in axes)
        try:
            writer.made.write(module, writer.variant, decisions)
        except BuildError as error:
            assert re.search("not fit|whole", str(error))  # noqa: PT017
            continue
        return decisions
    return data.draw(st.sampled_from(writer.made.rule(module, writer.variant, MACHINE)[:3]))


def agree(writer: Writer, module: Any, decisions: Any, seed: int, *, proven: bool) -> None:
    """Compare what a program computes with numpy, by the norm of the difference; bytes exactly.

    So are bytes at extremes.  An infinity or NaN among floats changes the sums that read it, and no others; but for
    Winograd's convolution (`test_winograd`).  Where this CPU has no such instructions, the program is only written.
    """
    with runnable_tiles(*AMX):
        written = writer.made.write(module, writer.variant, decisions)
        if not runs_here(writer):
            assert 'call_extern("int32", "kt_' in str(written.script())
            return
        arrays = drawn_operands(module)
        extremes = extreme_operands(arrays, np.random.default_rng(seed))
        run = built(written, proven=proven)
        found, at_extremes = run(arrays), run(extremes)
    with np.errstate(all="ignore"):
        expected, of_extremes = computed(module, arrays), computed(module, extremes)
    if not writer.error:
        np.testing.assert_array_equal(found, expected, err_msg=str(decisions))
        np.testing.assert_array_equal(at_extremes, of_extremes, err_msg=str(decisions))
        return
    error = np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)
    assert error <= writer.error, (writer, decisions, error)
    if not writer.program.startswith("winograd"):
        same = expected == of_extremes
        np.testing.assert_array_equal(at_extremes[same], found[same], err_msg=str(decisions))
        assert "T.max" in module.script() or not np.isfinite(at_extremes[~same]).any()


PROVEN = {"bytes", "batched bytes", "few bits", "few bits of a norm", "rows of a norm"}
"""Kinds of sums of which all accesses are proven to be in bounds at all edges, not only at most."""

CASES = [(writer, kind) for writer in WRITERS for kind in writer.sums]


@pytest.mark.parametrize(("writer", "kind"), CASES, ids=named)
@compiled_examples(8, deadline=None, phases=PHASES)
@given(data=st.data())
def test_each_program_computes_each_kind_of_sums(writer: Writer, kind: str, data: st.DataObject) -> None:
    module = data.draw(SUMS[kind]).module()
    try:
        decisions = drawn_decisions(writer, module, data)
    except BuildError as error:
        assert "no register tile" in str(error)  # noqa: PT017
        return
    agree(writer, module, decisions, data.draw(st.integers(0, 1 << 16)), proven=kind in PROVEN)


@pytest.mark.parametrize(("writer", "kind"), CASES, ids=named)
def test_the_first_candidates_are_many_and_fit(writer: Writer, kind: str) -> None:
    """All differ, and the first can be written, with weights in another order and otherwise as they are."""
    from kintune.compiler.space.packing import computes_packing

    module, program = WORTH[kind].module(), writer.made
    found, axes = program.rule(module, writer.variant, MACHINE), program.axes(module, writer.variant)
    assert (1 if kind == "few positions" else 4) <= len(found) == len(set(found))
    assert all(fits(axes, decisions) for decisions in found)
    written = program.write(module, writer.variant, found[0])
    assert program.name.startswith(("winograd", "narrow")) or not computes_packing(written)
    assert "pad_temp" not in written.script() or writer.program == "bytes"


def alike(writer: Writer) -> set[str]:
    """The kinds of sums that a program computes; a convolution of three by three is one."""
    return {*writer.sums, *(["three by three"] if "convolution" in writer.sums else [])}


@pytest.mark.parametrize("writer", OFFERED, ids=named)
def test_each_program_is_offered_for_its_sums_and_its_target_alone(writer: Writer) -> None:
    import tvm

    from kintune.compiler.programs.registry import applicable

    program, target = writer.made, target_of(writer)
    offered = {kind for kind, each in WORTH.items() if writer.variant in program.variants(each.module(), target)}
    assert offered == alike(writer)
    assert list(applicable(WORTH[writer.sums[0]].module(), tvm.target.Target("nvidia/nvidia-a100"), NARROW)) == []


MISFITS = [
    {"weight": False},
    {"before": "relu"},
    {"dtype": "float16"},
    {"dtype": "float64"},
    {"after": ("relu", "mean")},
    {"groups": 2},
    {"groups": 16},
    {"groups": 32, "filters": 128},
]


@pytest.mark.parametrize("changes", MISFITS, ids=str)
@pytest.mark.parametrize("kernel", [(3, 3), (1, 1)])
def test_what_looks_alike_is_left_alone(changes: dict[str, Any], kernel: tuple[int, int]) -> None:
    pads = (1, 1, 1, 1) if kernel == (3, 3) else (0, 0, 0, 0)
    module = Image(Case(28, 28, **{"channels": 64, "filters": 64, "kernel": kernel, "pads": pads, **changes})).module()
    for writer in WRITERS:
        if writer.cpu:
            assert writer.made.variants(module, target_of(writer)) == (), writer
        with pytest.raises(BuildError):
            writer.made.write(module, writer.variant, ((0,),) * 4)


@pytest.mark.parametrize("writer", WRITERS, ids=named)
def test_what_is_not_its_own_is_refused(writer: Writer) -> None:
    program, module = writer.made, WORTH[writer.sums[0]].module()
    first = program.rule(module, writer.variant, MACHINE)[0]
    with pytest.raises(BuildError, match=f"{len(first)} decisions, not {len(first) + 1}"):
        program.write(module, writer.variant, (*first, first[0]))
    with pytest.raises(BuildError, match=r"no \w.* = 999"):
        program.write(module, writer.variant, ((999,) * len(first[0]), *first[1:]))
    for variant in ("", "x", "8x7", "vnni128", "permute7", "4x16x2"):
        with pytest.raises(BuildError):
            program.axes(module, variant)
    other = next(kind for kind in WORTH if kind not in alike(writer))
    with pytest.raises(BuildError):
        program.axes(WORTH[other].module(), writer.variant)


@pytest.mark.parametrize("writer", OFFERED, ids=named)
def test_a_search_sees_it_in_its_precision_alone(writer: Writer) -> None:
    """Its candidates can be described, whatever this CPU has."""
    from kintune.compiler.programs.registry import applicable, instructions_of
    from kintune.compiler.space.sketches import generate_sketches, whole_sketch
    from kintune.compiler.space.tvm_space import TvmSpace

    module, target = WORTH[writer.sums[0]].module(), target_of(writer)
    sketch, precision = (
        whole_sketch("w", module, writer.made, writer.variant),
        getattr(writer.made, "precision", "fp32"),
    )
    name = program_of(sketch)
    offered = [{each for _, _, each in applicable(module, target, given)} for given in (frozenset(), NARROW)]
    assert (name in offered[0], name in offered[1]) == (precision == "fp32", True)
    assert precision_of(sketch) == precision
    assert bool(instructions_of(name)) == (precision == "bf16" or writer.program == "byte_tiles")
    if not writer.error or writer.program == "blockwise":  # the compiler's rules are no match for these
        assert set(map(program_of, generate_sketches("w", module, target))) == offered[0]
    space = TvmSpace({"w": module}, [sketch], target, MACHINE, 1)
    drafts = space.verify(space.rules("w", 4))
    assert len(drafts) == 4
    assert all(draft is not None and np.isfinite(draft.features).all() for draft in drafts)


@pytest.mark.parametrize("writer", OFFERED, ids=named)
def test_a_candidate_is_compared_with_the_untuned_program(writer: Writer, here: Any) -> None:
    """By a measurement, whose weights have one value, in whatever form they are."""
    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import whole_sketch
    from kintune.core.measurement_protocol import MeasurementProtocol
    from kintune.core.outcome import Status
    from kintune.core.stage_requests import ProfileContext, ProfileItem
    from kintune.hardware.cores import choose_cores
    from kintune.measure.interference import InterferenceFilter
    from kintune.measure.run import Runner

    if not runs_here(writer) or writer.variant == "amx":
        pytest.skip("this CPU has no such instructions")
    module = WORTH[writer.sums[0]].module()
    sketch = whole_sketch("w", module, writer.made, writer.variant)
    decisions = writer.made.rule(module, writer.variant, MACHINE)[0]
    reference = build_candidate(here, save_workload(module), None, Candidate.untuned("w"))
    built = build_candidate(here, save_workload(module), sketch, Candidate("w", sketch.digest, decisions))
    runner = Runner(choose_cores(1), interference=InterferenceFilter(waited=lambda: 0.0))
    protocol = MeasurementProtocol(threads=1, repeats=2, max_seconds=0.01)
    for rtol, atol, status in ((1e-3, 1e-3, Status.OK), (0.0, 1e-9, Status.WRONG_RESULT)):
        if rtol or writer.program == "winograd_blocked":  # others may sum up in the same order
            runner.begin(ProfileContext(protocol, {"w": reference}, rtol=rtol, atol=atol))
            assert runner.profile(ProfileItem("w", built)).status is status


@pytest.mark.parametrize("writer", [each for each in OFFERED if each.instruction], ids=named)
def test_the_instruction_is_that_of_the_processor(writer: Writer) -> None:
    import tvm

    module = WORTH[writer.sums[0]].module()
    written = writer.made.write(module, writer.variant, writer.made.rule(module, writer.variant, MACHINE)[0])
    assert re.search(writer.instruction, tvm.compile(written, target_of(writer)).mod.inspect_source("asm"))


KEEPING = [each for each in WRITERS if each.program in ("narrow", "winograd_narrow", "depthwise")]


@pytest.mark.parametrize("writer", KEEPING, ids=named)
@compiled_examples(8, deadline=None, phases=PHASES)
@given(data=st.data())
def test_what_is_kept_in_bf16_computes_the_same(here: Any, writer: Writer, data: st.DataObject) -> None:
    """Of data that is rounded already; what is stored is rounded."""
    program, variant = writer.made, writer.variant
    module = data.draw(SUMS[data.draw(st.sampled_from(writer.sums))]).module()
    able, result = program.keepable(module), len(module["main"].params) - 1
    assert 1 not in able
    assert 0 in able or "norm" in module.script()
    assert result in able or int(module["main"].params[result].shape[-1]) == 1 or "T_transpose" in module.script()
    assert program.keepable(module, rounded=True) in (frozenset(), {0})
    try:
        decisions = drawn_decisions(writer, module, data)
    except BuildError:
        return
    kept = frozenset(data.draw(st.sets(st.sampled_from(sorted(able)), min_size=1)))
    with runnable_tiles(*AMX):
        plain, narrow = (program.write(module, variant, decisions, each) for each in (frozenset(), kept))
        if runs_here(writer):
            wide = bf16.computed(plain, here, frozenset(), able)
            expected = bf16.widened(bf16.bits(wide)) if result in kept else wide
            assert np.array_equal(bf16.computed(narrow, here, kept, able), expected), (decisions, kept)


def emit_product(writer: Writer) -> Any:
    """What emits a product of ones with data, in the types of a program."""
    from tvm import relax

    from kintune.models.blockwise import Blockwise
    from kintune.models.blockwise_kernel import call_blockwise

    if writer.program != "blockwise":
        weights = relax.const(np.ones((DEPTH, COLUMNS), np.int32))
        return lambda builder, data: relax.op.matmul(builder.emit(relax.op.astype(data, "int32")), weights)
    integers = relax.const(np.ones((DEPTH, COLUMNS), np.uint8))
    scales = relax.const(np.ones((DEPTH // 32, COLUMNS), np.float32))
    return lambda builder, data: call_blockwise(builder, Blockwise(8, 32, DEPTH), [data, integers, scales])


@pytest.mark.parametrize(
    ("writer", "unpacks"),
    [
        *((each, False) for each in WRITERS if each.variant in ("vnni", "permute16") or each.program == "byte_tiles"),
        *((each, True) for each in WRITERS if each.variant == "permute16"),
    ],
    ids=named,
)
def test_data_may_be_larger_than_two_gibibytes(writer: Writer, unpacks: bool) -> None:
    if not runs_here(writer):
        pytest.skip("this CPU has no such instructions")
    floats = writer.program == "blockwise"
    module = large_product("float32" if floats else "uint8", emit_product(writer))
    found = writer.made.rule(module, writer.variant, MACHINE)
    if floats:
        (axis,) = writer.made.axes(module, writer.variant)
        found = [(value,) for value in axis.values if bool(value[2]) == unpacks]
    with runnable_tiles(*AMX):
        written = writer.made.write(module, writer.variant, found[0])
    each = DEPTH * (1 - 128 if floats else 1)  # of weights that are 1, as bytes
    expected = [[each * times] * COLUMNS for times in (1, 0, 0, 3)]
    np.testing.assert_allclose(sums_of_rows(written), expected, rtol=1e-5)
