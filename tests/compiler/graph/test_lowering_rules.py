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


def _computed(name: str, x: NDArray[Any], vector: int) -> NDArray[Any]:
    """The function of all elements, compiled as a build worker compiles it, `vector` elements at a time."""
    import tvm
    from tvm import te, tirx

    from kintune.compiler.graph.lowering_rules import use_vector_functions

    use_vector_functions()
    source = te.placeholder(x.shape, name="source", dtype=str(x.dtype))
    result = te.compute(x.shape, lambda i: getattr(tirx, name)(source[i]), name="result")
    function = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    if vector > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("result"))
        _, inner = schedule.split(loop, [None, vector])
        schedule.vectorize(inner)
    output = tvm.runtime.empty(x.shape, str(x.dtype))
    tvm.compile(schedule.mod, "llvm")["main"](tvm.runtime.tensor(x), output)
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
def test_other_types_are_left_to_the_compiler(name: str) -> None:
    x = np.linspace(-4, 4, 64, dtype=np.float64)
    reference = {"exp": np.exp, "erf": _ERF, "tanh": np.tanh, "sigmoid": _sigmoid}[name]
    assert np.allclose(_computed(name, x, 1), reference(x), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "sigmoid"])
def test_no_element_is_a_call(name: str) -> None:
    import tvm
    from tvm import te, tirx

    from kintune.compiler.graph.lowering_rules import use_vector_functions

    use_vector_functions()
    source = te.placeholder((16,), name="source")
    result = te.compute((16,), lambda i: getattr(tirx, name)(source[i]), name="result")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([source, result]).with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("result"))
    schedule.vectorize(loop)
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
