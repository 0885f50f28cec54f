"""A network with an LSTM: what is before and behind it is compiled, onnxruntime runs the LSTM."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import kintune
from kintune.core.hybrid import Hybrid, Region
from kintune.runtime.hybrid_executable import HybridExecutable
from kintune.runtime.hybrid_package import operator_domain

pytestmark = pytest.mark.tvm

_STEPS, _WIDE, _HIDDEN, _NARROW = 6, 16, 8, 4
_OPSET = helper.make_opsetid("", 17)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape, np.float32) / np.float32(4)
    return numpy_helper.from_array(values, name)


def told(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


X, H = told("x", _STEPS, 1, _WIDE), told("h", _STEPS, 1, _WIDE)
Y, OUT = told("y", _STEPS, 1, 1, _HIDDEN), told("out", _STEPS, _NARROW)
BEFORE = [helper.make_node("MatMul", ["x", "w1"], ["a"], "project"), helper.make_node("Relu", ["a"], ["h"], "relu")]
LSTM = helper.make_node("LSTM", ["h", "wl", "rl"], ["y"], "lstm", hidden_size=_HIDDEN)
BEHIND = [
    helper.make_node("Reshape", ["y", "shape"], ["rows"], "flatten"),
    helper.make_node("MatMul", ["rows", "w2"], ["z"], "classify"),
    helper.make_node("Softmax", ["z"], ["out"], "softmax", axis=-1),
]
W1, W2 = weight("w1", _WIDE, _WIDE), weight("w2", _HIDDEN, _NARROW)
SHAPE = numpy_helper.from_array(np.array([_STEPS, _HIDDEN]), "shape")
LSTM_WEIGHTS = [weight("wl", 1, 4 * _HIDDEN, _WIDE), weight("rl", 1, 4 * _HIDDEN, _HIDDEN)]


def model(nodes: list, ends: tuple, weights: list, domain: str = "", known: tuple = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "network", [ends[0]], [ends[1]], weights, value_info=known)
    opsets = [_OPSET, *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def compiled(folder: Path, network: onnx.ModelProto) -> kintune.Executable:
    """The network with the default schedule, for one thread."""
    import tvm

    from kintune.compiler.graph.executable import build_executable, describe_build
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    path = folder / "region.onnx"
    onnx.save(network, path)
    text = resolve_target("native", threads=1)
    target = tvm.target.Target(json.loads(text))
    loaded = load(parse_ref(str(path)))
    described = describe_build(
        model_name="network", model_digest="ab" * 16, target=text, threads=1, inputs=loaded.inputs,
        outputs=loaded.outputs, checks=loaded.checks, chosen={},
    )  # fmt: skip
    return build_executable(lower(loaded.module, target), {}, target, described)


def test_an_lstm_between_two_regions(tmp_path: Path) -> None:
    regions = [
        compiled(tmp_path, model(BEFORE, (X, H), [W1])),
        compiled(tmp_path, model(BEHIND, (Y, OUT), [W2, SHAPE])),
    ]
    paths = [tmp_path / f"{number}.kt" for number in range(2)]
    for region, path in zip(regions, paths, strict=True):
        region.save(path)
    hybrid = Hybrid(
        (
            Region("before", ("project", "relu"), ("x",), ("h",)),
            Region("behind", ("flatten", "classify", "softmax"), ("y",), ("out",)),
        ),
        {"LSTM": 1},
        {"lstm": "operator LSTM is not supported"},
        (onnxruntime.__version__,),
    )
    first, last = (region.manifest for region in regions)
    manifest = msgspec.structs.replace(first, outputs=last.outputs, hybrid=hybrid)
    domain = operator_domain(manifest.model_digest)
    nodes = [
        helper.make_node("Region0", ["x"], ["h"], "before", domain=domain),
        LSTM,
        helper.make_node("Region1", ["y"], ["out"], "behind", domain=domain),
    ]
    host = model(nodes, (X, OUT), LSTM_WEIGHTS, domain, (H, Y))
    HybridExecutable.create(manifest, host.SerializeToString(), paths).save(tmp_path / "hybrid.kt")

    whole = model([*BEFORE, LSTM, *BEHIND], (X, OUT), [W1, W2, SHAPE, *LSTM_WEIGHTS])
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((_STEPS, 1, _WIDE), np.float32)
    with kintune.open(tmp_path / "hybrid.kt") as opened:
        assert opened.hybrid.summary == "runs partly in onnxruntime (1 LSTM)"
        np.testing.assert_allclose(opened.run(x)["out"], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
        assert [time.kernel for time in opened.profile(x)] == ["before", "lstm", "behind"]
