"""Elementary functions as vector arithmetic, and quantising by an exact division."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram


pytestmark = pytest.mark.tvm

_SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-30, -1e-30, 1e-8, 88.7, 88.73, -87.4, -200.0)

_ERF = np.vectorize(math.erf)


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def _computed(name: str, x: NDArray[Any], vector: int, plus: float = 0.0) -> NDArray[Any]:
    """The function of all elements and `plus`, compiled as a build worker compiles it, `vector` elements at a time."""
    import tvm
    from tvm import te, tirx

    from kintune.compiler.graph.own_rules import own_rules

    source = te.placeholder(x.shape, name="source", dtype=str(x.dtype))
    result = te.compute(
        x.shape,
        lambda i: getattr(tirx, name)(source[i] + tirx.const(plus, source.dtype) if plus else source[i]),
        name="result",
    )
    function = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    if vector > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("result"))
        _, inner = schedule.split(loop, [None, vector])
        schedule.vectorize(inner)
    output = tvm.runtime.empty(x.shape, str(x.dtype))
    with own_rules(tvm.target.Target("llvm")):
        compiled = tvm.compile(schedule.mod, "llvm")
    compiled["main"](tvm.runtime.tensor(x), output)
    computed: NDArray[Any] = output.numpy()
    return computed


@pytest.mark.parametrize("vector", [1, 16])
@pytest.mark.parametrize(
    ("name", "reference", "reach"),
    [("exp", np.exp, 100.0), ("erf", _ERF, 6.0), ("tanh", np.tanh, 12.0), ("sigmoid", _sigmoid, 100.0)],
)
def test_functions_are_as_precise_as_single_precision_allows(
    name: str, reference: Any, reach: float, vector: int
) -> None:
    x = np.linspace(-reach, reach, 1 << 14, dtype=np.float32)
    x[: len(_SPECIAL)] = _SPECIAL
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64))
        actual = _computed(name, x, vector)
        unspeakable = np.isnan(expected)
        assert np.array_equal(np.isnan(actual), unspeakable)
        infinite = np.abs(expected) > np.finfo(np.float32).max
        assert np.isinf(actual[infinite]).all()
        rest = ~(unspeakable | infinite)
        error = np.abs(actual[rest] - expected[rest])
        assert (error <= 1e-6 * np.abs(expected[rest]) + 2e-38).all()


@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "sigmoid"])
def test_functions_of_what_the_compiler_knows_to_be_no_number_are_none(name: str) -> None:
    """LLVM drops a store whose value depends on an integer made of NaN."""
    x = np.ones(64, np.float32)
    assert np.isnan(_computed(name, x, 16, plus=math.nan)).all()


@pytest.mark.parametrize(
    ("name", "reference", "dtype"),
    [
        ("sinh", np.sinh, "float32"),
        ("cosh", np.cosh, "float32"),
        ("cosh", np.cosh, "float64"),
        ("erf", _ERF, "float64"),
    ],
)
def test_vectors_are_taken_apart_for_functions_of_the_c_library(name: str, reference: Any, dtype: str) -> None:
    x = np.linspace(-3, 3, 64).astype(dtype)
    assert np.allclose(
        _computed(name, x, 8), reference(x.astype(np.float64)), rtol=1e-6 if dtype == "float32" else 1e-14
    )


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-7), ("float64", 1e-15)])
def test_inverse_tangents_of_small_values_keep_their_digits(dtype: str, rtol: float) -> None:
    x = np.concatenate([10.0 ** np.linspace(-9, 0, 100), [-1e-6, -1.0]]).astype(dtype)
    with np.errstate(divide="ignore"):
        assert np.allclose(_computed("atanh", x, 1), np.arctanh(x.astype(np.float64)), rtol=rtol, atol=0)


@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "sigmoid"])
def test_other_types_are_left_to_the_compiler(name: str) -> None:
    x = np.linspace(-4, 4, 64, dtype=np.float64)
    reference = {"exp": np.exp, "erf": _ERF, "tanh": np.tanh, "sigmoid": _sigmoid}[name]
    assert np.allclose(_computed(name, x, 1), reference(x), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "sigmoid"])
def test_no_element_is_a_call(name: str) -> None:
    import tvm
    from tvm import te, tirx

    from kintune.compiler.graph.own_rules import own_rules

    source = te.placeholder((16,), name="source")
    result = te.compute((16,), lambda i: getattr(tirx, name)(source[i]), name="result")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([source, result]).with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("result"))
    schedule.vectorize(loop)
    with own_rules(tvm.target.Target("llvm")):
        assembly = tvm.compile(schedule.mod, "llvm").mod.inspect_source("asm")
    assert not [line for line in assembly.splitlines() if "call" in line and f"{name}f" in line]


def test_a_quotient_is_rounded_once(cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    """By a step whose inverse is no number; ties go to the even step, what is too large to the last one."""
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    step = np.float32(0.02)
    steps = np.arange(-4000, 4000, dtype="float32").reshape(2, 4000) * np.float32(0.5)
    x = np.concatenate([steps * step, np.nextafter(steps * step, np.float32(9))])
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            one = relax.op.quantize(data, relax.const(step), relax.const(np.int8(3)), -1, "int8")
            rows = relax.const(np.array([0.02, 0.1, 0.3, 0.07], "float32"))
            many = relax.op.quantize(data, rows, relax.const(np.full(4, 128, "uint8")), 0, "uint8")
            found = builder.emit_output(relax.Tuple([builder.emit(one), builder.emit(many)]))
        builder.emit_func_output(found)
    first, second = run_program(assemble(lower(builder.get(), cpu), {}, cpu), x)
    by_row = x / np.array([[0.02], [0.1], [0.3], [0.07]], "float32")
    assert np.array_equal(first, np.clip(np.round(x / step) + 3, -128, 127).astype("int8"))
    assert np.array_equal(second, np.clip(np.round(by_row) + 128, 0, 255).astype("uint8"))


def _extreme(name: str, shape: tuple[int, ...], axis: int | None) -> Any:
    """The schedule of an element-wise extreme of two tensors, or of one along an axis, in vectors of 16 elements."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.own_rules import own_rules

    builder = relax.BlockBuilder()
    operands = [relax.Var(each, relax.TensorType(shape, "float32")) for each in ("x", "y")[: 2 if axis is None else 1]]
    operator: Any = getattr(relax.op, name)
    with builder.function("main", operands):
        call = operator(*operands) if axis is None else operator(*operands, axis)
        builder.emit_func_output(builder.emit(call))
    with own_rules(tvm.target.Target("llvm")):
        functions = relax.transform.LegalizeOps()(builder.get()).functions_items()
    (function,) = (each for _, each in functions if isinstance(each, tvm.tirx.PrimFunc))
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    loops = schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0])
    columns, inner = schedule.split(loops[0 if axis == 0 else -1], [None, 16])
    schedule.reorder(columns, *loops[1 if axis == 0 else 0 :][: 1 if axis == 0 else -1], inner)
    schedule.vectorize(inner)
    return schedule.mod


def _hostile(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Numbers of which many are NaN, infinities and zeros of both signs."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(np.array([*_SPECIAL, 1.0, -1.0], np.float32), shape)
    return np.where(rng.random(shape) < 0.5, chosen, rng.standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_two_tensors_test_whole_vectors_for_nan(name: str, cpu: tvm.target.Target) -> None:
    import tvm

    from kintune.compiler.graph.own_rules import own_rules

    shape = (7, 160)
    with own_rules(cpu):
        compiled = tvm.compile(_extreme(name, shape, None), cpu)
    assert "fcmp uno <16 x float>" in compiled.mod.inspect_source("ll"), "each element is tested by itself"
    for seed in range(20):
        x, y = _hostile(shape, seed), _hostile(shape, seed + 100)
        output = tvm.runtime.empty(shape)
        compiled["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), output)
        np.testing.assert_array_equal(output.numpy(), getattr(np, name)(x, y))


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_over_an_axis_test_whole_vectors_for_nan(name: str, cpu: tvm.target.Target) -> None:
    import tvm

    from kintune.compiler.graph.own_rules import own_rules

    with own_rules(cpu):
        compiled = tvm.compile(_extreme(name, (9, 160), 0), cpu)
    assert "fcmp uno <16 x float>" in compiled.mod.inspect_source("ll"), "each element is tested by itself"
    for place in range(9):  # NaN at each place, and a column of every kind of number
        x = _hostile((9, 160), place)
        x[:, ::2] = np.random.default_rng(place).standard_normal((9, 80))
        x[place, ::4] = np.nan
        output = tvm.runtime.empty((160,))
        compiled["main"](tvm.runtime.tensor(x), output)
        np.testing.assert_array_equal(output.numpy(), getattr(np, name)(x, axis=0))


def test_vectors_are_tested_for_nan_only_where_the_compiler_can(cpu: tvm.target.Target) -> None:
    """In CUDA, two vectors cannot be compared by one operator."""
    import tvm

    from kintune.compiler.graph.own_rules import own_rules

    def vectorised() -> bool:
        return bool(tvm.ir.Op.get("tirx.isnan").get_attr("TVectorizable"))

    gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    found = []
    for target in (cpu, gpu, gpu, cpu, cpu):
        with own_rules(target), own_rules(target):
            found.append(vectorised())
    with own_rules(cpu), own_rules(gpu):
        found.append(vectorised())
    assert found == [True, False, False, True, True, False]
    assert not vectorised()
