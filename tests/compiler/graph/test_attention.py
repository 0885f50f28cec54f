"""Attention becomes one kernel in every spelling, computes what it is, and nothing else becomes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.support.attention import Spelling, arrays, expected, network
from tests.support.examples import compiled_examples

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

LAYOUTS = ("heads", "tokens", "merged", "fused")
SCALINGS = ("none", "after", "divided", "query", "both")
MASKS = (
    "none", "columns", "rank 2", "full", "boolean", "filled", "causal", "causal where", "causal subtracted", "two",
    "subtracted",
)  # fmt: skip
LOW = (-1e4, -1e9, -3.4028234663852886e38, -np.inf)
TWISTS = ("axis", "scale of an input", "scores are read", "weights are read", "dropout")


def kernels(spelling: Spelling, target: tvm.target.Target) -> list[str]:
    """The operators of the kernels of a network that is lowered, one a call."""
    from kintune.compiler.graph.lower import lower

    lowered = lower(network(spelling, arrays(spelling)), target)
    return [each.operator for each in lowered.workloads for _ in range(each.occurrences)]


def agree(spelling: Spelling, target: tvm.target.Target, run_program: RunsProgram) -> list[str]:
    """Compare the lowered network, untuned, with numpy; returns the operators of its kernels."""
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    inputs = arrays(spelling)
    lowered = lower(network(spelling, inputs), target)
    *_, found = run_program(assemble(lowered, {}, target), *inputs.values())
    wanted = expected(spelling, inputs)
    sign = 1 if spelling.twist.endswith("read") else -1
    np.testing.assert_allclose(sign * found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(spelling))
    return [each.operator for each in lowered.workloads for _ in range(each.occurrences)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_layouts_and_scales_become_one_kernel(layout: str, scaling: str, cpu: tvm.target.Target) -> None:
    """What is left besides is the negation that the test adds."""
    spelling = Spelling(layout=layout, scaling=scaling).settled()
    assert sorted(kernels(spelling, cpu)) == ["attention", "elementwise"]


@pytest.mark.parametrize("layout", ["tokens", "merged"])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_are_read_by_the_kernel(layout: str, mask: str, cpu: tvm.target.Target) -> None:
    """One that is subtracted is negated first."""
    spelling = Spelling(layout=layout, mask=mask).settled()
    assert sorted(kernels(spelling, cpu)) == ["attention", *["elementwise"] * (2 if mask == "subtracted" else 1)]


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_heads_share_keys_that_are_not_copied(groups: int, cpu: tvm.target.Target) -> None:
    assert sorted(kernels(Spelling(heads=4, groups=groups, layout="tokens"), cpu)) == ["attention", "elementwise"]


@pytest.mark.parametrize("softmax", ["operator", "written out"])
def test_a_softmax_may_be_written_out(softmax: str, cpu: tvm.target.Target) -> None:
    assert "attention" in kernels(Spelling(softmax=softmax, mask="columns"), cpu)


@pytest.mark.parametrize("twist", TWISTS)
@pytest.mark.parametrize("layout", ["tokens", "merged"])
def test_what_is_not_quite_attention_is_left_alone(twist: str, layout: str, cpu: tvm.target.Target) -> None:
    assert "attention" not in kernels(Spelling(twist=twist, layout=layout), cpu)


spellings = st.builds(
    Spelling,
    batch=st.sampled_from((1, 2)),
    heads=st.sampled_from((4,)),
    groups=st.sampled_from((4, 4, 2, 1)),
    rows=st.sampled_from((1, 2, 5, 17)),
    columns=st.sampled_from((1, 2, 7, 19)),
    depth=st.sampled_from((1, 3, 8)),
    width=st.sampled_from((1, 5, 8)),
    layout=st.sampled_from(LAYOUTS),
    scaling=st.sampled_from(SCALINGS),
    mask=st.sampled_from(MASKS),
    low=st.sampled_from(LOW),
    softmax=st.sampled_from(("operator", "written out")),
    result=st.sampled_from(("heads", "tokens")),
    twist=st.sampled_from(("", "", "", "scores are read", "weights are read")),
    guarded=st.booleans(),
).map(Spelling.settled)


@compiled_examples(12, derandomize=True, phases=[Phase.generate], deadline=None)
@given(spelling=spellings)
def test_whatever_is_drawn_computes_what_numpy_does(
    spelling: Spelling, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    found = agree(spelling, cpu, run_program)
    assert ("attention" in found) == spelling.is_attention, spelling


def test_a_mask_of_many_rows_is_turned_once(cpu: tvm.target.Target) -> None:
    """Rows lie side by side for vectors of queries: a mask that is an input is transposed by a kernel of its own."""
    found = kernels(Spelling(rows=17, columns=19, mask="full"), cpu)
    assert sorted(found) == ["attention", "elementwise", "elementwise"]


def test_a_causal_mask_is_no_operand(cpu: tvm.target.Target) -> None:
    from kintune.compiler.graph.lower import lower

    spelling = Spelling(mask="causal", rows=5, columns=7)
    lowered = lower(network(spelling, arrays(spelling)), cpu)
    (attention,) = (each for each in lowered.workloads if each.operator == "attention")
    assert len(attention.module["main"].params) == 4
    assert not lowered.weights


LOWEST = LOW[2]


def steps(spelling: Spelling, target: tvm.target.Target) -> list[str]:
    """The kinds of the steps of the attention of a network."""
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.programs.attention_pattern import attention_of

    lowered = lower(network(spelling, arrays(spelling)), target)
    (found,) = (each for each in lowered.workloads if each.operator == "attention")
    pattern = attention_of(found.module["main"])
    assert pattern is not None
    return [step.kind.value for step in pattern.steps]


@pytest.mark.parametrize("mask", ["padded", "padded where"])
@pytest.mark.parametrize("triangle", ["before", "after"])
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("fill", [LOWEST, -np.inf])
@pytest.mark.parametrize("low", [LOWEST, -np.inf])
def test_a_causal_constant_beside_padding(
    mask: str, triangle: str, chosen: bool, fill: float, low: float, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    """Rows of padding see what is excluded by a finite number, and columns after them count as well."""
    spelling = Spelling(rows=9, columns=9, mask=mask, triangle=triangle, chosen=chosen, fill=fill, low=low)
    assert "attention" in agree(spelling, cpu, run_program)
    replaced = mask == "padded where" and triangle == "before" and low != -np.inf
    exact = fill == -np.inf and not replaced
    assert ("causal" in steps(spelling, cpu)) == exact


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("fill", [-1e30, LOWEST, -np.inf])
def test_a_causal_constant_alone_may_be_finite(
    fill: float, chosen: bool, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    spelling = Spelling(rows=9, columns=9, triangle="before", fill=fill, chosen=chosen)
    assert steps(spelling, cpu) == ["causal"]
    agree(spelling, cpu, run_program)


@pytest.mark.parametrize(
    ("beside", "wanted"),
    [
        ("zeros", ["causal"]),
        ("all seen", ["causal"]),
        ("small numbers", ["add", "causal"]),
        ("small number", ["select", "causal"]),
        ("large numbers", ["add", "add"]),
    ],
)
def test_constants_beside_which_a_causal_mask_stays_one(
    beside: str, wanted: list[str], cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    """What exporters fold of a mask of ones changes nothing; positions add small numbers."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.programs.attention_pattern import attention_of

    size, op = 9, relax.op
    draw = np.random.default_rng(3)
    operands = [draw.standard_normal((2, 3, size, 4), np.float32) for _ in range(3)]
    query, key, value = (relax.Var(name, relax.TensorType(operands[0].shape, "float32")) for name in "qkv")
    numbers = {
        "zeros": np.zeros((2, 1, 1, size)),
        "small numbers": draw.standard_normal((1, 3, 1, size)),
        "large numbers": np.where(draw.random((2, 1, 1, size)) < 0.5, -np.inf, 0.0),
    }.get(beside)
    seen = np.ones((1, 1, 1, size), bool) if beside == "all seen" else draw.random((2, 1, 1, size)) < 0.5
    seen_of_rows = np.tril(np.ones((size, size), bool))
    builder = relax.BlockBuilder()
    with builder.function("main", [query, key, value]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(query, builder.emit(op.permute_dims(key, [0, 1, 3, 2]))))
            if numbers is not None:
                scores = builder.emit(op.add(scores, relax.const(numbers.astype(np.float32))))
            else:
                scores = builder.emit(op.where(relax.const(seen), scores, relax.const(-1e4, "float32")))
            triangle = np.where(seen_of_rows, np.float32(0), np.float32(LOWEST))
            weights = builder.emit(op.nn.softmax(builder.emit(op.add(scores, relax.const(triangle)))))
            done = builder.emit_output(op.matmul(weights, value))
        builder.emit_func_output(done)
    lowered = lower(tvm.IRModule(dict(builder.get().functions_items())), cpu)
    (found,) = lowered.workloads
    pattern = attention_of(found.module["main"])
    assert pattern is not None
    assert [step.kind.value for step in pattern.steps] == wanted
    (result,) = run_program(assemble(lowered, {}, cpu), *operands)
    computed = operands[0] @ operands[1].swapaxes(-1, -2)
    computed = computed + numbers if numbers is not None else np.where(seen, computed, -1e4)
    computed = computed.astype(np.float32) + triangle
    powers = np.exp(computed - computed.max(-1, keepdims=True))
    np.testing.assert_allclose(result, powers / powers.sum(-1, keepdims=True) @ operands[2], rtol=1e-4, atol=1e-5)


def test_rows_are_made_zero_by_both_of_two_conditions(cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    op, size = relax.op, 6
    draw = np.random.default_rng(5)
    operands = [draw.standard_normal((2, 3, size, 4), np.float32) for _ in range(3)]
    empty = [(np.arange(size) == row).reshape(1, 1, size, 1) for row in (1, 4)]
    variables = [relax.Var(name, relax.TensorType(operands[0].shape, "float32")) for name in "qkv"]
    conditions = [relax.Var(name, relax.TensorType(empty[0].shape, "bool")) for name in ("one", "other")]
    builder = relax.BlockBuilder()
    with builder.function("main", [*variables, *conditions]):
        with builder.dataflow():
            query, key, value = variables
            scores = builder.emit(op.matmul(query, builder.emit(op.permute_dims(key, [0, 1, 3, 2]))))
            weights = builder.emit(op.nn.softmax(scores))
            for condition in conditions:
                weights = builder.emit(op.where(condition, relax.const(0, "float32"), weights))
            done = builder.emit_output(op.matmul(weights, value))
        builder.emit_func_output(done)
    lowered = lower(tvm.IRModule(dict(builder.get().functions_items())), cpu)
    (found,) = run_program(assemble(lowered, {}, cpu), *operands, *empty)
    assert [row for row in range(size) if not found[:, :, row].any()] == [1, 4]


def test_a_conservative_lowering_leaves_operators_alone(cpu: tvm.target.Target) -> None:
    from kintune.compiler.graph.lower import lower

    spelling = Spelling()
    lowered = lower(network(spelling, arrays(spelling)), cpu, conservative=True)
    assert all(each.operator != "attention" for each in lowered.workloads)


def test_the_compiler_s_own_operator_is_attention(cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    spelling = Spelling(width=4, result="heads")
    inputs = arrays(spelling)
    inputs = {name: np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for name, array in inputs.items()}
    builder = relax.BlockBuilder()
    variables = [relax.Var(name, relax.TensorType(a.shape, "float32")) for name, a in inputs.items()]
    with builder.function("main", variables):
        with builder.dataflow():
            done = builder.emit_output(relax.op.nn.attention(*variables))
        builder.emit_func_output(done)
    lowered = lower(tvm.IRModule(dict(builder.get().functions_items())), cpu)
    assert [each.operator for each in lowered.workloads] == ["attention"]
    (found,) = run_program(assemble(lowered, {}, cpu), *inputs.values())
    wanted: Any = expected(spelling, arrays(spelling)).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
