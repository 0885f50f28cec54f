"""What is not fused, since it would be computed again and again; and chains that must not grow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

CHAIN = ("Sigmoid", "Neg", "Elu", "Relu", "Neg", "Elu", "Sigmoid", "Tanh")


def _lowered(path: Path, target: tvm.target.Target):  # type: ignore[no-untyped-def]
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    return lower(load(parse_ref(str(path))).module, target)


def test_a_chain_of_functions_compiles_however_often_each_uses_its_operand(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    from kintune.compiler.graph.assemble import assemble

    g = Graph()
    x = "x"
    for operator in CHAIN * 2:
        x = g(operator, x)
    path = g.save(tmp_path / "model.onnx", (64, 64), [g("Softmax", g("MatMul", x, g.weight(64, 3)))])
    array = np.random.default_rng(1).standard_normal((64, 64), dtype=np.float32)
    (found,) = run_program(assemble(_lowered(path, cpu), {}, cpu), array)
    np.testing.assert_allclose(found, run_onnxruntime(path, array)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "before", "fused"), [("linear", "Relu", False), ("nearest", "Sigmoid", False), ("nearest", "Relu", True)]
)
def test_an_enlarged_map_is_not_computed_again(
    mode: str, before: str, fused: bool, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    from kintune.compiler.graph.assemble import assemble

    g = Graph()
    how = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        how["nearest_mode"] = "floor"
    large = g("Resize", g(before, "x"), "", g.constant([1, 1, 2, 2]), **how)
    path = g.save(tmp_path / "model.onnx", (1, 4, 6, 5), [g("Neg", large)])
    lowered = _lowered(path, cpu)
    assert (len(lowered.workloads) == 1) is fused, [workload.signature for workload in lowered.workloads]
    array = np.random.default_rng(1).standard_normal((1, 4, 6, 5), dtype=np.float32)
    (found,) = run_program(assemble(lowered, {}, cpu), array)
    np.testing.assert_allclose(found, run_onnxruntime(path, array)[0], rtol=1e-5, atol=1e-6)
