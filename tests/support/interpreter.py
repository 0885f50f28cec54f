"""Runs a function of simple blocks in plain Python, element by element: slow, and nothing of ours is in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["evaluate", "interpreted"]


def interpreted(module: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """All buffers of `main` after it ran on these arrays, by name; what is not among them begins with zeros."""
    import tvm

    function = module["main"]
    root = function.body.block
    memory: dict[Any, np.ndarray[Any, Any]] = {}
    names: dict[Any, str] = {}
    for buffer in [*function.params, *root.alloc_buffers]:
        shape = tuple(int(extent) for extent in buffer.shape)
        memory[buffer] = np.array(arrays.get(buffer.name, np.zeros(shape)), dtype=str(buffer.dtype)).reshape(shape)
        names[buffer] = str(buffer.name)
    statements = list(root.body.seq) if isinstance(root.body, tvm.tirx.SeqStmt) else [root.body]
    for statement in statements:
        while isinstance(statement, tvm.tirx.For):
            statement = statement.body
        _run(statement.block, memory)
    return {names[buffer]: array for buffer, array in memory.items()}


def _run(block: Any, memory: dict[Any, np.ndarray[Any, Any]]) -> None:
    import tvm

    variables = [each.var for each in block.iter_vars]
    reduces = [int(each.iter_type) == tvm.tirx.IterVar.CommReduce for each in block.iter_vars]
    for point in itertools.product(*(range(int(each.dom.extent)) for each in block.iter_vars)):
        values = dict(zip(variables, point, strict=True))
        first = not any(value for value, reduced in zip(point, reduces, strict=True) if reduced)
        for store in [block.init, block.body] if block.init is not None and first else [block.body]:
            place = tuple(int(evaluate(index, values, memory)) for index in store.indices)
            memory[store.buffer][place] = evaluate(store.value, values, memory)


def evaluate(node: Any, values: Mapping[Any, Any], memory: Mapping[Any, np.ndarray[Any, Any]]) -> Any:
    """An expression for these values of its variables."""
    import tvm

    kinds: dict[type[Any], Callable[[Any, Any], Any]] = {
        tvm.tirx.Add: lambda a, b: a + b,
        tvm.tirx.Sub: lambda a, b: a - b,
        tvm.tirx.Mul: lambda a, b: a * b,
        tvm.tirx.FloorDiv: lambda a, b: a // b,
        tvm.tirx.FloorMod: lambda a, b: a % b,
        tvm.tirx.Max: max,
        tvm.tirx.Min: min,
        tvm.tirx.And: lambda a, b: bool(a and b),
        tvm.tirx.LT: lambda a, b: a < b,
        tvm.tirx.LE: lambda a, b: a <= b,
        tvm.tirx.GT: lambda a, b: a > b,
        tvm.tirx.GE: lambda a, b: a >= b,
    }
    if isinstance(node, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return node.value
    if node in values:
        return values[node]
    if type(node) in kinds:
        return kinds[type(node)](evaluate(node.a, values, memory), evaluate(node.b, values, memory))
    if isinstance(node, tvm.ir.TensorLoad):
        place = tuple(int(evaluate(index, values, memory)) for index in node.indices)
        return memory[node.source][place].item()
    if isinstance(node, tvm.tirx.Cast):
        return np.dtype(str(node.ty.dtype)).type(evaluate(node.value, values, memory)).item()
    if isinstance(node, tvm.ir.Call) and str(node.op.name).endswith(".if_then_else"):
        return evaluate(node.args[1 if evaluate(node.args[0], values, memory) else 2], values, memory)
    raise TypeError(f"no meaning of {type(node).__name__}: {node}")
