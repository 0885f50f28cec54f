"""A block that copies a tensor with a border around it is read as such just where it does that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.interpreter import interpreted

pytestmark = pytest.mark.tvm

FORMS = ("greater or equal", "greater", "less or equal", "less")
DEFECTS = (
    *("late", "early", "narrow", "wide", "turned", "axes exchanged", "doubled", "either", "cast", "computed", "summed"),
    *("negative", "cropped", "the border is read", "longer", "nested the other way"),
)


def block_of(
    shape: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    forms: tuple[str, str],
    defect: str,
    value: float,
) -> Any:
    """A function of one block: data with `before` and `after` elements of a value around, or nearly so."""
    import tvm
    from tvm import te, tirx

    low, high = forms
    data = te.placeholder(shape, "float32", "data")
    border = te.placeholder((1,), "float32", "border")
    whole = [b + n + a for b, n, a in zip(before, shape, after, strict=True)]
    whole[-1] += defect == "longer"
    if defect == "cropped":
        whole[0] = shape[0] - 1
    shift = {"late": 1, "early": -1}.get(defect, 0)

    def element(*at: Any) -> Any:
        conditions = []
        for axis, (v, start, extent) in enumerate(zip(at, before, shape, strict=True)):
            first, last = start, start + extent - 1
            if not axis:
                first, last = first + (defect == "narrow"), last + (defect == "wide")
            if start or defect:
                conditions.append(
                    {
                        FORMS[0]: v >= first,
                        FORMS[1]: v > first - 1,
                        FORMS[2]: first <= v,
                        FORMS[3]: first - 1 - start < v - start,
                    }[low]
                )
            if whole[axis] > start + extent or defect:
                conditions.append(
                    {
                        FORMS[0]: last >= v,
                        FORMS[1]: last + 1 > v,
                        FORMS[2]: v <= last,
                        FORMS[3]: v - start < last + 1 - start,
                    }[high]
                )
        place = [v - start for v, start in zip(at, before, strict=True)]
        place[0] = place[0] + shift
        if defect == "turned":
            place[0] = before[0] + shape[0] - 1 - at[0]
        elif defect == "axes exchanged":
            place = place[::-1]
        elif defect == "doubled":
            place[0] = place[0] * 2
        elif defect == "cropped":
            place[0] = at[0] + 1
        elif defect == "negative":
            place[0] = -place[0]
        read = data[tuple(place)]
        around = border[0] if defect == "the border is read" else tirx.const(value, "float32")
        if defect == "cast":
            read, around = read.astype("float64"), around.astype("float64")
        if defect == "computed":
            read = read + tirx.const(1.0, "float32")
        if not conditions:
            return read
        if defect == "nested the other way":
            return tirx.if_then_else(functools.reduce(lambda a, b: tirx.And(b, a), conditions[::-1]), read, around)
        joined = tirx.any(*conditions) if defect == "either" and len(conditions) > 1 else tirx.all(*conditions)
        return tirx.if_then_else(joined, read, around)

    if defect == "summed":
        k = te.reduce_axis((0, 1), "k")
        padded = te.compute(whole, lambda *at: te.sum(element(*at) + k * 0.0, axis=k), name="padded")
    else:
        padded = te.compute(whole, element, name="padded")
    function = te.create_prim_func([data, border, padded], index_dtype_override="int64")
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def check(module: Any) -> bool:
    """Whether a block is read as one that copies; what is said of it must be what it computes."""
    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.kernels.padding_block import padding_of

    (nest,) = nests_of(module["main"]) or []
    found = padding_of(nest)
    if found is None:
        return False
    data, border = np.arange(1.0, 1 + np.prod([int(n) for n in found.data.shape])), np.array([5.0])
    image = data.reshape([int(n) for n in found.data.shape])
    memory = interpreted(module, {"data": image, "border": border})
    value = 0.0 if found.value is None else getattr(found.value, "value", 5.0)
    assert found.is_any == any((*found.before, *found.after))
    assert (found.value is None) <= (not found.is_any)
    widths = list(zip(found.before, found.after, strict=True))
    np.testing.assert_array_equal(memory["padded"], np.pad(image, widths, constant_values=float(value)))
    return True


_shape = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
_few = st.tuples(*[st.integers(0, 2)] * 3)
_forms = st.tuples(st.sampled_from(FORMS), st.sampled_from(FORMS))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(_shape, _few, _few, _forms, st.sampled_from((0.0, -2.5)))
def test_a_border_is_what_its_reading_says(shape: Any, before: Any, after: Any, forms: Any, value: float) -> None:
    assert check(block_of(shape, before, after, forms, "", value))


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_is_no_border_of_one_value_is_not_read(defect: str) -> None:
    known = check(block_of((3, 3, 3), (1, 0, 1), (1, 0, 2), (FORMS[0], FORMS[3]), defect, 0.0))
    assert known == (defect in ("the border is read", "longer", "nested the other way"))


def test_a_copy_to_more_axes_is_no_border() -> None:
    import tvm
    from tvm import te, tirx

    data, border = te.placeholder((3, 3), "float32", "data"), te.placeholder((1,), "float32", "border")
    padded = te.compute(
        (3, 4, 2),
        lambda i, j, k: tirx.if_then_else(tirx.all(j < 3, k < 1), data[i, j], tirx.const(0.0, "float32")),
        name="padded",
    )
    function = te.create_prim_func([data, border, padded], index_dtype_override="int64")
    assert not check(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))


NESTED: dict[str, Callable[..., Any]] = {
    "the last ones together": lambda both, a, b, c, d: both(a, both(b, both(c, d))),
    "the first ones together": lambda both, a, b, c, d: both(both(both(a, b), c), d),
    "two and two": lambda both, a, b, c, d: both(both(a, b), both(c, d)),
}


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("of_the_data", [False, True])
def test_conditions_are_read_in_whatever_form_they_are_written(nested: str, is_strict: bool, of_the_data: bool) -> None:
    """A sum of TVM's has them simplified."""
    import tvm
    from tvm import tirx

    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.kernels.padding_block import padding_of

    module = block_of((3, 3), (1, 2), (2, 1), (FORMS[0], FORMS[3]), "", -2.5)
    (nest,) = nests_of(module["main"]) or []
    block = nest.block
    _, inside, outside = block.body.value.args
    conditions = []
    for variable, before in zip(block.iter_vars, (1, 2), strict=True):
        at, first = (variable.var - before, 0) if of_the_data else (variable.var, before)
        conditions += [at > first - 1 if is_strict else at >= first, at < first + 3 if is_strict else at <= first + 2]
    condition = NESTED[nested](tirx.And, *conditions)
    body = tirx.BufferStore(block.body.buffer, tirx.if_then_else(condition, inside, outside), block.body.indices)
    changed = tvm.s_tir.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, body)
    found = padding_of(nest._replace(block=changed))
    assert found is not None
    assert (found.before, found.after) == ((1, 2), (2, 1))
