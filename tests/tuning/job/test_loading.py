from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
import tvm

from kintune.core.config import JobSpec, Options
from kintune.core.measurement_protocol import DeviceType
from kintune.core.model import ModelRef
from kintune.errors import InputError, ModelError
from kintune.models.evaluation import open_session
from kintune.runtime.target import resolve_target
from kintune.tuning.job.loading import load_quantised
from tests.support.tools import require
from tests.support.toy_tools import toy_spec

torch = require("torch")
require("onnxscript")
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.needs("onnxscript"),
    pytest.mark.filterwarnings("ignore:::torch.*"),
    pytest.mark.filterwarnings("ignore:::copyreg"),
]
TARGET = tvm.target.Target("llvm")


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, image: Any) -> Any:
        return self.head(torch.relu(self.conv(image)).mean((2, 3)))


class Places(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nonzero(torch.relu(x) @ x.T)


class SingularValues(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.svdvals(x)


def made(folder: Path, module: Any, *shape: int, **options: Any) -> JobSpec:
    batch = {0: torch.export.Dim("batch", min=1, max=64)} if options else None
    program = torch.export.export(module.eval(), (torch.randn(shape),), dynamic_shapes=batch and (batch,))
    torch.export.save(program, folder / "net.pt2")
    spec = toy_spec(Options(trials=1, **options))
    name = program.graph_signature.user_inputs[0]
    model = ModelRef("exported", str(folder / "net.pt2"), "net", {str(name): shape})
    device = DeviceType(resolve_target("native", 1), "a processor", ("avx512vnni",), 1, "1-cold")
    return msgspec.structs.replace(spec, model=model, output=str(folder / "net.kt"), device_type=device)


def calibrated(spec: JobSpec, folder: Path) -> JobSpec:
    files, rng = [], np.random.default_rng(0)
    for number in range(4):
        files.append(str(folder / f"{number}.npz"))
        np.savez(files[-1], image=rng.standard_normal((2, 3, 8, 8), np.float32))
    return msgspec.structs.replace(spec, calibration_files=tuple(files), cores=1)


def test_a_program_that_can_be_imported_is_not_exported(tmp_path: Path) -> None:
    networks, handed_over, quantised = load_quantised(made(tmp_path, Layers(), 2, 3, 8, 8), TARGET)
    assert (networks.onnx_path, networks.exported_path, networks.exporter) == (None, str(tmp_path / "net.pt2"), "")
    assert (networks.notes, handed_over, quantised) == ((), (), None)
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt2"]


def test_a_program_is_quantised_by_way_of_onnx(tmp_path: Path) -> None:
    """The quantised graph computes what PyTorch does, within the budget, also where onnxruntime's products saturate."""
    spec = calibrated(made(tmp_path, Layers(), 2, 3, 8, 8, precision="int8", max_error=0.1), tmp_path)
    networks, _, quantised = load_quantised(spec, TARGET)
    assert quantised is not None
    assert (quantised.quantised.products, quantised.quantised.int8) == (2, 2)
    (exported,) = tmp_path.glob("net.kt.*.exported.onnx")
    assert (networks.onnx_path, networks.exported_path) == (str(exported), str(tmp_path / "net.pt2"))
    assert networks.exporter.startswith("PyTorch 2")
    assert "an option works on ONNX graphs" in networks.notes[0]
    assert [tensor.name for tensor in networks.combinations[0].outputs] == ["output"]
    with np.load(spec.calibration_files[-1]) as arrays:
        image = arrays["image"]
    (found,) = open_session(onnx.load(quantised.path)).run(None, {"image": image})
    wanted = torch.export.load(spec.model.source).module()(torch.from_numpy(image)).detach().numpy()
    assert 0 < np.linalg.norm(found - wanted) <= 0.1 * np.linalg.norm(wanted)


def test_messages_name_the_program(tmp_path: Path) -> None:
    spec = calibrated(made(tmp_path, Layers(), 2, 3, 8, 8, precision="int8", max_error=1e-12), tmp_path)
    with pytest.raises(InputError, match=r"even in fp32 the outputs of net\.pt2, as ONNX move by"):
        load_quantised(spec, TARGET)


def test_other_shapes_stay_open_in_the_onnx_file(tmp_path: Path) -> None:
    spec = made(tmp_path, Layers(), 2, 3, 8, 8, other_shapes="onnxruntime")
    model = spec.model.with_combinations([{"image": (2, 3, 8, 8)}, {"image": (5, 3, 8, 8)}])
    networks, _, _ = load_quantised(msgspec.structs.replace(spec, model=model), TARGET)
    assert [each.outputs[0].shape for each in networks.combinations] == [(2, 10), (5, 10)]
    assert isinstance(onnxruntime.InferenceSession(networks.onnx_path).get_inputs()[0].shape[0], str)


def test_what_cannot_be_imported_runs_in_onnxruntime(tmp_path: Path) -> None:
    networks, _, _ = load_quantised(made(tmp_path, Places(), 4, 4), TARGET)
    assert networks.hybrid is not None
    assert networks.hybrid.partition.operators["NonZero"] == 1
    assert "as it is, the shape of the result of aten.nonzero" in networks.notes[0]
    assert networks.exported_path == str(tmp_path / "net.pt2")


def test_what_cannot_be_exported_either_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"svd.*; PyTorch cannot export it to ONNX: .*svd") as error:
        load_quantised(made(tmp_path, SingularValues(), 4, 4), TARGET)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt2"]
