"""What follows a sum, as an expression of it, computes what the blocks behind the sum do, or is not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.interpreter import evaluate, interpreted

pytestmark = pytest.mark.tvm

STEPS = (
    *("bias", "residual", "relu", "scale", "again", "row", "cast", "turned", "one more", "one less", "merged", "split"),
    *("twice as wide", "late", "backwards", "summed", "repeated", "first row", "two axes exchanged"),
)
"""What is done to the result so far; the steps of the last line are none of an epilogue."""

UNLIKE = frozenset(STEPS[STEPS.index("twice as wide") :])


def step(name: str, read: Any, sums: Any, operands: list[Any]) -> Any:
    """A tensor that is computed from the one that is `read`; those that it needs besides are put to the operands."""
    import tvm
    from tvm import te, topi

    shape, dtype = [int(extent) for extent in read.shape], "float32"

    def operand(*extents: int) -> Any:
        operands.append(te.placeholder(extents, dtype, f"operand{len(operands)}"))
        return operands[-1]

    if name == "bias":
        return topi.add(read, operand(shape[-1]))
    if name == "residual":
        return topi.multiply(operand(*shape), read)
    if name == "row":
        return topi.subtract(read, operand(*shape[:-1], 1))
    if name == "relu":
        return topi.nn.relu(read)
    if name == "scale":
        return topi.multiply(read, tvm.tirx.const(0.5, dtype))
    if name == "again":
        same = [int(extent) for extent in sums.shape] == shape
        return topi.add(read, sums) if same else topi.add(read, read)
    if name == "cast":
        return topi.cast(topi.cast(topi.round(read), "int32"), dtype)
    if name == "turned":
        return topi.transpose(read)
    if name == "one more":
        return topi.expand_dims(read, axis=len(shape) // 2)
    if name == "one less":
        return topi.squeeze(read, axis=shape.index(1)) if 1 in shape and len(shape) > 2 else read
    if name == "merged" and len(shape) > 1:
        return topi.reshape(read, (*shape[:-2], shape[-2] * shape[-1]))
    if name == "split":
        return topi.reshape(read, (*shape[:-1], 1, shape[-1]))
    if name == "twice as wide":
        return topi.tile(read, (*[1] * (len(shape) - 1), 2))
    if name == "late":
        return te.compute(shape, lambda *at: read[(*at[:-1], tvm.te.max(at[-1] - 1, 0))], name="late")
    if name == "backwards":
        return te.compute(shape, lambda *at: read[(*at[:-1], shape[-1] - 1 - at[-1])], name="backwards")
    if name == "summed":
        return topi.sum(read, axis=-1, keepdims=True)
    if name == "repeated":
        return te.compute((2, *shape), lambda *at: read[at[1:]], name="repeated")
    if name == "first row":
        return te.compute(shape, lambda *at: read[(0, *at[1:])], name="first")
    is_square = len(shape) > 1 and shape[-1] == shape[-2]
    place = (lambda at: (*at[:-2], at[-1], at[-2])) if is_square else (lambda at: at)
    return te.compute(shape, lambda *at: read[place(at)] + read[at], name="exchanged")


def module_of(shape: Sequence[int], steps: Sequence[str]) -> Any:
    """Sums of products of this shape, and what follows them."""
    import tvm
    from tvm import te

    data, weight = te.placeholder((*shape[:-1], 3), "float32", "data"), te.placeholder((3, shape[-1]), name="weight")
    k = te.reduce_axis((0, 3), "k")

    def element(*at: Any) -> Any:
        return te.sum(data[(*at[:-1], k)] * weight[k, at[-1]], axis=k)

    sums = te.compute(shape, element, name="sums")
    found, operands = sums, [data, weight]
    for each in steps:
        found = step(each, found, sums, operands)
    function = te.create_prim_func([*operands, found], index_dtype_override="int64")
    function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1]})
    return tvm.IRModule({"main": function})


def check(module: Any) -> bool:
    """Whether what follows the sum is read; what is said of it must be what is computed."""
    from tvm import tirx

    from kintune.compiler.kernels.reading import joined

    found = joined(module)
    if found is None or found.epilogue is None:
        assert found is None or len(found.found.nests) == len(found.found.replaced), "a block that follows is left out"
        return False
    epilogue, params = found.epilogue, found.module["main"].params
    assert params[found.data_position].same_as(found.found.data)
    assert params[found.result_position].same_as(epilogue.target)
    kept = {str(params[at].name) for at in found.keepable}
    read = {str(each.name) for each in epilogue.operands} - {"weight"}
    assert kept == {"data", *read, *([str(epilogue.target.name)] if epilogue.is_vectorised else [])}
    random = np.random.default_rng(0)
    memory = interpreted(
        found.module,
        {
            str(each.name): random.integers(-9, 10, list(map(int, each.shape))) * 0.25
            for each in found.module["main"].params
        },
    )
    source = memory[str(epilogue.source.name)]
    axes = [tirx.Var(f"at{axis}", "int64") for axis in range(source.ndim)]
    element = tirx.Var("element", "float32")
    values = {**dict(zip(axes, np.indices(source.shape), strict=True)), element: source}
    buffers = {each: memory[str(each.name)] for each in epilogue.operands}
    assert not any(each.same_as(epilogue.source) for each in buffers)
    place = [np.broadcast_to(evaluate(each, values, {}), source.shape) for each in epilogue.indices_of(axes)]
    stored = np.full(memory[str(epilogue.target.name)].shape, np.nan)
    stored[tuple(place)] = evaluate(epilogue.value_of(element, axes), values, buffers)
    np.testing.assert_array_equal(stored, memory[str(epilogue.target.name)])
    if epilogue.is_vectorised:
        assert all(np.all(np.diff(index, axis=-1) == (index is place[-1])) for index in place)
    statement = epilogue.store(element, axes)
    assert statement.buffer.same_as(epilogue.target)
    assert [str(index) for index in statement.indices] == [str(index) for index in epilogue.indices_of(axes)]
    return True


SHAPES = st.sampled_from(
    ((4, 3), (1, 4), (4, 1), (2, 3, 3), (1, 5, 2), (2, 1, 3), (2, 2, 1, 2), (1, 1, 1, 3), (1,) * 4)
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=SHAPES, steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))
def test_an_epilogue_is_what_follows(shape: tuple[int, ...], steps: list[str]) -> None:
    """One that moves elements between axes of the result may be read or not; others are read in any case."""
    known = check(module_of(shape, steps))
    assert known or not set(steps) <= {"bias", "residual", "relu", "scale", "again", "row", "cast"}


@pytest.mark.parametrize("name", STEPS)
def test_what_is_none_is_not_read(name: str) -> None:
    assert check(module_of((2, 3, 3), [name, "relu"])) == (name not in UNLIKE)


@pytest.mark.parametrize(("rows", "known"), [(1, True), (2, False)])
def test_the_first_row_alone_is_no_epilogue_of_several(rows: int, known: bool) -> None:
    import tvm
    from tvm import te

    data, weight = te.placeholder((rows, 3), "float32", "data"), te.placeholder((3, 4), "float32", "weight")
    k = te.reduce_axis((0, 3), "k")
    sums = te.compute((rows, 4), lambda r, f: te.sum(data[r, k] * weight[k, f], axis=k), name="sums")
    first = te.compute((4,), lambda at: sums[0, at] + 1.0, name="first")
    function = te.create_prim_func([data, weight, first], index_dtype_override="int64")
    function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1]})
    assert check(tvm.IRModule({"main": function})) == known


@pytest.mark.parametrize(("by", "known"), [((3, 3), True), ((4, 3), False), ((3, 4), False), ((4, 4), False)])
def test_the_last_two_axes_are_one_by_the_extent_of_the_last(by: tuple[int, int], known: bool) -> None:
    import tvm
    from tvm import te

    module = module_of((4, 3), [])
    data, weight, _ = (te.placeholder(tuple(map(int, p.shape)), name=str(p.name)) for p in module["main"].params)
    k = te.reduce_axis((0, 3), "k")
    sums = te.compute((4, 3), lambda r, f: te.sum(data[r, k] * weight[k, f], axis=k), name="sums")
    merged = te.compute((12,), lambda at: sums[at // by[0], at % by[1]] + 1.0, name="merged")
    late = te.compute((11,), lambda at: sums[(at + 1) // by[0], (at + 1) % by[1]] + 1.0, name="late")
    fewer = te.compute((9,), lambda at: sums[at // by[0], at % by[1]] + 1.0, name="fewer")
    for result, is_known in ((merged, known), (late, False), (fewer, False)):
        function = te.create_prim_func([data, weight, result], index_dtype_override="int64")
        function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1]})
        assert check(tvm.IRModule({"main": function})) == is_known


def test_the_last_two_axes_may_be_one_of_the_result() -> None:
    """As in a sum of groups, whose filters are one axis behind it."""
    from kintune.compiler.kernels.reading import joined
    from tests.support.convolutions import Case, workload

    module = workload(Case(channels=12, filters=8, groups=4, group_axis=True, after=("bias", "relu")))
    found = joined(module, kinds=("grouped",))
    assert found is not None
    assert found.epilogue is not None
    assert found.epilogue.split == 2
