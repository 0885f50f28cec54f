"""The kernel of attention computes what the plain blocks do, however its work is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.candidate import NamedChoice
from tests.support.attention import Spelling, arrays, network
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

MASKS = ("none", "columns", "rank 2", "full", "boolean", "causal", "two")


def workload(spelling: Spelling, target: Any) -> Any:
    from kintune.compiler.graph.lower import lower

    lowered = lower(network(spelling, arrays(spelling)), target)
    (found,) = (each.module for each in lowered.workloads if each.operator == "attention")
    return found


def run(module: Any, target: Any, operands: list[Any]) -> Any:
    import tvm

    from kintune.compiler.graph.own_rules import own_rules
    from kintune.compiler.space.generator import default_schedule

    with own_rules(target):
        built = tvm.compile(default_schedule(module, target), target)
    result = module["main"].params[-1]
    out = tvm.runtime.tensor(np.full([int(extent) for extent in result.shape], np.nan, np.float32))
    built["main"](*(tvm.runtime.tensor(operand) for operand in operands), out)
    return out.numpy()


def masks_of(module: Any) -> set[int]:
    """The positions of the operands that are added to scores."""
    from kintune.compiler.programs.attention_pattern import attention_of

    pattern = attention_of(module["main"])
    assert pattern is not None
    return {step.access.parameter for step in pattern.steps if step.access is not None}


def drawn(module: Any, low: float, seed: int = 3) -> list[Any]:
    """Operands of a workload; of a mask, a third of the elements are low."""
    draw, found = np.random.default_rng(seed), list[Any]()
    masks = masks_of(module)
    for number, parameter in enumerate(module["main"].params[:-1]):
        shape = [int(extent) for extent in parameter.shape]
        if str(parameter.dtype) == "bool":
            found.append(draw.random(shape) < 0.7)
            continue
        values = draw.standard_normal(shape).astype(np.float32)
        found.append(np.where(draw.random(shape) < 0.3, np.float32(low), values) if number in masks else values)
    return found


def agree(spelling: Spelling, target: Any, choose: Any, seed: int = 3) -> None:
    """Compare the kernel under the decisions that `choose(axis)` gives with the plain blocks."""
    from kintune.compiler.programs.attention import AttentionProgram

    program, module = AttentionProgram(), workload(spelling, target)
    operands = drawn(module, spelling.low, seed)
    wanted = run(module, target, operands)
    for variant in program.variants(module, target):
        decisions = tuple(axis.values[choose(axis)] for axis in program.axes(module, variant))
        found = run(program.write(module, variant, decisions), target, operands)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=f"{spelling} {variant} {decisions}")


def spellings(
    rows: Sequence[int], columns: Sequence[int], depth: Sequence[int], width: Sequence[int]
) -> st.SearchStrategy[Spelling]:
    """Attention of these sizes, in all layouts and with all masks."""
    return st.builds(
        Spelling,
        batch=st.just(1),
        heads=st.just(2),
        groups=st.sampled_from((2, 1)),
        rows=st.sampled_from(rows),
        columns=st.sampled_from(columns),
        depth=st.sampled_from(depth),
        width=st.sampled_from(width),
        layout=st.sampled_from(("heads", "tokens", "fused")),
        scaling=st.sampled_from(("none", "after")),
        mask=st.sampled_from(MASKS),
        low=st.sampled_from((-1e9, -3.4028234663852886e38, -np.inf)),
        softmax=st.just("operator"),
        twist=st.just(""),
        guarded=st.booleans(),
        result=st.sampled_from(("heads", "tokens")),
    ).map(Spelling.settled)


ANY_SIZE = spellings((1, 3, 4, 9, 16, 17, 31, 50, 97), (2, 5, 16, 33, 67, 129), (1, 3, 16, 24), (1, 7, 16, 23, 32))


@compiled_examples(15, derandomize=True, phases=[Phase.generate], deadline=None)
@given(spelling=ANY_SIZE, data=st.data())
def test_whatever_is_drawn_computes_the_same(spelling: Spelling, data: st.DataObject, here: Any) -> None:
    def choose(axis: NamedChoice) -> int:
        return data.draw(st.integers(0, len(axis.values) - 1))

    agree(spelling, here, choose)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(
    ("low", "guarded"), [(-1e9, False), (-3.4028234663852886e38, False), (-np.inf, False), (-np.inf, True)]
)
def test_rows_that_see_nothing_are_as_in_a_plain_softmax(rows: int, low: float, guarded: bool, here: Any) -> None:
    """Not a number, or zero where that is guarded against, if all scores are -inf; else what is left of them."""
    from kintune.compiler.programs.attention import AttentionProgram

    spelling = Spelling(batch=1, heads=1, groups=1, rows=rows, columns=35, mask="full", low=low, guarded=guarded)
    program, module = AttentionProgram(), workload(spelling, here)
    variant, *_ = program.variants(module, here)
    operands = drawn(module, low)
    (position,) = masks_of(module)
    mask = operands[position]
    index = (..., slice(0, 1)) if mask.shape[-1] == rows else (..., slice(0, 1), slice(None))
    mask[index] = low
    decisions = program.rule(module, variant, _machine())[0]
    wanted = run(module, here, operands)
    found = run(program.write(module, variant, decisions), here, operands)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    assert np.isnan(found).any() == (low == -np.inf and not guarded)


def _machine() -> Any:
    from kintune.search.processor import Processor

    return Processor(lanes=16, registers=32, threads=2)


@pytest.mark.parametrize("rows", [1, 5, 16, 197, 384])
def test_the_rule_answers_the_axes(rows: int, here: Any) -> None:
    from kintune.compiler.programs.attention import AttentionProgram
    from kintune.core.candidate import fits

    program = AttentionProgram()
    module = workload(Spelling(batch=1, rows=rows, columns=384, depth=64, width=64), here)
    variants = program.variants(module, here)
    assert variants
    for variant in variants:
        found = program.rule(module, variant, _machine())
        assert found
        assert len(set(found)) == len(found)
        assert all(fits(program.axes(module, variant), decisions) for decisions in found)


def test_the_rule_cuts_queries_finer_where_a_causal_mask_leaves_keys_out(here: Any) -> None:
    from kintune.compiler.programs.attention import AttentionProgram

    program, queries = AttentionProgram(), []
    for mask in ("none", "causal"):
        written = Spelling(batch=1, heads=12, rows=128, columns=128, depth=64, width=64, mask=mask)
        module = workload(written, of_cpu("znver4"))
        queries.append(program.rule(module, "tiles-16-32", _machine())[0][0])
    assert queries[1] < queries[0]


def of_cpu(cpu: str) -> Any:
    import tvm

    machine = "aarch64" if cpu.startswith("neoverse") else "x86_64"
    return tvm.target.Target({"kind": "llvm", "mtriple": f"{machine}-linux-gnu", "mcpu": cpu, "num-cores": 2})


@pytest.mark.parametrize(
    ("cpu", "rows", "expected"),
    [
        ("x86-64", 40, ["tiles-4-16"]),
        ("haswell", 40, ["tiles-8-16"]),
        ("znver4", 40, ["tiles-16-32"]),
        ("neoverse-n1", 40, ["tiles-4-32"]),
        ("haswell", 6, ["rows-8-16", "tiles-4-16"]),
        ("znver4", 12, ["rows-16-32", "tiles-8-32"]),
    ],
)
def test_kernels_use_the_vectors_and_registers_that_the_target_has(
    cpu: str, rows: int, expected: list[str], here: Any
) -> None:
    from kintune.compiler.programs.attention import AttentionProgram

    module = workload(Spelling(batch=1, rows=rows, columns=50, depth=16, width=16), here)
    assert list(AttentionProgram().variants(module, of_cpu(cpu))) == expected


@pytest.mark.parametrize("cpu", ["x86-64", "haswell"])
@pytest.mark.parametrize("rows", [1, 6, 33])
def test_kernels_of_shorter_vectors_compute_the_same(cpu: str, rows: int) -> None:
    import json

    from kintune.runtime.target import missing_features, resolve_target

    target = of_cpu(cpu)
    if missing_features(resolve_target(json.dumps({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu}), 2)):
        pytest.skip(f"kernels for {cpu} do not run here")
    spelling = Spelling(batch=1, heads=2, groups=2, rows=rows, columns=35, depth=17, width=23, mask="full")
    agree(spelling, target, lambda axis: len(axis.values) - 1)


def test_other_workloads_have_no_variant(dense: Any, here: Any) -> None:
    from kintune.compiler.programs.attention import AttentionProgram

    assert not AttentionProgram().variants(dense, here)


@pytest.mark.parametrize("rows", [1, 6, 40])
def test_a_search_sees_the_program_alone(rows: int, here: Any) -> None:
    """Each variant is one sketch, and the candidates of its rule can be described."""
    from kintune.compiler.programs.attention import AttentionProgram
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.search.sketch_program import program_of

    module = workload(Spelling(batch=1, rows=rows, columns=50, depth=16, width=16), here)
    sketches = generate_sketches("w", module, here)
    variants = AttentionProgram().variants(module, here)
    assert [program_of(sketch).partition(":")[2] for sketch in sketches] == list(variants)
    space = TvmSpace({"w": module}, sketches, here, _machine(), 1)
    candidates = space.rules("w", 4)
    assert {candidate.sketch for candidate in candidates} == {sketch.digest for sketch in sketches}
    assert all(draft is not None for draft in space.verify(candidates))
