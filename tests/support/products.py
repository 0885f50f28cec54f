"""Workloads around a product of matrices with constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.targets import cpu_target

__all__ = ["outputs", "product"]


def product(
    *shape: int, columns: int = 48, reduced: int = 256, epilogue: bool | str = True, transposed: bool = False
) -> Any:
    """A product of `shape` rows with weights, and what follows it.

    That is "relu" (with a bias; also True), "gelu", "residual" or "turned" (the rows last), or nothing.
    """
    import tvm
    from tvm import te, topi

    a = te.placeholder((*shape, reduced), name="a")
    w = te.placeholder((columns, reduced) if transposed else (reduced, columns), name="w")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, reduced), name="k")

    def at(*indices: Any) -> Any:
        weight = w[indices[-1], k] if transposed else w[k, indices[-1]]
        return te.sum(a(*indices[:-1], k) * weight, axis=k)

    matmul = te.compute((*shape, columns), at, name="matmul", attrs={"layout_free_placeholders": [w]})
    last = {
        False: lambda: matmul,
        True: lambda: topi.nn.relu(topi.add(matmul, bias)),
        "gelu": lambda: topi.multiply(topi.add(matmul, bias), topi.add(topi.erf(matmul), 1.0)),
        "residual": lambda: topi.add(topi.add(matmul, bias), matmul),
        "turned": lambda: topi.transpose(topi.add(matmul, bias)),
    }[epilogue]()
    function = te.create_prim_func([a, w, bias, last], index_dtype_override="int64").with_attr(
        "layout_free_buffers", [1]
    )
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def outputs(module: Any) -> np.ndarray[Any, Any]:
    """What a module computes of inputs that are always the same."""
    import tvm

    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(rng.standard_normal([int(n) for n in p.shape], dtype=np.float32))
        for p in module["main"].params
    ]
    tvm.compile(module, cpu_target())["main"](*arguments)
    return np.asarray(arguments[-1].numpy())
