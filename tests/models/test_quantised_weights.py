from __future__ import annotations

import pytest

from kintune.models.quantised_weights import quantised_weights
from tests.support.partitions import parse

WEIGHTS = "int8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}"
HEAD = f"m (float[2, 2] x) => (float[2, 2] y) <{WEIGHTS}> {{ d = DequantizeLinear(w, s)"


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        ("y = MatMul(x, d)", {"d"}),
        ("a = MatMul(x, d)  y = Gemm(a, d)", {"d"}),
        ("t = Transpose(d)  y = MatMul(x, t)", {"d"}),
        ("t = Transpose(d)  y = Add(x, t)", set()),
        ("a = MatMul(x, d)  y = Add(a, d)", set()),
        ("a = MatMul(x, d)  t = Transpose(d)  y = Add(a, t)", set()),
    ],
)
def test_products_alone_read_them(reads: str, found: set[str]) -> None:
    assert quantised_weights(parse(f"{HEAD}  {reads} }}").graph) == found


def test_an_output_is_read_by_whoever_runs_the_model() -> None:
    model = parse(f"{HEAD}  y = MatMul(x, d) }}")
    model.graph.output.add(name="d")
    assert quantised_weights(model.graph) == set()
