from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kintune.core.model import ModelRef
from kintune.errors import ModelError, OrderError
from kintune.models import torch_export
from kintune.models.importer import load
from kintune.models.torch_export import export_module, require_exporter
from kintune.models.torch_to_onnx import exported_to_onnx, exporter
from tests.support.tools import require

torch = require("torch")
require("onnxscript")
pytestmark = [
    pytest.mark.tvm, pytest.mark.needs("onnxscript"), pytest.mark.filterwarnings("ignore:::torch.*"),
]  # fmt: skip


class Net(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.head = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU())

    def forward(self, x: Any, scale: float, mask: Any) -> Any:
        features = self.head(x) * scale
        return {"masked": features * mask, "nothing": None, "best": (features.argmax(1), features)}


def saved(module: Any, arguments: tuple[Any, ...], path: Path, **options: Any) -> ModelRef:
    torch.export.save(torch.export.export(module.eval(), arguments, **options), path)
    return ModelRef("exported", str(path), path.stem)


@pytest.fixture
def net(tmp_path: Path) -> ModelRef:
    torch.manual_seed(0)
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    arguments = torch.zeros(4, 6), 2.0, torch.zeros(8)
    ref = saved(Net(), arguments, tmp_path / "net.pt2", dynamic_shapes=(batch, None, None))
    return ref.with_combinations([{"x": (3, 6)}])


def test_names_and_open_dimensions_are_those_of_the_program(net: ModelRef, tmp_path: Path) -> None:
    ref = exported_to_onnx(net, str(tmp_path / "net.kt"), ".onnx")
    assert (ref.kind, ref.name, ref.own) == ("onnx", "net", True)
    assert Path(ref.source).name.startswith("net.kt.")
    session = onnxruntime.InferenceSession(ref.source)
    assert [value.name for value in session.get_inputs()] == ["x", "mask"]
    assert isinstance(session.get_inputs()[0].shape[0], str)
    as_it_is = load(net)
    assert [value.name for value in session.get_outputs()] == [each.name for each in as_it_is.outputs]
    x, mask = np.random.default_rng(0).standard_normal((3, 6), np.float32), np.ones(8, np.float32)
    wanted = torch.export.load(net.source).module()(torch.from_numpy(x), 2.0, torch.from_numpy(mask))
    found = session.run(None, {"x": x, "mask": mask})
    np.testing.assert_allclose(found[0], wanted["masked"].detach().numpy(), rtol=1e-5)
    assert load(ref).outputs == as_it_is.outputs


def test_nodes_are_named_after_modules_and_nothing_tells_of_this_machine(net: ModelRef, tmp_path: Path) -> None:
    path = Path(exported_to_onnx(net, str(tmp_path / "net.kt"), ".onnx").source)
    assert any(node.name.startswith("head.0/") for node in onnx.load(path).graph.node)
    for told in (__file__, str(tmp_path), "stack_trace"):
        assert told.encode() not in path.read_bytes()


def test_a_program_is_exported_once(net: ModelRef, tmp_path: Path) -> None:
    first = Path(exported_to_onnx(net, str(tmp_path / "net.kt"), ".onnx").source)
    content = first.read_bytes()
    first.write_bytes(b"")
    assert Path(exported_to_onnx(net, str(tmp_path / "net.kt"), ".onnx").source).read_bytes() == b""
    first.unlink()
    assert Path(exported_to_onnx(net, str(tmp_path / "net.kt"), ".onnx").source).read_bytes() == content
    other = saved(Net(9), (torch.zeros(4, 6), 2.0, torch.zeros(9)), tmp_path / "other.pt2")
    assert exported_to_onnx(other, str(tmp_path / "net.kt"), ".onnx").source != str(first)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".onnx", ".onnx", ".pt2", ".pt2"]


class Bessel(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Bessel(), r"bad.pt2: PyTorch cannot export it to ONNX: PyTorch has no ONNX function for prims.bessel_j0$"),
        (Counting(), "bad.pt2: reads and changes its buffer count, which a compiled program does not keep"),
    ],
)
def test_what_cannot_be_exported_is_named(module: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        exported_to_onnx(saved(module, (torch.zeros(3),), tmp_path / "bad.pt2"), str(tmp_path / "bad.kt"), ".onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pt2"]


def test_a_missing_exporter_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require_exporter("net: int8")
    assert exporter().startswith("PyTorch 2")
    monkeypatch.setattr(torch_export, "find_spec", lambda name: None)
    with pytest.raises(OrderError, match=r"^net: int8 needs onnxscript, .*: pip install 'kintune\[torch\]'$"):
        require_exporter("net: int8")


def test_a_live_module_goes_the_same_way(tmp_path: Path) -> None:
    ref = export_module(torch.nn.Linear(4, 2), (torch.zeros(1, 4),), tmp_path)
    assert load(exported_to_onnx(ref, str(tmp_path / "linear.kt"), ".onnx")).outputs == load(ref).outputs
