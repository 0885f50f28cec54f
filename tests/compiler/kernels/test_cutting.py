"""A function cut in two: both parts one after the other compute what the whole does; other functions are not cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.interpreter import interpreted
from tests.support.sums import SUMS

pytestmark = pytest.mark.tvm

WHOLE = ("no norm", "norm is a result's", "sum is a result's", "two are computed", "sums before")
"""Functions that have no prologue: what the product reads is read by others too, or there are other sums."""


def module_of(form: str) -> Any:
    """A product of rows that have their sum added, or nearly that; `form` is of `WHOLE`, empty, or "sums behind"."""
    import tvm
    from tvm import te, topi

    data, weight = te.placeholder((2, 3), "float32", "data"), te.placeholder((3, 3), "float32", "weight")
    k, j = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 3), "j")
    total = te.compute((2,), lambda row: te.sum(data[row, k], axis=k), name="total")
    normed = te.compute((2, 3), lambda row, c: data[row, c] + total[row], name="normed")
    read, by = normed, weight
    if form in ("no norm", "sums before"):
        read = topi.nn.relu(data)
    if form == "two are computed":
        by = topi.nn.relu(weight)
    sums = te.compute((2, 3), lambda row, f: te.sum(read[row, j] * by[j, f], axis=j), name="sums")
    result = topi.add(sums, tvm.tirx.const(1.0, "float32"))
    if form == "norm is a result's":
        result = topi.add(sums, normed)
    elif form in ("sum is a result's", "sums before"):
        result = topi.add(sums, topi.expand_dims(total, 1))
    elif form == "sums behind":
        n = te.reduce_axis((0, 3), "n")
        result = te.compute((2,), lambda row: te.sum(result[row, n] * weight[0, n], axis=n), name="behind")
    function = te.create_prim_func([data, weight, result], index_dtype_override="int64")
    function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1]})
    return tvm.IRModule({"main": function})


def check(module: Any) -> bool:
    """Whether a function is cut; the parts must compute what the whole does."""
    import tvm

    from kintune.compiler.kernels.blocks import loads_in, nests_of
    from kintune.compiler.kernels.cutting import cut, has_prologue, restored
    from kintune.compiler.space.weights import weight_positions

    whole = module["main"]
    parts = cut(whole)
    assert has_prologue(whole) == (parts is not None)
    if parts is None:
        return False
    rest, prologue = parts
    *given, result = whole.params
    data = rest.params[-1]
    assert prologue.params[-1].same_as(data)
    assert all(a.same_as(b) for a, b in zip(rest.params, whole.params, strict=False))
    random = np.random.default_rng(0)
    arrays = {str(each.name): random.integers(0, 4, list(map(int, each.shape))) * 1.0 for each in given}
    memory = interpreted(module, arrays)
    first = interpreted(tvm.IRModule({"main": prologue}), arrays)
    np.testing.assert_array_equal(first[str(data.name)], memory[str(data.name)])
    second = interpreted(tvm.IRModule({"main": rest}), {**arrays, str(data.name): first[str(data.name)]})
    np.testing.assert_array_equal(second[str(result.name)], memory[str(result.name)])
    nests = [nests_of(part) or [] for part in (rest, prologue)]
    written = [nest.block.body.buffer for part in nests for nest in part]
    assert len(written) == len(set(written)) == len(nests_of(whole) or [])
    allocated = [list(part.body.block.alloc_buffers) for part in (rest, prologue)]
    assert all(each in written and not each.same_as(data) for part in allocated for each in part)
    read = [load.source for load in loads_in(prologue.body)]
    free = [at for at in weight_positions(whole) if whole.params[at] not in read]
    back = restored(tvm.IRModule({"main": rest}), prologue)["main"]
    assert list(back.params) == list(whole.params)
    assert sorted(weight_positions(back)) == sorted(free)
    assert restored(module, None).same_as(module)
    return True


@pytest.mark.parametrize("form", ["", "sums behind", *WHOLE])
def test_what_others_read_too_is_not_cut_off(form: str) -> None:
    assert check(module_of(form)) == (form not in WHOLE)


def test_a_sum_with_a_prologue_is_read_by_those_that_ask_for_it() -> None:
    from kintune.compiler.kernels.reading import joined, require
    from kintune.errors import BuildError

    module = module_of("")
    assert joined(module) is None
    with pytest.raises(BuildError):
        require(module)
    found = joined(module, prologues=True)
    assert found is not None
    assert found.found.prologue is not None
    assert require(module, prologues=True).found.prologue is not None


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_parts_compute_what_the_whole_does(data: st.DataObject) -> None:
    assert check(data.draw(st.one_of(SUMS["rows of a norm"], SUMS["few bits of a norm"])).module())
    assert not check(data.draw(st.one_of(SUMS["product"], SUMS["few bits"])).module())
