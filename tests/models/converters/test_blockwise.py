"""Products with blockwise quantised weights, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kintune.errors import ModelError
from tests.support.blockwise import Product

pytestmark = pytest.mark.tvm


def operands_of(product: Product) -> list[Any]:
    arrays = product.arrays()
    given = [arrays["x"], arrays["b"], arrays["scales"], arrays.get("zeros"), None, arrays.get("bias")]
    while given[-1] is None:
        given.pop()
    return given


def case_of(make_case: Any, product: Product, **changed: Any) -> Any:
    operands = operands_of(product)
    attributes = {"K": product.inputs, "N": product.columns, "bits": product.bits, "block_size": product.block}
    constant = [at for at, each in enumerate(operands) if at and each is not None]
    return make_case("MatMulNBits", *operands, constant=constant, domain="com.microsoft", **attributes | changed)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products(compare: Any, make_case: Any, bits: int) -> None:
    products = [
        Product(bits, 16, 64, 40, (1,)),
        Product(bits, 32, 96, 33, (3,), "packed"),
        Product(bits, 64, 192, 16, (2, 17), "", bias=True),
        Product(bits, 128, 300, 20, (1, 1), "packed", bias=True),
        Product(bits, 32, 50, 24, (17,)),
        Product(bits, 16, 37, 24, (3,), "packed"),
        Product(bits, 32, 37, 5, (1,)),
    ]
    compare([case_of(make_case, product) for product in products], 17)


def test_zero_points_that_are_floats(compare: Any, make_case: Any) -> None:
    compare([case_of(make_case, Product(bits, 32, 96, 32, (3,), "real")) for bits in (2, 4)], 17)


def test_operands_may_be_flat(compare: Any, make_case: Any) -> None:
    operands = operands_of(Product(4, 32, 96, 32, (3,), "packed"))
    flat = [each if at < 2 else each.reshape(-1) for at, each in enumerate(operands)]
    attributes = {"K": 96, "N": 32, "bits": 4, "block_size": 32}
    compare([make_case("MatMulNBits", *flat, constant=(1, 2, 3), domain="com.microsoft", **attributes)], 17)


@pytest.mark.parametrize(
    ("product", "changed", "message"),
    [
        (Product(), {"bits": 3}, "weights of 3 bits are not supported; 2, 4 and 8 are"),
        (Product(), {"block_size": 24}, "blocks of 24 weights are not supported"),
        (Product(), {"K": 65}, r"data of shape \(1, 64\) do not end with 65 elements"),
        (Product(), {"N": 47}, r"input 1 is uint8 \[48, 2, 16\]; 47 columns of 32 uint8 are needed"),
        (Product(), {"bits": 8}, r"input 1 is uint8 \[48, 2, 16\]; 48 columns of 64 uint8 are needed"),
        (Product(), {"weight_prepacked": 1}, "weight_prepacked"),
    ],
)
def test_what_does_not_fit_is_refused(
    compare: Any, make_case: Any, product: Product, changed: dict[str, int], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        compare([case_of(make_case, product, **changed)], 17, expected=[])


def test_other_operands_are_refused(compare: Any, make_case: Any) -> None:
    x, b, scales = operands_of(Product())
    attributes = {"K": 64, "N": 48, "bits": 4, "block_size": 32}
    wrong = {
        "mixed": [x, b, scales, None, np.arange(64, dtype=np.int32)],
        "elements of float16": [x.astype(np.float16), b, scales.astype(np.float16)],
        "input 2 is float32": [x, b, scales[:, :1]],
        "input 3 has elements of int8": [x, b, scales, np.zeros((48, 1), np.int8)],
    }
    for message, operands in wrong.items():
        with pytest.raises(ModelError, match=message):
            compare(
                [make_case("MatMulNBits", *operands, constant=(1, 2), domain="com.microsoft", **attributes)],
                17,
                expected=[],
            )
