"""Parts of channels: computed where they are put together, read where they are cut out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.execution_plan import ExecutionPlan, KernelCall
from tests.support.examples import compiled_examples
from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

pytestmark = pytest.mark.tvm

SIDE = 16


def _run(path: Path, x: np.ndarray[Any, Any], target: tvm.target.Target) -> tuple[ExecutionPlan, list[Any]]:
    from kintune.compiler.graph.assemble import assemble_plan
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from tests.support.plan_interpreter import run_plan

    model = load(parse_ref(str(path)))
    program = assemble_plan(lower(model.module, target), {}, target, inputs=model.inputs, outputs=model.outputs)
    return program.plan, run_plan(program, x)


def _check(g: Graph, results: list[str], channels: int, target: tvm.target.Target, folder: Path) -> list[str]:
    """Compare with onnxruntime; returns the kernels that are called."""
    shape = (1, channels, SIDE, SIDE)
    path = g.save(folder / "model.onnx", shape, results)
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    plan, found = _run(path, x, target)
    for one, other in zip(found, run_onnxruntime(path, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * float(np.abs(other).max(initial=1e-9)))
    return [operation.kernel for operation in plan.operations if isinstance(operation, KernelCall)]


def _copies(kernels: list[str]) -> int:
    """How many kernels put tensors together, cut one, or copy a part."""
    return sum(kernel.startswith(("concatenate", "split", "strided_slice")) for kernel in kernels)


def _split(g: Graph, x: str, *sizes: int) -> list[str]:
    import onnx

    names = [f"part_{len(g.nodes)}_{number}" for number in range(len(sizes))]
    g.nodes.append(onnx.helper.make_node("Split", [x, g.constant(sizes, np.int64)], names, axis=1))
    return names


def test_results_are_computed_where_they_are_put_together(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    first, second = g("Relu", g.conv("x", 32, 96)), g.conv("x", 32, 32)
    whole = g("Concat", first, second, axis=1)
    kernels = _check(g, [g.conv(whole, 128, 16), g.conv(first, 96, 16)], 32, cpu, tmp_path)
    assert not _copies(kernels)
    assert sum("_in_place" in kernel for kernel in kernels) == 3  # one reads the first part beside the second


def test_parts_of_a_result_are_read_where_they_lie(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    one, other = _split(g, g.conv("x", 32, 80), 48, 32)
    assert not _copies(_check(g, [g.conv(one, 48, 16), g.conv(other, 32, 16)], 32, cpu, tmp_path))


def test_parts_of_one_tensor_are_put_together_with_others(cpu: tvm.target.Target, tmp_path: Path) -> None:
    """As in YOLO: the halves of a result, and what is computed of the second of them."""
    g = Graph()
    one, other = _split(g, g.conv("x", 32, 64), 32, 32)
    more = g("Add", g.conv(g("Relu", g.conv(other, 32, 32)), 32, 32), other)
    whole = g("Concat", one, other, more, axis=1)
    assert not _copies(_check(g, [g.conv(whole, 96, 16)], 32, cpu, tmp_path))


def test_what_cannot_lie_there_is_copied(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    one, other = g.conv("x", 32, 64), g.conv("x", 32, 32)
    whole = g("Concat", one, other, axis=1)
    again = g("Concat", other, g.conv(whole, 96, 64), axis=1)
    kernels = _check(g, [g.conv(again, 96, 16)], 32, cpu, tmp_path)
    assert _copies(kernels) == 1


def test_small_tensors_and_results_are_put_together_by_a_kernel(cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    one, other = g.conv("x", 8, 16), g.conv("x", 8, 16)
    assert _copies(_check(g, [g.conv(g("Concat", one, other, axis=1), 32, 16)], 8, cpu, tmp_path)) == 1


def test_a_scheduled_concatenation_is_left_out_too(cpu: tvm.target.Target, tmp_path: Path) -> None:
    """The search may have chosen a sketch for a concatenation, which its plan does not call."""
    from kintune.compiler.graph.assemble import assemble_plan
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.core.candidate import Candidate
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates

    g = Graph()
    whole = g("Concat", g.conv("x", 32, 64), g.conv("x", 32, 64, 1), axis=1)
    path = g.save(tmp_path / "model.onnx", (1, 32, SIDE, SIDE), [g.conv(whole, 128, 16)])
    model = load(parse_ref(str(path)))
    lowered = lower(model.module, cpu)
    chosen = {}
    for workload in lowered.workloads:
        sketches = {s.digest: s for s in generate_sketches(workload.digest, workload.module, cpu)}
        candidates: list[Candidate] = rule_candidates(list(sketches.values()), Processor(8, 16, 2), 1)
        if workload.signature.startswith("concat"):
            chosen[workload.digest] = (sketches[candidates[0].sketch], candidates[0])
    assert chosen
    program = assemble_plan(lowered, chosen, cpu, inputs=model.inputs, outputs=model.outputs)
    called = [operation.kernel for operation in program.plan.operations if isinstance(operation, KernelCall)]
    assert not _copies(called)


PARTS = st.lists(
    st.tuples(st.sampled_from(("conv", "join", "split", "pool", "relu", "give")), st.integers(0, 63)),
    min_size=3,
    max_size=8,
)


def _build(g: Graph, drawn: list[tuple[str, int]]) -> list[str]:
    """Tensors with some channels each, and the results."""
    tensors = [("x", 32), (g.conv("x", 32, 64), 64)]
    results = []
    for kind, number in drawn:
        (x, channels), (y, others) = tensors[number % len(tensors)], tensors[(number // 7) % len(tensors)]
        if kind == "conv":
            tensors.append((g.conv(x, channels, 64, 1 + 2 * (number % 2)), 64))
        elif kind == "join":
            tensors.append((g("Concat", x, y, axis=1), channels + others))
        elif kind == "split":
            size = 1 + number % (channels - 1)
            parts = _split(g, x, size, channels - size)
            tensors += zip(parts, (size, channels - size), strict=True)
        elif kind == "pool":
            tensors.append((g("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), channels))
        elif kind == "relu":
            tensors.append((g("Relu", x), channels))
        else:
            results.append(g("Neg", x) if x == "x" else x)
        tensors = [tensor for tensor in tensors if 1 < tensor[1] <= 256]
    x, channels = tensors[-1]
    return [*dict.fromkeys([*results, g.conv(x, channels, 8, 1)])]


@compiled_examples(20, deadline=None, derandomize=True, phases=[Phase.generate])
@given(drawn=PARTS)
def test_parts_hold_what_onnxruntime_computes(
    drawn: list[tuple[str, int]], cpu: tvm.target.Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    _check(g, _build(g, drawn), 32, cpu, tmp_path_factory.mktemp("parts"))
