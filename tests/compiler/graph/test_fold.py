from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def _fold(emit: Any) -> Any:
    """The value that a network without inputs returns after folding: a constant, or the call that stayed."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.fold import FoldTensors

    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            found = builder.emit_output(emit(builder, relax))
        builder.emit_func_output(found)
    module = relax.transform.CanonicalizeBindings()(FoldTensors()(builder.get()))
    value = module["main"].body.body
    bindings = {binding.var: binding.value for block in module["main"].body.blocks for binding in block.bindings}
    value = bindings.get(value, value)
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else value


def _compiled(emit: Any) -> Any:
    """The same by TVM's own folding."""
    from tvm import relax

    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            found = builder.emit_output(emit(builder, relax))
        builder.emit_func_output(found)
    module = relax.transform.FoldConstant()(builder.get())
    bindings = {binding.var: binding.value for block in module["main"].body.blocks for binding in block.bindings}
    value = module["main"].body.body
    return bindings.get(value, value).value.numpy()


def _weights(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return (100 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


CASES = {
    "reshape": lambda b, r: r.op.reshape(r.const(_weights((2, 6))), (3, 4)),
    "permute": lambda b, r: r.op.permute_dims(r.const(_weights((2, 3, 4))), [2, 0, 1]),
    "permute all": lambda b, r: r.op.permute_dims(r.const(_weights((2, 3, 4)))),
    "expand": lambda b, r: r.op.expand_dims(r.const(_weights((3,))), [0, 2]),
    "squeeze": lambda b, r: r.op.squeeze(r.const(_weights((1, 3, 1)))),
    "narrow": lambda b, r: r.op.astype(r.const(_weights((5,), "float64")), "float32"),
    "from integers": lambda b, r: r.op.astype(r.const(_weights((5,), "int64")), "float32"),
    "to a number": lambda b, r: r.op.reshape(r.const(_weights((1,))), ()),
    "add": lambda b, r: r.op.add(r.const(_weights((3, 4))), r.const(_weights((4,)))),
    "subtract": lambda b, r: r.op.subtract(r.const(_weights((3, 4))), r.const(_weights((1, 4)))),
    "multiply": lambda b, r: r.op.multiply(r.const(_weights((3, 4))), r.const(_weights((3, 1)))),
    "divide": lambda b, r: r.op.divide(r.const(_weights((3, 4))), r.const(_weights((3, 4)) + 7)),
    "chain": lambda b, r: r.op.add(
        b.emit(r.op.permute_dims(b.emit(r.op.reshape(r.const(_weights((2, 6))), (3, 4))))), r.const(_weights((4, 3)))
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_numpy_folds_to_the_bits_that_the_compiler_folds_to(case: Any) -> None:
    ours, compilers = _fold(case), _compiled(case)
    assert ours.dtype == compilers.dtype
    assert ours.shape == compilers.shape
    assert ours.tobytes() == compilers.tobytes()


FAR = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-38, -0.0, 0.0, 1.0, 7.0], np.float32)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "to double", "to half"])
def test_extremes_are_folded_as_they_are_computed(name: str) -> None:
    def case(builder: Any, r: Any) -> Any:
        left, right = r.const(FAR[:, None]), r.const(FAR[None, :])
        if name.startswith("to"):
            return r.op.astype(left, {"to double": "float64", "to half": "float16"}[name])
        return getattr(r.op, name)(left, right)

    folded = _fold(case)
    if not isinstance(folded, np.ndarray):
        return  # left to the compiler
    np.testing.assert_array_equal(folded, _compiled(case))  # NaN is equal to NaN, whatever its sign


def test_a_number_stays_one() -> None:
    folded = _fold(lambda b, r: r.op.astype(r.const(np.asarray(3, "int64")), "float32"))
    assert (folded.shape, folded.dtype, folded.item()) == ((), np.float32, 3.0)


LEFT = {
    "saturating cast": lambda b, r: r.op.astype(r.const(np.array([1e20, -1.5], "float32")), "int32"),
    "half arithmetic": lambda b, r: r.op.add(r.const(_weights((3,), "float16")), r.const(_weights((3,), "float16"))),
    "integer division": lambda b, r: r.op.divide(r.const(np.array([7], "int32")), r.const(np.array([2], "int32"))),
    "another operator": lambda b, r: r.op.exp(r.const(_weights((3,)))),
}


@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_what_numpy_may_compute_differently_is_left_to_the_compiler(case: Any) -> None:
    from tvm import relax

    assert isinstance(_fold(case), relax.Call)


def test_what_an_input_decides_is_left() -> None:
    import tvm_ffi
    from tvm import relax

    from kintune.compiler.graph.fold import FoldTensors

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.add(builder.emit(relax.op.permute_dims(x)), relax.const(1.0)))
        builder.emit_func_output(found)
    module = builder.get()
    assert tvm_ffi.structural_equal(FoldTensors()(module), module)


def test_a_constant_that_several_calls_move_alike_is_folded_once() -> None:
    import tvm
    from tvm import relax

    from kintune.compiler.graph.fold import FoldTensors

    builder, weight = relax.BlockBuilder(), relax.const(_weights((4, 4)))
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = x
            for axes in ([1, 0], [1, 0], [0, 1]):
                found = builder.emit(relax.op.matmul(found, builder.emit(relax.op.permute_dims(weight, axes))))
            found = builder.emit_output(found)
        builder.emit_func_output(found)
    module = FoldTensors()(builder.get())
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    first, second, other = (value for value in values if isinstance(value, tvm.ir.GenericConst))
    assert first.same_as(second)
    assert not first.same_as(other)
