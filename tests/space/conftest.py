from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    import tvm

    from kintune.core.candidate import Sketch


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
    kernel = te.placeholder((3, 3, 12, 16), name="kernel")
    bias = te.placeholder((1, 1, 1, 16), name="bias")
    conv = topi.nn.conv2d_nhwc(data, kernel, 1, 1, 1)
    function = te.create_prim_func([data, kernel, bias, topi.nn.relu(topi.add(conv, bias))])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return TinyConv("conv", module, target, generate_sketches("conv", module, target))
