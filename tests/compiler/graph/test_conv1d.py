"""Convolutions along one axis are computed with channels last, and give what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

WIDTH, CHANNELS = 23, 8


def network(kernel: int, stride: int, dilation: int, groups: int, pads: tuple[int, int], constant: bool) -> Any:
    """Two convolutions with biases and a ReLU between them; the weights of the first may be an input."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    depth = CHANNELS // groups
    tensors = {
        "w": rng.standard_normal((CHANNELS, depth, kernel)),
        "b": rng.standard_normal(CHANNELS),
        "v": rng.standard_normal((4, CHANNELS, 1)),
    }
    shapes = {"x": (2, CHANNELS, WIDTH)} | ({} if constant else {"w": (CHANNELS, depth, kernel)})
    options = {"strides": [stride], "dilations": [dilation], "group": groups, "pads": list(pads)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[kernel], **options),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], kernel_shape=[1]),
    ]
    graph = helper.make_graph(
        nodes,
        "conv1d",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a.astype("f4"), name) for name, a in tensors.items() if name not in shapes],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@compiled_examples(15, deadline=None)
@given(
    st.sampled_from([1, 3, 5]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2, CHANNELS]),
    st.sampled_from([(0, 0), (1, 1), (0, 3)]),
    st.booleans(),
)
def test_as_in_onnxruntime(
    tmp_path_factory: pytest.TempPathFactory,
    cpu: tvm.target.Target,
    run_program: RunsProgram,
    kernel: int,
    stride: int,
    dilation: int,
    groups: int,
    pads: tuple[int, int],
    constant: bool,
) -> None:
    import onnx
    import onnxruntime

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    path: Path = tmp_path_factory.mktemp("conv1d") / "model.onnx"
    onnx.save(network(kernel, stride, dilation, groups, pads, constant), path)
    model = load(parse_ref(str(path)))
    lowered = lower(model.module, cpu)
    assert all(workload.operator != "conv1d" for workload in lowered.workloads)
    rng = np.random.default_rng(1)
    feeds = {tensor.name: rng.standard_normal(tensor.shape).astype("f4") for tensor in model.inputs}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, feeds)
    (found,) = run_program(assemble(lowered, {}, cpu), *feeds.values())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_windows_between_convolutions_are_taken_with_channels_last(
    tmp_path: Path, cpu: tvm.target.Target, run_program: RunsProgram, operator: str
) -> None:
    """Otherwise the map is transposed before each, and back after it."""
    import onnx
    import onnxruntime
    from onnx import numpy_helper, parser

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2, 16, 40] x) => (float[2, 16, M] y) {'
        f" a = Conv(x, w)  r = Relu(a)  p = {operator} <kernel_shape = [3], strides = [2], pads = [1, 0]> (r)"
        "  b = Conv(p, v)  y = Relu(b) }"
    )
    rng = np.random.default_rng(1)
    for name in "wv":
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal((16, 16, 3)).astype("f4"), name))
    onnx.save(model, tmp_path / "model.onnx")
    loaded = load(parse_ref(str(tmp_path / "model.onnx")))
    lowered = lower(loaded.module, cpu)
    transposes = [workload.name for workload in lowered.workloads if "transpose" in workload.name]
    assert len(transposes) == 2  # of the network's input and output
    x = rng.standard_normal((2, 16, 40)).astype("f4")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = run_program(assemble(lowered, {}, cpu), x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
