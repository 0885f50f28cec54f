from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def _tiled(rows: int, columns: int, times: int) -> object:
    """A function that repeats a matrix of `rows` rows `times` times."""
    from tvm import te

    source = te.placeholder((rows, columns), "float32", "source")
    made = te.compute((rows * times, columns), lambda i, j: source[i % rows, j], "made")
    return te.create_prim_func([source, made])


def _split(function: object) -> object:
    import tvm

    from kintune.compiler.space.wrapped_loops import split_wrapped_loops

    return split_wrapped_loops(function, tvm.IRModule({}), None)


def test_a_loop_that_wraps_around_a_power_of_two_is_split() -> None:
    assert "T.grid(3, 4, 5)" in str(_split(_tiled(4, 5, 3)))


def test_the_function_that_is_given_stays_as_it_is() -> None:
    import tvm

    from kintune.compiler.space.generator import default_schedule

    module = tvm.IRModule({"main": _tiled(4, 5, 3).with_attr("global_symbol", "main")})  # type: ignore[attr-defined]
    before = str(module.script())
    target = tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
    assert str(default_schedule(module, target).script()) != before
    assert str(module.script()) == before


@pytest.mark.parametrize("rows", [3, 1])
def test_other_loops_stay(rows: int) -> None:
    function = _tiled(rows, 5, 3)
    assert _split(function) is function


def test_a_scheduled_function_stays() -> None:
    function = _tiled(4, 5, 3).with_attr("tirx.is_scheduled", True)  # type: ignore[attr-defined]
    assert _split(function) is function


def test_a_parallel_loop_keeps_its_threads() -> None:
    from tvm.s_tir import Schedule

    schedule = Schedule(_tiled(4, 5, 3))
    block = schedule.get_sblock("made")
    schedule.parallel(schedule.get_loops(block)[0])
    assert "T.parallel(12)" in str(_split(schedule.mod["main"]))


@pytest.mark.parametrize("repeats", [(7, 6, 4, 2), (1, 1, 4, 1), (3, 2, 5, 8)])
def test_untuned_tiles_are_right(repeats: tuple[int, ...]) -> None:
    """LLVM 22 vectorises the first of these wrongly for CPUs with AVX-512."""
    import json

    import tvm
    from tvm import te

    from kintune.compiler.space.generator import default_schedule
    from kintune.runtime.target import NATIVE, resolve_target, untuned_target

    shape = (2, 3, 4, 5)
    whole = tuple(extent * times for extent, times in zip(shape, repeats, strict=True))
    source = te.placeholder(shape, "float32", "source")
    made = te.compute(
        whole, lambda *at: source(*(index % extent for index, extent in zip(at, shape, strict=True))), "made"
    )
    module = tvm.IRModule({"main": te.create_prim_func([source, made]).with_attr("global_symbol", "main")})
    target = untuned_target(tvm.target.Target(json.loads(resolve_target(NATIVE, 1))))
    with target:
        built = tvm.compile(default_schedule(module, target), target=target)
    values = np.random.default_rng(0).random(shape, np.float32)
    result = tvm.runtime.tensor(np.zeros(whole, np.float32))
    built["main"](tvm.runtime.tensor(values), result)
    assert np.array_equal(result.numpy(), np.tile(values, repeats))
