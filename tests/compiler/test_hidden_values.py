"""Products of what chooses between floats can be compiled, wherever the compiler binds them to variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from kintune.models.evaluation import open_session

pytestmark = pytest.mark.tvm

PRODUCTS = (
    "m = Mul(r, s)  y = Exp(m)",
    "m = Mul(r, s)  y = Mul(m, m)",
    "m = Mul(r, s)  t = Sigmoid(m)  y = Mul(m, t)",
    "m = Mul(r, s)  t = Softmax(m)  y = Mul(m, t)",
)


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_of_a_choice(product: str, dtype: str, tmp_path: Path) -> None:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune_lab.fuzz.compiling import Compiler

    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g ({dtype}[17, 3, 1, 2] x) => ({dtype}[2, 3, 17] y) {{
        shape = Constant<value = int64[3] {{2, 3, 17}}>()
        r = Reshape(x, shape)
        s = PRelu(r, r)
        {product}
    }}"""
    model = onnx.parser.parse_model(text)
    onnx.save(model, tmp_path / "model.onnx")
    executable = Compiler().compile(load(parse_ref(str(tmp_path / "model.onnx"))))
    x = np.random.default_rng(0).standard_normal((17, 3, 1, 2)).astype("float32" if dtype == "float" else "float64")
    (wanted,) = open_session(model).run(None, {"x": x})
    np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
