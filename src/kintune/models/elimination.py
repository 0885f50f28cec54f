"""Kernels that factorise square matrices and solve triangular systems; for each matrix of a batch, plain loops.

They are not tuned.  The iterations over a batch are blocks, so that a GPU runs them on as many threads.  Loops have
constant extents, with conditions inside, since the compiler counts the operations of such loops only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from kintune.models.emitter import Emitter
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real, choose

__all__ = [
    "cholesky",
    "determinant",
    "diagonal",
    "factorised",
    "inverse",
    "sign_of_exchanges",
    "solution",
    "triangular_solution",
]

_Port = tuple[str, tuple[int, ...], str]

_OPAQUE = 8  # TVM's operator pattern kOpaque: it is fused with nothing


def factorised(t: Emitter, matrix: Any) -> tuple[Any, Any, Any]:
    """Factorise matrices (batch, n, n) by elimination with partial pivoting, as LAPACK's `getrf`.

    Returns both factors in one tensor (batch, n, n), the unit diagonal left out; the row of the matrix that became each
    row of the product (batch, n), int32; and the row with which each row was exchanged in turn (batch, n), int32,
    counted from 0.
    """
    batch, n, _ = shape_of(matrix)
    dtype = dtype_of(matrix)
    results: list[_Port] = [("f", (batch, n, n), dtype), ("order", (batch, n), "int32"), ("pivot", (batch, n), "int32")]
    body = [
        f"kept = T.sblock_alloc_buffer(({n},), {dtype!r}, scope='local')",
        "number = T.sblock_alloc_buffer((1,), 'int32', scope='local')",
        f"for i in T.serial({n}):",
        "    order[b, i] = i",
        f"    for j in T.serial({n}):",
        "        f[b, i, j] = a[b, i, j]",
        f"for k in T.serial({n}):",
        "    pivot[b, k] = k",
        f"    for i in T.serial({n}):",
        "        if i > k and T.abs(f[b, i, k]) > T.abs(f[b, pivot[b, k], k]):",
        "            pivot[b, k] = i",
        f"    for j in T.serial({n}):",
        "        kept[j] = f[b, k, j]",
        f"    for j in T.serial({n}):",
        "        f[b, k, j] = f[b, pivot[b, k], j]",
        f"    for j in T.serial({n}):",
        "        f[b, pivot[b, k], j] = kept[j]",
        "    number[0] = order[b, k]",
        "    order[b, k] = order[b, pivot[b, k]]",
        "    order[b, pivot[b, k]] = number[0]",
        f"    for i in T.serial({n}):",
        "        if i > k:",
        f"            if f[b, k, k] != {_number(0, dtype)}:",
        "                f[b, i, k] = f[b, i, k] / f[b, k, k]",
        f"            for j in T.serial({n}):",
        "                if j > k:",
        "                    f[b, i, j] = f[b, i, j] - f[b, i, k] * f[b, k, j]",
    ]
    factors, order, pivot = _call(t, "lu", [("a", (batch, n, n), dtype)], results, body, [matrix])
    return factors, order, pivot


def sign_of_exchanges(t: Emitter, pivot: Any, dtype: str) -> Any:
    """The sign (batch) of the permutation that such exchanges of rows (batch, n) make."""
    stays = Real(t, pivot).equal(Real(t, t.const(np.arange(shape_of(pivot)[1]), "int32")))
    return choose(stays, Real(t, t.const(1, dtype)), -1).prod(axis=[1]).value


def determinant(t: Emitter, matrix: Any) -> Any:
    """The determinants (batch) of matrices (batch, n, n)."""
    factors, _, pivot = factorised(t, matrix)
    product = Real(t, diagonal(t, factors)).prod(axis=[1])
    return (product * Real(t, sign_of_exchanges(t, pivot, dtype_of(matrix)))).value


def diagonal(t: Emitter, matrices: Any) -> Any:
    """The elements (batch, n) of matrices whose row is their column."""
    batch, n, _ = shape_of(matrices)
    return t.take(t.reshape(matrices, [batch, n * n]), np.arange(n) * (n + 1), 1)


def inverse(t: Emitter, matrices: Any) -> Any:
    """The inverses of matrices (batch, n, n)."""
    factors, order, _ = factorised(t, matrices)
    return solution(
        t, factors, order, t.expand(t.const(np.eye(shape_of(matrices)[1]), dtype_of(matrices)), shape_of(matrices))
    )


def solution(t: Emitter, factors: Any, order: Any, right: Any) -> Any:
    """The solution (batch, n, m) of systems for right sides of that shape; see `factorised` for the factors."""

    def permuted(values: te.Tensor, rows: te.Tensor) -> te.Tensor:
        return te.compute(values.shape, lambda b, i, j: values[b, rows[b, i], j], name="permuted")

    moved = t.emit(t.builder.call_te(permuted, right, order, primfunc_name_hint="permuted"))
    lower = triangular_solution(t, factors, moved, upper=False, unit=True)
    return triangular_solution(t, factors, lower, upper=True, unit=False)


def triangular_solution(t: Emitter, triangle: Any, right: Any, *, upper: bool, unit: bool) -> Any:
    """The solution (batch, n, m) of triangular systems (batch, n, n) with right sides (batch, n, m).

    Only one triangle is read, and with `unit` its diagonal is taken as ones.
    """
    batch, n, m = shape_of(right)
    dtype = dtype_of(right)
    row, known = (f"{n - 1} - s", f"{n - 1} - k") if upper else ("s", "k")
    body = [
        f"for s in T.serial({n}):",
        f"    for j in T.serial({m}):",
        f"        x[b, {row}, j] = y[b, {row}, j]",
        f"    for k in T.serial({n}):",
        "        if k < s:",
        f"            for j in T.serial({m}):",
        f"                x[b, {row}, j] = x[b, {row}, j] - a[b, {row}, {known}] * x[b, {known}, j]",
    ]
    if not unit:
        body += [f"    for j in T.serial({m}):", f"        x[b, {row}, j] = x[b, {row}, j] / a[b, {row}, {row}]"]
    operands: list[_Port] = [("a", (batch, n, n), dtype), ("y", (batch, n, m), dtype)]
    name = f"solve_{'upper' if upper else 'lower'}"
    (solution,) = _call(t, name, operands, [("x", (batch, n, m), dtype)], body, [triangle, right])
    return solution


def cholesky(t: Emitter, matrix: Any) -> Any:
    """The lower triangles (batch, n, n) whose products with their transposes are the symmetric matrices.

    Only the lower triangle of a matrix is read.  One that is not positive definite leads to values that are no numbers.
    """
    batch, n, _ = shape_of(matrix)
    dtype = dtype_of(matrix)
    body = [
        f"for j in T.serial({n}):",
        f"    for i in T.serial({n}):",
        "        if i < j:",
        f"            f[b, i, j] = {_number(0, dtype)}",
        "        else:",
        "            f[b, i, j] = a[b, i, j]",
        f"            for k in T.serial({n}):",
        "                if k < j:",
        "                    f[b, i, j] = f[b, i, j] - f[b, i, k] * f[b, j, k]",
        "            if i == j:",
        "                f[b, j, j] = T.sqrt(f[b, j, j])",
        "            else:",
        "                f[b, i, j] = f[b, i, j] / f[b, j, j]",
    ]
    shape = (batch, n, n)
    (factor,) = _call(t, "cholesky", [("a", shape, dtype)], [("f", shape, dtype)], body, [matrix])
    return factor


def _number(value: int, dtype: str) -> str:
    return f"T.{dtype}({value})"


def _call(
    t: Emitter,
    name: str,
    operands: Sequence[_Port],
    results: Sequence[_Port],
    body: Sequence[str],
    values: Sequence[Any],
) -> list[Any]:
    """Call a new kernel, whose `body` is done for each `b` of a batch; returns its results."""
    from tvm.script import tirx  # its name is not that of a module, which the parser's own defaults take it for

    ports = ", ".join(f"{port}: T.Buffer({shape}, {dtype!r})" for port, shape, dtype in (*operands, *results))
    batch = results[0][1][0]
    lines = [
        "@T.prim_func(s_tir=True, private=True)",
        f"def {name}({ports}):",
        f'    T.func_attr({{"tirx.noalias": True, "op_pattern": {_OPAQUE}}})',
        f"    for matrix in T.serial({batch}):",
        f"        with T.sblock({name!r}):",
        f"            b = T.axis.spatial({batch}, matrix)",
        f"            T.reads({', '.join(map(_region, operands))})",
        f"            T.writes({', '.join(map(_region, results))})",
        *(" " * 12 + line for line in body),
    ]
    kernel = t.builder.add_func(tvm.script.from_source("\n".join(lines), extra_vars={"T": tirx}), name)
    types = [relax.TensorType(list(shape), dtype) for _, shape, dtype in results]
    if len(types) == 1:
        return [t.emit(relax.call_tir(kernel, relax.Tuple(list(values)), types[0]))]
    whole = t.emit(relax.call_tir(kernel, relax.Tuple(list(values)), types))
    return [t.emit(relax.TupleGetItem(whole, i)) for i in range(len(types))]


def _region(port: _Port) -> str:
    """What one matrix reads or writes of an operand or result."""
    name, (_, *rest), _ = port
    return f"{name}[b, {', '.join(f'0:{size}' for size in rest)}]"
