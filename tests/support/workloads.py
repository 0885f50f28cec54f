"""Fixtures: small workloads, their sketches, and a program built from one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    import tvm

    from kintune.core.candidate import Sketch

WIDTH = 48


class TinyConv(NamedTuple):
    """A small convolution with a bias and a ReLU, as a workload, and its sketches for a CPU with AVX2."""

    digest: str
    module: tvm.IRModule
    target: tvm.target.Target
    sketches: tuple[Sketch, ...]


@pytest.fixture(scope="session")
def tiny_conv() -> TinyConv:
    import tvm
    from tvm import te, topi

    from kintune.compiler.space.sketches import generate_sketches

    target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
    data = te.placeholder((1, 7, 7, 12), name="data")
    kernel = te.placeholder((5, 5, 12, 16), name="kernel")
    bias = te.placeholder((1, 1, 1, 16), name="bias")
    conv = topi.nn.conv2d_nhwc(data, kernel, 1, 2, 1)  # no program of our own computes it
    function = te.create_prim_func([data, kernel, bias, topi.nn.relu(topi.add(conv, bias))])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return TinyConv("conv", module, target, generate_sketches("conv", module, target))


@pytest.fixture(scope="session")
def dense() -> Any:
    """A workload with a weight: relu(a @ w), as an IRModule."""
    import tvm
    from tvm import te

    a = te.placeholder((WIDTH, WIDTH), name="a")
    w = te.placeholder((WIDTH, WIDTH), name="w")
    k = te.reduce_axis((0, WIDTH), name="k")
    matmul = te.compute(
        (WIDTH, WIDTH),
        lambda i, j: te.sum(a[i, k] * w[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [w]},
    )
    relu = te.compute(
        (WIDTH, WIDTH), lambda i, j: tvm.tirx.max(matmul[i, j], tvm.tirx.const(0.0, "float32")), name="relu"
    )
    return tvm.IRModule({"main": te.create_prim_func([a, w, relu])})


@pytest.fixture(scope="session")
def native() -> str:
    """This machine's canonical target, for one thread."""
    from kintune.runtime.target import resolve_target

    return resolve_target("native", 1)


@pytest.fixture(scope="session")
def healthy(dense: Any, native: str) -> Any:
    """The untuned program of `dense`, built."""
    import json

    import tvm

    from kintune.compiler.build import build_module

    return build_module(tvm.target.Target(json.loads(native)), dense, dense, "healthy")
