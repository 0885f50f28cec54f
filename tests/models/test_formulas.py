"""Formulas that both importers write, each with its own emitter, against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def _emitter(importer: str, builder: Any) -> Any:
    if importer == "onnx":
        from kintune.models.converters.node import Node

        return Node(builder, (), {}, 18, 1)
    from kintune.models.torch_converters.translation import Translation

    return Translation(builder)


@pytest.mark.parametrize("importer", ["onnx", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_formulas_are_those_of_numpy(importer: str) -> None:
    import tvm
    from tvm import relax

    from kintune.models import formulas
    from kintune.models.formulas import Real, choose

    values = np.array([-30.0, -2.5, -1e-7, 0.0, 1e-8, 0.3, 1.0, 7.0, 600.0])
    between, divided = (values > 0) & (values < 2), 2 / (np.abs(values) + 1)
    error = np.vectorize(math.erf)
    wanted = [
        (lambda x: formulas.log1p(abs(x) * 1e-9), np.log1p(np.abs(values) * 1e-9)),
        (lambda x: formulas.expm1(x * 0.5), np.expm1(values * 0.5)),
        (lambda x: formulas.gelu(x, "none"), 0.5 * values * (1 + error(values / math.sqrt(2)))),
        (lambda x: formulas.whole_power(x, 0), np.ones_like(values)),
        (lambda x: formulas.whole_power(x, 7), values**7),
        (lambda x: formulas.power(abs(x), 1.5), np.abs(values) ** 1.5),
        (lambda x: formulas.polynomial((3, 0, -1), x), 3 * values**2 - 1),
        (lambda x: formulas.quotient((1, 2), (1, 0, 1), x), (values + 2) / (values**2 + 1)),
        (lambda x: choose((x > 0) & (x < 2), 1 - x, 2 / (abs(x) + 1)), np.where(between, 1 - values, divided)),
        (lambda x: formulas.parametric_relu(x, x.t.const(0.1, "float64")), np.where(values < 0, 0.1 * values, values)),
        (Real.to_nearest, values - np.round(values)),
    ]  # fmt: skip
    builder = relax.BlockBuilder()
    emitter = _emitter(importer, builder)
    x = relax.Var("x", relax.TensorType(values.shape, "float64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [builder.emit(formula(Real(emitter, x)).value) for formula, _ in wanted]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    for found, (_, exact) in zip(machine["main"](tvm.runtime.tensor(values)), wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-6, atol=1e-300)
