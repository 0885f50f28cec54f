"""Functions written in passes over rows compute what numpy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.networks import lower_operator

if TYPE_CHECKING:
    import tvm

pytestmark = pytest.mark.tvm


def _run(function: tvm.tirx.PrimFunc, target: tvm.target.Target, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The last argument after a call."""
    import tvm

    from kintune.compiler.graph.own_rules import own_rules

    with own_rules(target):
        built = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*tensors)
    return np.asarray(tensors[-1].numpy())


def _legalised(shape: tuple[int, ...], operator: Callable[[Any], Any], target: tvm.target.Target) -> Any:
    """The PrimFunc of an operator of one tensor of float32, as a network has it after fusion."""
    import tvm

    functions = [f for _, f in lower_operator(shape, operator, target).module.functions_items()]
    (function,) = [function for function in functions if isinstance(function, tvm.tirx.PrimFunc)]
    return function


def _softmax(x: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 197), 1), ((2, 3, 4, 64), 3), ((2, 49, 130), 1), ((1, 7, 5), 1), ((5, 2), 1), ((1, 1000), 1), ((4, 9, 5), 0)],
)
def test_softmax(shape: tuple[int, ...], axis: int, cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32) * 5
    written = write_rows(_legalised(shape, lambda v: relax.op.nn.softmax(v, axis), cpu))
    assert written is not None
    found = _run(written, cpu, x, np.zeros(shape, np.float32))
    np.testing.assert_allclose(found, _softmax(x, axis), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 300), [1]), ((2, 4, 5, 70), [2, 3]), ((2, 30, 70), [1]), ((6, 1), [1]), ((3, 5, 20, 1), [1, 2, 3])],
)
def test_reductions(name: str, shape: tuple[int, ...], axes: list[int], cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    wanted = getattr(np, name)(x, axis=tuple(axes))
    written = write_rows(_legalised(shape, lambda v: getattr(relax.op, name)(v, axes), cpu))
    assert written is not None
    np.testing.assert_allclose(_run(written, cpu, x, np.zeros_like(wanted)), wanted, rtol=1e-5, atol=1e-6)


def test_extremes_keep_nan(cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal((130, 130), dtype=np.float32)
    x[np.arange(130), np.arange(130)] = np.nan
    written = write_rows(_legalised(x.shape, lambda v: relax.op.max(v, [1]), cpu))
    assert written is not None
    assert np.isnan(_run(written, cpu, x, np.zeros(130, np.float32))).all()


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "axis", "keep"), [((9, 130), 1, True), ((3, 7, 70), 1, False), ((5, 6), 1, False)])
def test_indices_of_extremes(name: str, shape: tuple[int, ...], axis: int, keep: bool, cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).choice(np.array([-np.inf, 0, 1, np.inf], np.float32), shape)
    x[0], x[1], x[2, ..., -1] = -np.inf, np.inf, np.nan
    wanted = getattr(np, name)(x, axis, keepdims=keep)
    written = write_rows(_legalised(shape, lambda v: getattr(relax.op, name)(v, axis, keep), cpu))
    assert written is not None
    np.testing.assert_array_equal(_run(written, cpu, x, np.zeros_like(wanted)), wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_one_number_read_what_was_computed_before(axis: int, cpu: tvm.target.Target) -> None:
    """Of a maximum that keeps NaN, for example, which asks whether its first operand is a number."""
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal((70, 70), dtype=np.float32)

    def network(v: Any) -> Any:
        return relax.op.nn.softmax(relax.op.maximum(relax.op.add(v, v), v), axis)

    written = write_rows(_legalised(x.shape, network, cpu))
    assert written is not None
    found = _run(written, cpu, x, np.zeros_like(x))
    np.testing.assert_allclose(found, _softmax(np.maximum(x + x, x), axis), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [4, 70])
def test_truth_values_of_neighbouring_rows(count: int, cpu: tvm.target.Target) -> None:
    """TVM makes no vectors of truth values that it loads."""
    from tvm import te

    from kintune.compiler.programs.rows import write_rows

    x, limit = te.placeholder((2, count), "float32", name="x"), te.placeholder((count,), "float32", name="limit")
    along = te.reduce_axis((0, 2), "along")
    total = te.compute((count,), lambda row: te.sum(x[along, row], axis=along), name="total")
    above = te.compute((count,), lambda row: total[row] >= limit[row], name="above")
    written = write_rows(te.create_prim_func([x, limit, above], index_dtype_override="int64"))
    assert written is not None
    data, limits = np.random.default_rng(1).standard_normal((3, count), dtype=np.float32)[:2], np.zeros(count, "f4")
    found = _run(written, cpu, data, limits, np.zeros(count, bool))
    np.testing.assert_array_equal(found, data.sum(0) >= limits)


@pytest.mark.parametrize("by", ["element", "column", "row"])
@pytest.mark.parametrize("adjacent", ["columns", "rows"])
def test_sums_of_what_is_chosen(by: str, adjacent: str, cpu: tvm.target.Target) -> None:
    """By conditions that differ from lane to lane: TVM bound the value of the last lane for all."""
    from tvm import te, tirx

    from kintune.compiler.programs.rows import write_rows

    x = te.placeholder((70, 70), "float32", name="x")
    conditions = {"element": lambda own, _row, _column: own > 0, "column": lambda _own, _row, column: column < 50}
    condition = conditions.get(by, lambda _own, row, _column: row < 50)

    def chosen(row: Any, column: Any) -> Any:
        own = x[row, column] if adjacent == "columns" else x[column, row]
        return tirx.if_then_else(condition(own, row, column), own, tirx.const(0, "float32"))

    each = te.compute(x.shape, chosen, name="chosen")
    along = te.reduce_axis((0, 70), "along")
    total = te.compute((70,), lambda row: te.sum(each[row, along], axis=along), name="total")
    function = te.create_prim_func([x, total], index_dtype_override="int64")
    data = np.random.default_rng(1).standard_normal((70, 70), dtype=np.float32)
    rows = data if adjacent == "columns" else data.T
    places = np.arange(70)
    wanted = np.where({"element": rows > 0, "column": places < 50, "row": places[:, None] < 50}[by], rows, 0).sum(1)
    written = write_rows(function) or function
    np.testing.assert_allclose(_run(written, cpu, data, np.zeros(70, np.float32)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize(("shape", "axis"), [((6, 33), 1), ((5, 300), 1), ((3, 20, 70), 1)])
def test_extremes_of_what_is_computed_keep_nan(
    name: str, shape: tuple[int, ...], axis: int, cpu: tvm.target.Target
) -> None:
    """Of differences, and of the larger of two numbers, neither of which is a tensor in memory."""
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    x[0, ..., 3], x[1], x[2, ..., 0] = np.nan, np.inf, -np.inf

    def both(v: Any) -> Any:
        shifted = relax.op.subtract(v, relax.const(2.0, "float32"))
        return getattr(relax.op, name)(relax.op.maximum(shifted, relax.op.multiply(v, v)), [axis])

    written = write_rows(_legalised(shape, both, cpu))
    assert written is not None
    wanted = getattr(np, name)(np.maximum(x - 2, x * x), axis=axis)
    np.testing.assert_allclose(_run(written, cpu, x, np.zeros_like(wanted)), wanted, rtol=1e-6)
    assert "isnan" not in str(written), "the compiler would take each element by itself"


@pytest.mark.parametrize("shape", [(1, 8, 4, 64), (3, 5), (1, 1, 300), (7,), (2, 4, 1, 1), (300, 1, 2, 1)])
def test_element_by_element(shape: tuple[int, ...], cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)

    def swish_and_more(v: Any) -> Any:
        return relax.op.add(relax.op.multiply(v, relax.op.sigmoid(v)), relax.op.tanh(v))

    written = write_rows(_legalised(shape, swish_and_more, cpu))
    assert written is not None
    found = _run(written, cpu, x, np.zeros(shape, np.float32))
    np.testing.assert_allclose(found, x / (1 + np.exp(-x)) + np.tanh(x), rtol=1e-5, atol=1e-6)


def test_what_is_read_under_a_condition_stays_there(cpu: tvm.target.Target) -> None:
    """Padding after a function: outside of the operand nothing may be read."""
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    x = np.random.default_rng(1).random((4, 70), dtype=np.float32)
    written = write_rows(_legalised(x.shape, lambda v: relax.op.nn.pad(relax.op.exp(v), [1, 1, 3, 2]), cpu))
    assert written is not None
    found = _run(written, cpu, x, np.zeros((6, 75), np.float32))
    np.testing.assert_allclose(found, np.pad(np.exp(x), [(1, 1), (3, 2)]), rtol=1e-5)


def test_products_are_no_rows(cpu: tvm.target.Target) -> None:
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    assert write_rows(_legalised((8, 8), lambda v: relax.op.matmul(v, v), cpu)) is None


def test_what_a_condition_guards_is_read_under_it(cpu: tvm.target.Target) -> None:
    """What is read around an axis lies outside of the tensor where the condition does not hold."""
    import tvm
    import tvm_ffi
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    def sum_of_neighbours(x: Any) -> Any:
        padded = relax.op.nn.pad(relax.op.multiply(x, x), [0, 0, 1, 1])
        parts = [relax.op.strided_slice(padded, [1], [start], [start + 5]) for start in range(3)]
        return relax.op.add(relax.op.add(parts[0], parts[1]), parts[2])

    function = _legalised((4, 5), sum_of_neighbours, cpu)
    written = write_rows(function)
    assert written is not None
    bound: list[Any] = []
    tvm_ffi.structural_walk(written.body, [(tvm.tirx.Bind, lambda found: bound.append(found.value))])
    guarded = [value for value in bound if "if_then_else" in str(value)]
    assert guarded
    assert all("if_then_else" in str(value) for value in bound if "- " in str(value))
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    squares = np.pad(x * x, ((0, 0), (1, 1)))
    found = _run(written, cpu, x, np.zeros_like(x))
    np.testing.assert_allclose(found, squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:], rtol=1e-6)


def test_values_in_bfloat16_are_left_to_the_compiler(cpu: tvm.target.Target) -> None:
    """It computes them in float32, and changes the types of values but not those of variables."""
    import tvm
    from tvm import relax

    from kintune.compiler.programs.rows import write_rows

    def softmax(v: Any) -> Any:
        return relax.op.astype(relax.op.nn.softmax(relax.op.astype(v, "bfloat16"), 1), "float32")

    functions = [f for _, f in lower_operator((4, 64), softmax, cpu).module.functions_items()]
    written = [write_rows(function) for function in functions if isinstance(function, tvm.tirx.PrimFunc)]
    assert sorted(each is None for each in written) == [False, True]  # a conversion has no variables


@pytest.mark.parametrize("shape", [(3,), (8, 8), (3, 197), (64, 64)])
def test_tensors_in_bfloat16_are_widened(shape: tuple[int, ...], cpu: tvm.target.Target) -> None:
    """Not their bits as an integer, which is what the compiler makes of a variable that is bound to them."""
    import ml_dtypes
    from tvm import te, tirx, topi

    from kintune.compiler.programs.rows import write_rows

    narrow = np.random.default_rng(1).standard_normal(shape).astype(ml_dtypes.bfloat16)
    values = narrow.astype(np.float32)
    x = te.placeholder(shape, "bfloat16", "x")
    wide = topi.cast(x, "float32")
    for result, wanted in (
        (topi.multiply(wide, tirx.const(2.0, "float32")), values * 2),
        (topi.nn.softmax(wide, -1), _softmax(values, -1)),
        (topi.sum(wide, -1), values.sum(-1)),
        (topi.sum(topi.multiply(wide, wide), 0), (values * values).sum(0)),
    ):
        written = write_rows(te.create_prim_func([x, result], index_dtype_override="int64"))
        assert written is not None
        found = _run(written, cpu, narrow, np.zeros(np.shape(wanted), np.float32))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_grows_too_large_is_no_rows() -> None:
    """It is found deep inside of an expression, while several are visited."""
    from tvm import te, tirx

    from kintune.compiler.programs.row_passes import read_rows

    def blurred(y: Any) -> Callable[[Any, Any], Any]:
        return lambda row, i: tirx.if_then_else(i < 63, y[row, i] + y[row, tirx.min(i + 1, 63)], y[row, i])

    x = y = te.placeholder((8, 64), name="x")
    for level in range(12):
        y = te.compute((8, 64), blurred(y), name=f"y{level}")
    assert read_rows(te.create_prim_func([x, y], index_dtype_override="int64")) is None


@pytest.mark.parametrize("length", [50, 400])
def test_chains_too_long_for_recursion_are_no_rows(length: int) -> None:
    from tvm import te

    from kintune.compiler.programs.row_passes import read_rows

    def moved(y: Any) -> Callable[[Any, Any], Any]:
        return lambda row, i: y[row, i] * 0.5 + 1.0

    x = y = te.placeholder((8, 64), name="x")
    for level in range(length):
        y = te.compute((8, 64), moved(y), name=f"y{level}")
    rows = read_rows(te.create_prim_func([x, y], index_dtype_override="int64"))
    assert (rows is None) is (length == 400)


def _softmax_of(axis: int) -> Callable[[Any], Any]:
    from tvm import relax

    return lambda v: relax.op.nn.softmax(v, axis)


def _mean_of(axes: list[int]) -> Callable[[Any], Any]:
    from tvm import relax

    return lambda v: relax.op.mean(v, axes)


OPEN = [
    pytest.param(lambda n: (2, n, 70), lambda: _softmax_of(2), id="softmax"),
    pytest.param(lambda n: (n, 3, 5), lambda: _softmax_of(2), id="short rows"),
    pytest.param(lambda n: (n, 4, 48), lambda: _mean_of([1, 2]), id="mean"),
]


@pytest.mark.parametrize(("shape", "operator"), OPEN)
def test_one_function_computes_any_number_of_rows(shape: Any, operator: Any, cpu: tvm.target.Target) -> None:
    """The same as that which is written for the number, but for the last digit: products and sums may be one."""
    import tvm

    from kintune.compiler.graph.generalise import generalise
    from kintune.compiler.programs.row_program import RowProgram

    points = (24, 41, 64, 300)
    functions = {
        n: _legalised(shape(n), operator(), cpu).with_attr("global_symbol", "main") for n in (*points, 1, 2, 97)
    }
    modules = {n: tvm.IRModule({"main": function}) for n, function in functions.items()}
    written = RowProgram().open_ended([modules[n] for n in points], "64", ())
    general, doubts = generalise(written, [{"n": n} for n in points])
    assert not doubts
    built = tvm.compile(general, cpu)
    for n, module in modules.items():
        own = RowProgram().write(module, "64", ())["main"]
        x = np.random.default_rng(n).standard_normal(shape(n), dtype=np.float32)
        result = np.zeros([int(extent) for extent in own.params[-1].shape], np.float32)
        given = [tvm.runtime.tensor(each) for each in (x, result)]
        built["main"](*given)
        np.testing.assert_allclose(given[-1].numpy(), _run(own, cpu, x, result), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("shape", "axis"), [((3, 0), 1), ((0, 5), 0)])
def test_rows_of_any_length_are_refused(shape: tuple[int, ...], axis: int, cpu: tvm.target.Target) -> None:
    """As are rows whose elements do not lie side by side: these are computed many together."""
    import tvm

    from kintune.compiler.programs.row_program import RowProgram
    from kintune.errors import BuildError

    lengths = [tuple(extent or n for extent in shape) for n in (40, 64)] if axis else [(40, 5), (40, 9)]
    modules = [tvm.IRModule({"main": _legalised(each, _softmax_of(axis), cpu)}) for each in lengths]
    with pytest.raises(BuildError, match="known extents alone"):
        RowProgram().open_ended(modules, "64", ())
