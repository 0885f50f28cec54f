"""Results that run tuned shapes without onnxruntime, and all others in it.

In onnxruntime the made-up network gives its input back, so that it can be seen where it ran.
"""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from kintune.core.execution_plan import ExecutionPlan
from kintune.core.hybrid import Hybrid, Region
from kintune.core.model import Tensor
from kintune.runtime.hybrid_package import operator_domain, write_hybrid
from kintune_runtime import InputError, RunError
from kintune_runtime.embedded import EmbeddedExecutable
from kintune_runtime.hybrid import HybridExecutable
from tests.support.toy_hybrid import DIGEST, W, region_file
from tests.support.toy_model import adding, calling, manifest


def write(folder: Path, plans: list[ExecutionPlan], described: list[ExecutionPlan] | None = None) -> Path:
    """A result of one region; the manifest says of the inputs what `described` does."""
    first, *others = described or plans
    region = Region("all", (), tuple(t.name for t in first.inputs), tuple(t.name for t in first.outputs))
    told = manifest(first, *others, digest=DIGEST)
    about = msgspec.structs.replace(told, hybrid=Hybrid((region,), {}, {}, (), other_shapes=True))
    types = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    ends = [
        helper.make_tensor_value_info(t.name, types[t.dtype], [f"{t.name}{i}" for i, _ in enumerate(t.shape)])
        for t in (*first.inputs, *first.outputs)
    ]
    node = helper.make_node("Identity", [first.inputs[-1].name], [first.outputs[0].name], "given back")
    graph = helper.make_graph([node], "net", ends[: len(first.inputs)], ends[len(first.inputs) :])
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(operator_domain(DIGEST), 1)]
    content = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    path = folder / "any.kt"
    write_hybrid(path, about, content, [region_file(folder, "region.kt", plans)])
    return path


@pytest.fixture
def model(tmp_path: Path) -> HybridExecutable:
    return HybridExecutable(write(tmp_path, [adding(1000), adding(10)]))


def ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


@pytest.mark.parametrize("count", [1000, 10])
def test_tuned_shapes_run_as_tuned(model: HybridExecutable, count: int) -> None:
    np.testing.assert_array_equal(model.run(ones(count))["out"], 1 + 2 * W[:count])
    np.testing.assert_array_equal(model.context().run(ones(count))["out"], 1 + 2 * W[:count])


def test_other_shapes_run_in_onnxruntime(model: HybridExecutable) -> None:
    np.testing.assert_array_equal(model.run(ones(7))["out"], ones(7))
    np.testing.assert_array_equal(model.context().run(ones(7))["out"], ones(7))
    with pytest.raises(InputError, match="input 'x' is no array"):
        model.run([[1.0, 2.0], [3.0]])


def test_contexts_outlive_the_executable(model: HybridExecutable) -> None:
    with model:
        context = model.context()
    for count in (1000, 10):
        np.testing.assert_array_equal(context.run(ones(count))["out"], 1 + 2 * W[:count])
    np.testing.assert_array_equal(context.run(ones(7))["out"], ones(7))
    with pytest.raises(InputError, match="is closed"):
        model.run(ones(10))
    context.close()
    with pytest.raises(InputError, match="the context is closed"):
        context.run(ones(10))


def test_a_context_keeps_the_memory_of_the_whole_network(tmp_path: Path) -> None:
    path = write(tmp_path, [adding(1000)])
    whole = EmbeddedExecutable(path, "region0.kt")
    context = whole.context()
    del whole
    gc.collect()
    assert str(path) in Path("/proc/self/maps").read_text()
    np.testing.assert_array_equal(context.run(ones(1000))["out"], 1 + 2 * W)
    context.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_context_that_runs_is_not_closed_by_another_thread(tmp_path: Path) -> None:
    plan = calling("sleep", [Tensor("s", (1,), "float32")], [Tensor("out", (1,), "float32")])
    context = HybridExecutable(write(tmp_path, [plan])).context()
    running = threading.Thread(target=context.run, args=(np.array([2.0], np.float32),))
    running.start()
    while not context._running:
        time.sleep(0.001)
    with pytest.raises(RunError, match="running in another thread"):
        context.close()
    running.join()
    context.close()
    with pytest.raises(InputError, match="the context is closed"):
        context.run(np.array([0.0], np.float32))


def test_runs_of_tuned_shapes_take_no_turns(tmp_path: Path) -> None:
    """Two that run at once have a context each."""
    plan = calling("sleep", [Tensor("s", (1,), "float32")], [Tensor("out", (1,), "float32")])
    model = HybridExecutable(write(tmp_path, [plan]))
    threads = [threading.Thread(target=model.run, args=(np.array([1.0], np.float32),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.run(np.array([0.0], np.float32))
    assert len(model._idle[0, 0]) == 2


def test_an_index_is_checked_against_what_its_shapes_have(tmp_path: Path) -> None:
    def plan(count: int) -> ExecutionPlan:
        given = [Tensor("at", (1,), "int64"), Tensor("x", (count,), "float32")]
        return calling("copy_second", given, [Tensor("out", (count,), "float32")])

    def bounded(count: int) -> ExecutionPlan:
        made = plan(count)
        index, data = made.inputs
        return msgspec.structs.replace(made, inputs=(msgspec.structs.replace(index, bounds=(-count, count - 1)), data))

    counts = (32, 64)
    model = HybridExecutable(write(tmp_path, [plan(c) for c in counts], [bounded(c) for c in counts]))
    for count in counts:
        np.testing.assert_array_equal(model.run(np.array([count - 1]), ones(count))["out"], ones(count))
        with pytest.raises(InputError, match=rf"must lie between -{count} and {count - 1}"):
            model.run(np.array([count]), ones(count))
    np.testing.assert_array_equal(model.run(np.array([100]), ones(200))["out"], ones(200))
