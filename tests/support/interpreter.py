"""Runs a function of simple blocks by numpy, in float64, step by step of its sums: nothing of ours is in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["computed", "evaluate", "interpreted"]

Array = np.ndarray[Any, Any]


def computed(module: Any, arrays: Sequence[Array]) -> Array:
    """What `main` stores in its last parameter, from arrays for the others."""
    *_, result = _run(module["main"], arrays).values()
    return result


def interpreted(module: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """All buffers of `main` after it ran on these arrays, by name; what is not among them begins with zeros."""
    function = module["main"]
    memory = _run(function, [arrays.get(str(parameter.name)) for parameter in function.params])
    return {str(buffer.name): array for buffer, array in memory.items()}


def _run(function: Any, arrays: Sequence[Array | None]) -> dict[Any, Array]:
    """The contents of the buffers; the last one is that of the last parameter."""
    import tvm

    root = function.body.block
    memory: dict[Any, Array] = {}
    given = dict(zip(function.params, arrays, strict=False))
    for buffer in [*root.alloc_buffers, *function.params]:
        shape, dtype = tuple(int(extent) for extent in buffer.shape), np.dtype(str(buffer.dtype))
        array = given.get(buffer)
        wide = np.float64 if dtype.kind == "f" else dtype
        memory[buffer] = np.zeros(shape, wide) if array is None else array.astype(wide).reshape(shape)
    statements = list(root.body.seq) if isinstance(root.body, tvm.tirx.SeqStmt) else [root.body]
    for statement in statements:
        while isinstance(statement, tvm.tirx.For):
            statement = statement.body
        _run_block(statement.block, memory)
    return memory


def _run_block(block: Any, memory: dict[Any, Array]) -> None:
    """Run a block for all values of its variables that do not reduce at once."""
    import tvm

    reduces = [int(each.iter_type) == tvm.tirx.IterVar.CommReduce for each in block.iter_vars]
    kept = [each for each, reduced in zip(block.iter_vars, reduces, strict=True) if not reduced]
    over = [each for each, reduced in zip(block.iter_vars, reduces, strict=True) if reduced]
    shape = tuple(int(each.dom.extent) for each in kept)
    axes = np.indices(shape, sparse=True) if shape else ()
    values = dict(zip((each.var for each in kept), axes, strict=True))
    for number, point in enumerate(itertools.product(*(range(int(each.dom.extent)) for each in over))):
        values |= dict(zip((each.var for each in over), point, strict=True))
        for store in [block.init, block.body] if block.init is not None and not number else [block.body]:
            place = tuple(evaluate(index, values, memory) for index in store.indices)
            memory[store.buffer][place] = evaluate(store.value, values, memory)


def evaluate(node: Any, values: Mapping[Any, Any], memory: Mapping[Any, Array], *, guarded: bool = False) -> Any:
    """An expression for these values of its variables, which may be arrays.

    Where it is `guarded` by a condition, what would be read outside of a tensor is any value.
    """
    import tvm

    def of(part: Any, *, inside: bool = guarded) -> Any:
        return evaluate(part, values, memory, guarded=inside)

    if isinstance(node, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return node.value
    if node in values:
        return values[node]
    if (pair := _PAIRS.get(type(node).__name__)) is not None:
        return pair(of(node.a), of(node.b))
    if isinstance(node, tvm.ir.TensorLoad):
        source = memory[node.source]
        place = [of(index) for index in node.indices]
        if guarded:
            place = [np.clip(index, 0, extent - 1) for index, extent in zip(place, source.shape, strict=True)]
        return source[tuple(place)]
    if isinstance(node, tvm.tirx.Cast):
        dtype = np.dtype(str(node.ty.dtype))
        return np.asarray(of(node.value)).astype(np.float64 if dtype.kind == "f" else dtype)
    if isinstance(node, tvm.tirx.Not):
        return np.logical_not(of(node.a))
    if isinstance(node, tvm.tirx.Select):
        return np.where(of(node.condition), of(node.true_value), of(node.false_value))
    if isinstance(node, tvm.ir.Call):
        name = str(node.op.name).rpartition(".")[2]
        if name == "if_then_else":
            return np.where(of(node.args[0]), of(node.args[1], inside=True), of(node.args[2], inside=True))
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(of, node.args))
    raise TypeError(f"no meaning of {type(node).__name__}: {node}")


_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "FloorDiv": np.floor_divide,
    "FloorMod": np.mod, "Max": np.maximum, "Min": np.minimum, "And": np.logical_and, "Or": np.logical_or,
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
    "BitwiseAnd": np.bitwise_and, "RShift": np.right_shift,
}  # fmt: skip


def _erf(x: Any) -> Any:
    import math

    return np.vectorize(math.erf, otypes=[float])(x)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "sqrt": np.sqrt,
    "round": np.round, "nearbyint": np.round, "isnan": np.isnan, "shift_right": np.right_shift,
    "bitwise_and": np.bitwise_and, "bitwise_not": np.bitwise_not,
}  # fmt: skip
