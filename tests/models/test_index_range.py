"""What range analysis says about indices, and that compiled operators keep it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm


def ranges_of(make: Any) -> Any:
    """The interval of what `make` computes from an integer input, a narrow one and a float one."""
    from tvm import relax

    from kintune.models.index_range import Ranges

    builder = relax.BlockBuilder()
    inputs = [relax.Var(n, relax.TensorType([2, 6], d)) for n, d in (("i", "int64"), ("b", "uint8"), ("x", "float32"))]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(make(relax.op, relax.const, *inputs))
        builder.emit_func_output(result)
    ranges = Ranges()
    last: Any = None
    for binding in builder.get()["main"].body.blocks[0].bindings:
        ranges.note(binding.var, binding.value)
        last = binding.var
    return ranges.of(last)


def of(value: int) -> Any:
    return np.int64(value)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda op, c, i, b, x: op.argmax(x, 1), (0, 5)),
        (lambda op, c, i, b, x: op.argsort(x, 1), (0, 5)),
        (lambda op, c, i, b, x: op.topk(x, 2, ret_type="indices"), (0, 5)),
        (lambda op, c, i, b, x: op.floor_mod(i, c(of(4), "int64")), (0, 3)),
        (lambda op, c, i, b, x: op.mod(i, c(of(4), "int64")), (-3, 3)),
        (lambda op, c, i, b, x: op.clip(i, -2, 7), (-2, 7)),
        (lambda op, c, i, b, x: op.maximum(op.minimum(i, c(of(7), "int64")), c(of(0), "int64")), (0, 7)),
        (lambda op, c, i, b, x: op.multiply(op.astype(b, "int64"), c(of(-2), "int64")), (-510, 0)),
        (lambda op, c, i, b, x: op.cumsum(op.astype(op.equal(i, c(of(1), "int64")), "int64"), 1), (0, 6)),
        (lambda op, c, i, b, x: op.sum(op.astype(b, "int64")), (0, 255 * 12)),
        (lambda op, c, i, b, x: op.concat([op.reshape(op.argmin(x, 0), [6]), c(np.array([9]), "int64")]), (0, 9)),
        (lambda op, c, i, b, x: op.add(b, b), (0, 255)),  # it wraps around
        (lambda op, c, i, b, x: op.add(i, c(of(1), "int64")), None),
        (lambda op, c, i, b, x: op.astype(op.clip(x, 0, 3), "int64"), None),  # what is not a number stays that
    ],
)
def test_intervals(make: Any, expected: Any) -> None:
    assert ranges_of(make) == expected


def test_a_maximum_of_nothing_is_not_known() -> None:
    assert ranges_of(lambda op, c, i, b, x: op.max(op.strided_slice(op.clip(i, 2, 7), [1], [0], [0]), 1)) is None


@pytest.mark.parametrize(("dtype", "whole"), [("uint8", (0, 255)), ("int16", (-(1 << 15), (1 << 15) - 1))])
def test_of_constants_that_no_result_copies_the_types_are_known_alone(dtype: str, whole: tuple[int, int]) -> None:
    """Who writes over a result while it runs may put any value there."""
    from kintune.models.index_range import interval_of

    copied = (1 << 16) // np.dtype(dtype).itemsize
    assert interval_of(np.ones(copied, dtype)) == (1, 1)
    assert interval_of(np.ones(copied + 1, dtype)) == whole
    assert interval_of(np.ones(copied + 1, np.int32)) == (1, 1)


SHAPE = (4, 6)


def of_any(op: Any, x: Any) -> dict[str, Any]:
    """Operators of range analysis that take elements of any type."""
    sortable = str(x.ty.dtype) in ("int32", "int64", "float32", "float64")
    return {
        **{f"{name} {axis}": getattr(op, name)(x, axis) for name in ("argmax", "argmin") for axis in (0, 1, None)},
        "argmax, kept": op.argmax(x, 1, True),
        **({f"argsort {down}": op.argsort(x, 1, down, "int64") for down in (0, 1)} if sortable else {}),
        **({"topk": op.topk(x, 3, 1, "indices", True, "int64")} if sortable else {}),
        **({"bottom": op.topk(x, 3, 1, "both", False, "int64")[1]} if sortable else {}),
    }


def of_integers(op: Any, x: Any) -> dict[str, Any]:
    """Those of integers: those that only clip or take remainders are known for every type."""
    from tvm import relax

    dtype = str(x.ty.dtype)
    limits = np.iinfo(dtype)

    def c(value: int) -> Any:
        return relax.const(np.array(value, dtype), dtype)

    clipped, low = op.clip(x, 0, 5), op.clip(x, max(-3, limits.min), 2)
    near = op.maximum(op.minimum(x, c(3)), c(1))
    return {
        "clip": clipped,
        "clip beyond the type": op.clip(x, float(limits.min) * 2 - 3, 7),
        "maximum": near,
        "floor_mod": op.floor_mod(x, c(4)),
        "floor_mod of 3": op.floor_mod(x, c(3)),
        "mod": op.mod(x, c(5)),
        "mod of a variable": op.mod(x, near),
        "add": op.add(clipped, low),
        "subtract": op.subtract(clipped, c(2)),
        "multiply": op.multiply(low, clipped),
        "cumsum": op.cumsum(op.astype(low, "int64"), 1, "int64"),
        "cumsum, exclusive": op.cumsum(op.astype(clipped, "int64"), 0, "int64", True),
        "sum": op.sum(op.astype(low, "int64"), [1]),
        "sum of its type": op.sum(clipped, [0, 1]),
        "astype": op.astype(clipped, "int8"),
        "where": op.where(op.greater(x, c(1)), clipped, low),
        "concat": op.concat([clipped, low], 0),
        "max": op.max(low, 1),
        "min": op.min(clipped, [0]),
        "narrow": op.astype(op.equal(x, c(0)), "int64"),
        "flip": op.flip(clipped, 1),
        **of_elements(op, clipped, dtype),
    }


def of_elements(op: Any, x: Any, dtype: str) -> dict[str, Any]:
    """Operators whose results hold elements of the operand."""
    from tvm import relax

    places = relax.const(np.array([3, 0, 3]), "int64")
    everywhere = relax.const(np.tile([1, 0], (SHAPE[0], SHAPE[1] // 2)), "int64")
    return {
        "reshape": op.reshape(x, [SHAPE[1], SHAPE[0]]),
        "expand_dims": op.expand_dims(x, 0),
        "squeeze": op.squeeze(op.expand_dims(x, 0), [0]),
        "permute_dims": op.permute_dims(x),
        "broadcast_to": op.broadcast_to(op.expand_dims(x, 0), [2, *SHAPE]),
        "strided_slice": op.strided_slice(x, [1], [0], [5], [2]),
        "flatten": op.flatten(x),
        "tile": op.tile(x, [2, 1]),
        "repeat": op.repeat(x, 2, 0),
        "take": op.take(x, places, 1),
        "gather_elements": op.gather_elements(x, everywhere, 1),
        "gather_nd": op.gather_nd(x, relax.const(np.array([[1, 2], [3, 0]]), "int64")),
        "split": op.split(x, 2, 1)[1],
        **({"sort": op.sort(x, 1)} if dtype in ("int32", "int64") else {}),
    }


def operators_of(dtype: str) -> tuple[Any, list[str]]:
    """A network of all operators on a tensor of this type, and their names."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = of_any(relax.op, x) | (of_integers(relax.op, x) if "int" in dtype else {})
            results = {name: builder.emit(value) for name, value in made.items()}
            output = builder.emit_output(relax.Tuple(list(results.values())))
        builder.emit_func_output(output)
    return builder.get(), list(results)


@functools.cache
def compiled(dtype: str) -> tuple[dict[str, Any], Callable[..., Any]]:
    """The intervals that are claimed for operators of a tensor of this type, and a function that runs all of them."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.index_range import Ranges
    from kintune.runtime.target import resolve_target

    module, results = operators_of(dtype)
    ranges = Ranges()
    for binding in module["main"].body.blocks[0].bindings:
        ranges.note(binding.var, binding.value)
    fields = module["main"].body.blocks[0].bindings[-1].value.fields
    claims = {name: ranges.of(field) for name, field in zip(results, fields, strict=True)}
    target = tvm.target.Target(json.loads(resolve_target("native", 1)))
    program = assemble(lower(module, target), {}, target)
    machine = relax.VirtualMachine(program.executable, tvm.cpu())

    def run(values: Any) -> Any:
        found = machine["main"](tvm.runtime.tensor(values), *program.weights)
        return {name: value.numpy() for name, value in zip(results, found, strict=True)}

    return claims, run


def extremes(dtype: str) -> list[Any]:
    if "float" in dtype:
        most = float(np.finfo(dtype).max)
        return [np.nan, -np.inf, np.inf, -most, most, -0.0, 0.0, 1.0]
    limits = np.iinfo(dtype)
    return [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 3]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"])
@compiled_examples(100, deadline=None)
@given(st.data())
def test_compiled_operators_keep_to_their_intervals(dtype: str, data: Any) -> None:
    claims, run = compiled(dtype)
    drawn = st.lists(st.sampled_from(extremes(dtype)), min_size=SHAPE[1], max_size=SHAPE[1])
    whole = st.sampled_from(extremes(dtype)).map(lambda value: [value] * SHAPE[1])  # rows of one value
    rows = data.draw(st.lists(st.one_of(whole, drawn), min_size=SHAPE[0], max_size=SHAPE[0]))
    for name, values in run(np.array(rows, dtype)).items():
        if claims[name] is not None:
            low, high = claims[name]
            assert low <= int(values.min()), name
            assert int(values.max()) <= high, name


def test_what_is_compared_is_known() -> None:
    unknown = {name for name, claim in compiled("int32")[0].items() if claim is None}
    assert not unknown


def test_every_operator_that_is_known_is_compared() -> None:
    """Whoever teaches range analysis an operator compares it here: nothing else may leave out a guard."""
    import inspect

    from kintune.models import index_range

    known = set(re.findall(r"relax\.([a-z_]+)\"", inspect.getsource(index_range))) | {
        name.removeprefix("relax.") for name in index_range._SAME | index_range._CHOICES | set(index_range._COMBINED)
    }
    compared = {
        str(binding.value.op.name).removeprefix("relax.")
        for block in operators_of("int32")[0]["main"].body.blocks
        for binding in block.bindings
        if hasattr(binding.value, "op")
    }
    assert known - compared == set()
