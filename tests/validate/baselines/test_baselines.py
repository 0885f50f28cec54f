"""What every baseline must do, tested on all of them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kintune.errors import InputError
from kintune.models.constants import store_constant
from kintune.validate.baselines import BASELINES, BaselineModel, make_baseline
from kintune.validate.baselines.open_vino import OpenVino

INPUTS = {
    "x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
    "ids": np.array([[1, 0, 2]] * 3, np.int64),
}


def expected() -> list[Any]:
    """The network: `total` = relu(x) summed over its columns, and `picked`, the columns of x that ids name."""
    return [np.maximum(INPUTS["x"], 0).sum(1), np.take_along_axis(INPUTS["x"], INPUTS["ids"], 1)]


@pytest.fixture
def dynamic_onnx(tmp_path: Path) -> Path:
    """The network with its rows left open."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("ReduceSum", ["r", "axes"], ["total"], keepdims=0),
            helper.make_node("GatherElements", ["x", "ids"], ["picked"], axis=1),
        ],
        "dynamic",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", 3]),
        ],
        [
            helper.make_tensor_value_info("total", TensorProto.FLOAT, ["rows"]),
            helper.make_tensor_value_info("picked", TensorProto.FLOAT, ["rows", 3]),
        ],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "dynamic.onnx")
    return tmp_path / "dynamic.onnx"


@pytest.mark.parametrize("name", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.needs("openvino"))])
def test_it_runs_an_onnx_file_and_keeps_the_order_of_outputs(name: str, dynamic_onnx: Path) -> None:
    baseline, subject = make_baseline(name), BaselineModel(onnx=str(dynamic_onnx))
    assert baseline.unavailable(subject) is None
    baseline.prepare(subject, 1, INPUTS)
    for _ in range(2):
        for output, wanted in zip(baseline.run(), expected(), strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.needs("openvino"))])
def test_it_is_fed_the_constants_that_the_executable_lacks(name: str, dynamic_onnx: Path) -> None:
    subject = BaselineModel(onnx=str(dynamic_onnx), constants={"ids": store_constant("ids", INPUTS["ids"], typed=True)})
    baseline = make_baseline(name)
    baseline.prepare(subject, 1, {"x": INPUTS["x"]})
    for output, wanted in zip(baseline.run(), expected(), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-6)


@pytest.mark.parametrize("external", [False, True])
def test_onnxruntime_takes_a_file_format_newer_than_it_knows(dynamic_onnx: Path, external: bool) -> None:
    model = onnx.load(dynamic_onnx)
    model.ir_version = 99
    options = {"save_as_external_data": True, "size_threshold": 0, "location": "weights"} if external else {}
    onnx.save(model, dynamic_onnx, **options)
    baseline = make_baseline("onnxruntime")
    baseline.prepare(BaselineModel(onnx=str(dynamic_onnx)), 1, INPUTS)
    for output, wanted in zip(baseline.run(), expected(), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore")  # PyTorch deprecates parts of itself while it is imported
def test_torch_compiles_an_exported_program(tmp_path: Path) -> None:
    import torch

    class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, ids: Any) -> Any:
            return torch.relu(x).sum(1), torch.gather(x, 1, ids)

    example = tuple(torch.from_numpy(array) for array in INPUTS.values())
    torch.export.save(torch.export.export(Network(), example), tmp_path / "network.pt2")
    baseline, subject = make_baseline("torch"), BaselineModel(exported=str(tmp_path / "network.pt2"))
    assert baseline.unavailable(subject) is None
    baseline.prepare(subject, 1, INPUTS)
    for output, wanted in zip(baseline.run(), expected(), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_each_says_what_form_of_the_network_it_lacks(name: str) -> None:
    assert make_baseline(name).unavailable(BaselineModel()) in (
        "the model is not an ONNX file",
        "the model is not a PyTorch exported program",
        "there is no executable",
        "the model was not quantised",
    )


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch"])
def test_each_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = BaselineModel("a.kt", "a.onnx", "a.pt2")
    modules = {"onnxruntime": "onnx_runtime", "openvino": "open_vino", "torch": "torch_compile"}
    monkeypatch.setattr(f"kintune.validate.baselines.{modules[name]}.find_spec", lambda _: None)
    assert str(make_baseline(name).unavailable(everything)).startswith("not installed: pip install ")


@pytest.mark.parametrize(
    ("extensions", "reason"),
    [
        (("avx2", "avx512f", "avx512vnni"), "this processor has no instructions for bfloat16"),
        (("avx512bf16", "avx512f"), None),
        (("amxbf16",), None),
        (None, None),
    ],
)
def test_bf16_is_no_rival_where_the_processor_emulates_it(
    extensions: tuple[str, ...] | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintune.validate.baselines.open_vino.find_spec", lambda _: object())
    monkeypatch.setattr("kintune.validate.baselines.open_vino.host_extensions", lambda: extensions)
    monkeypatch.setattr("kintune.validate.baselines.open_vino.host_machine", lambda: "x86_64")
    assert make_baseline("openvino_bf16").unavailable(BaselineModel(onnx="a.onnx")) == reason
    assert make_baseline("openvino").unavailable(BaselineModel(onnx="a.onnx")) is None
    monkeypatch.setattr("kintune.validate.baselines.open_vino.host_machine", lambda: "aarch64")
    refused = make_baseline("openvino_bf16").unavailable(BaselineModel(onnx="a.onnx"))
    assert refused == "it does not compute in bfloat16 on aarch64"


def test_torch_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.validate.baselines.torch_compile.find_spec", lambda _: object())
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "C++ compiler" in str(make_baseline("torch").unavailable(BaselineModel(exported="a.pt2")))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match="'tensorflow'; there are kintune, onnxruntime, onnxruntime_flushing, onnxruntime_int8, openvino,",
    ):
        make_baseline("tensorflow")


def test_openvino_says_why_it_cannot_compile_without_places_in_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_model(self: object, core: object, threads: int) -> None:
        raise RuntimeError(
            "Exception from src/inference/src/cpp/core.cpp:132:\nCheck 'false' failed at src/a.cpp:151:\n"
            "Conversion is failed for: AveragePool-18\n\n"
        )

    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Core=lambda: None))
    monkeypatch.setattr(OpenVino, "_compile", compile_model)
    with pytest.raises(InputError, match=r"^Conversion is failed for: AveragePool-18$"):
        OpenVino().prepare(BaselineModel(onnx="a.onnx"), 1, {})
