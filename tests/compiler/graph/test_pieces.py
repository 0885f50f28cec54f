"""Parts of tensors and tensors put together, without kernels where they are pieces of memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.execution_plan import Copy, ExecutionPlan, KernelCall
from tests.support.examples import compiled_examples
from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

pytestmark = pytest.mark.tvm


def _run(path: Path, x: np.ndarray[Any, Any], target: tvm.target.Target) -> tuple[ExecutionPlan, list[Any]]:
    from kintune.compiler.graph.assemble import assemble_plan
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from tests.support.plan_interpreter import run_plan

    model = load(parse_ref(str(path)))
    program = assemble_plan(lower(model.module, target), {}, target, inputs=model.inputs, outputs=model.outputs)
    return program.plan, run_plan(program, x)


def _kernels(plan: ExecutionPlan) -> list[str]:
    return [operation.kernel for operation in plan.operations if isinstance(operation, KernelCall)]


def _product(g: Graph, x: str, wide: int) -> str:
    return g("MatMul", x, g.weight(wide, wide))


def test_a_split_of_tokens_is_no_kernel(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    y = _product(g, "x", 16)
    g.nodes.append(__import__("onnx").helper.make_node("Split", [y, g.constant([2, 6], np.int64)], ["a", "b"], axis=1))
    path = g.save(tmp_path / "model.onnx", (1, 8, 16), [_product(g, "a", 16), _product(g, "b", 16)])
    x = np.random.default_rng(1).random((1, 8, 16), dtype=np.float32)
    plan, found = _run(path, x, cpu)
    assert len(_kernels(plan)) == 3
    assert not any(isinstance(operation, Copy) for operation in plan.operations)
    for one, other in zip(found, run_onnxruntime(path, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_tokens_are_computed_where_they_are_put_together(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    token = g.constant(np.random.default_rng(2).random((1, 1, 16)))
    whole = g("Concat", token, _product(g, "x", 16), _product(g, "x", 16), axis=1)
    path = g.save(tmp_path / "model.onnx", (1, 8, 16), [_product(g, whole, 16)])
    x = np.random.default_rng(1).random((1, 8, 16), dtype=np.float32)
    plan, found = _run(path, x, cpu)
    assert len(_kernels(plan)) == 3
    assert sum(isinstance(operation, Copy) for operation in plan.operations) == 1  # the token, which is a weight
    np.testing.assert_allclose(found[0], run_onnxruntime(path, x)[0], rtol=1e-5)


@pytest.mark.parametrize("wide", [16, 10])
def test_pieces_that_are_not_aligned_are_copied_by_a_kernel(wide: int, cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    y = _product(g, "x", wide)
    first, second = (
        g("Slice", y, *(g.constant([value], np.int64) for value in (start, end, 1))) for start, end in ((0, 3), (3, 8))
    )
    path = g.save(tmp_path / "model.onnx", (1, 8, wide), [_product(g, first, wide), _product(g, second, wide)])
    x = np.random.default_rng(1).random((1, 8, wide), dtype=np.float32)
    plan, found = _run(path, x, cpu)
    assert (len(_kernels(plan)) == 3) is (wide == 16)
    for one, other in zip(found, run_onnxruntime(path, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


SHAPE = (1, 8, 4, 16)
steps = st.lists(
    st.tuples(st.sampled_from(("split", "slice", "join", "join", "product", "relu", "give")), st.integers(0, 7)),
    min_size=3,
    max_size=10,
)


def _build(g: Graph, drawn: list[tuple[str, int]]) -> list[str]:
    """Tensors of SHAPE, parts of them and sums of these, and the results."""
    tensors, results = ["x", _product(g, "x", 16)], []
    for kind, number in drawn:
        x, y = tensors[number % len(tensors)], tensors[(number // 2) % len(tensors)]
        if kind == "relu":
            tensors.append(g("Relu", x))
        elif kind == "product":
            tensors.append(_product(g, x, 16))
        elif kind == "give":
            results.append(x if x != "x" else g("Relu", x))
        else:
            cut = 1 + number % 7
            parts = []
            for tensor, start, end in ((x, 0, cut), (y, cut, 8)):
                bounds = (g.constant([value], np.int64) for value in (start, end, 1))
                parts.append(g("Slice", tensor, *bounds))
            if kind == "slice":
                results.append(g("Neg", parts[0]))
            if kind == "split":
                parts = parts[::-1]
            tensors.append(g("Concat", *parts, axis=1))
    return [*dict.fromkeys([*results, g("Relu", tensors[-1]), tensors[-1] if tensors[-1] != "x" else tensors[1]])]


@compiled_examples(25, derandomize=True, phases=[Phase.generate])
@given(drawn=steps)
def test_pieces_hold_what_onnxruntime_computes(
    drawn: list[tuple[str, int]], cpu: tvm.target.Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    path = g.save(tmp_path_factory.mktemp("pieces") / "model.onnx", SHAPE, _build(g, drawn))
    x = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    _, found = _run(path, x, cpu)
    for one, other in zip(found, run_onnxruntime(path, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3 * float(np.abs(other).max(initial=1e-9)))
