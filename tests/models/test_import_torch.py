from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.errors import ModelError, OrderError, ShapeError, UnsupportedOperators
from kintune.models.constants import constant_of
from kintune.models.digest import exported_digest
from kintune.models.ref import parse_ref
from kintune.models.torch_export import export_module
from tests.support.tools import require

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)
        self.register_buffer("shift", torch.arange(5.0))

    def forward(self, image: Any, scale: Any) -> Any:
        features = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        return {"logits": (self.head(features) + self.shift) * scale, "features": features}


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def example() -> tuple[Any, Any]:
    return torch.randn(1, 3, 16, 16), torch.randn(5)


def test_a_module_is_exported_and_computes_the_same(net: Any, example: Any, tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load

    ref = export_module(net, example, tmp_path)
    assert (ref.kind, ref.name, Path(ref.source).parent) == ("exported", "net", tmp_path)
    assert net.training
    model = load(ref)
    assert model.inputs == (
        Tensor("image", (1, 3, 16, 16), "float32", values="image"),
        Tensor("scale", (5,), "float32"),
    )
    assert model.outputs == (Tensor("logits", (1, 5), "float32"), Tensor("features", (1, 8), "float32"))
    assert (model.onnx_path, model.exported_path, model.opset) == (None, ref.source, 0)
    assert int(model.module["main"].attrs["num_input"]) == 2
    expected = net.eval()(*example)
    ours = run_module(model, {"image": example[0].numpy(), "scale": example[1].numpy()})
    for got, name in zip(ours, ("logits", "features"), strict=True):
        np.testing.assert_allclose(got, expected[name].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_the_same_module_is_the_same_file(net: Any, tmp_path: Path) -> None:
    refs = {
        export_module(net, (torch.randn(1, 3, 16, 16), torch.randn(5)), tmp_path).source,
        export_module(net, (torch.randn(1, 3, 16, 16), torch.randn(5)), tmp_path).source,
    }
    assert len(refs) == 1
    assert [str(path) for path in tmp_path.iterdir()] == list(refs)
    with torch.no_grad():
        net.shift += 1
    assert export_module(net, (torch.randn(1, 3, 16, 16), torch.randn(5)), tmp_path).source not in refs


def test_inputs_may_be_given_by_keyword(net: Any, example: Any, tmp_path: Path) -> None:
    from kintune.models.importer import load

    model = load(export_module(net, {"image": example[0], "scale": example[1]}, tmp_path, name="mine"))
    assert model.name == "mine"
    assert [tensor.name for tensor in model.inputs] == ["image", "scale"]


def test_open_dimensions_are_bound(tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load

    layer = torch.nn.Linear(4, 2).eval()
    rows = torch.export.Dim("rows")
    program = torch.export.export(layer, (torch.randn(3, 4),), dynamic_shapes=({0: rows},))
    path = tmp_path / "line.pt2"
    torch.export.save(program, path)
    with pytest.raises(ShapeError, match=r"of unknown size in dimension 0 .*add --shape input=1x4"):
        load(parse_ref(str(path)))
    with pytest.raises(ShapeError, match="contradicts the model"):
        load(parse_ref(str(path), ["input=7x5"]))
    model = load(parse_ref(str(path), ["input=7x4"]))
    assert (model.inputs[0].shape, model.outputs) == ((7, 4), (Tensor("output", (7, 2), "float32"),))
    x = torch.randn(7, 4)
    np.testing.assert_allclose(
        run_module(model, {"input": x.numpy()})[0], layer(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )
    assert exported_digest(path, {"input": (7, 4)}) != exported_digest(path, {"input": (8, 4)})


def test_constant_inputs_vanish(net: Any, example: Any, tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load

    scale = example[1].numpy()
    ref = msgspec.structs.replace(export_module(net, example, tmp_path), constants={"scale": constant_of("s", scale)})
    model, whole = load(ref), load(msgspec.structs.replace(ref, constants={}))
    assert [tensor.name for tensor in model.inputs] == ["image"]
    assert model.digest != whole.digest
    image = torch.randn(1, 3, 16, 16).numpy()
    for got, wanted in zip(
        run_module(model, {"image": image}), run_module(whole, {"image": image, "scale": scale}), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="a constant is given for 'scales', but the model's inputs are image, scale"):
        load(msgspec.structs.replace(ref, constants={"scales": constant_of("s", 1)}))


def test_operators_that_cannot_be_imported_are_listed_with_counts(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Bessel(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1) + torch.linalg.svd(x)[1]

    with pytest.raises(UnsupportedOperators) as caught:
        load(export_module(Bessel(), (torch.randn(4, 4),), tmp_path))
    assert caught.value.counts == {"special_bessel_j0.default": 2, "_linalg_svd.default": 1}


def test_a_module_that_cannot_be_exported_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError, match="branch: PyTorch cannot export this module: Could not guard"):
        export_module(Branch(), (torch.randn(4),), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("keep", [4, 100, 2000, -1])
def test_truncated_programs_are_refused(net: Any, example: Any, tmp_path: Path, keep: int) -> None:
    from kintune.models.importer import load

    whole = Path(export_module(net, example, tmp_path).source).read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(whole[:keep])
    with pytest.raises(ModelError, match="is not a PyTorch exported program, or is incomplete"):
        load(parse_ref(str(path)))


def test_archives_that_would_unfold_are_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/models/model.json", b"0" * 10_000_000)
    with pytest.raises(ModelError, match=r"is not an archive that torch\.export\.save wrote"):
        load(parse_ref(str(path)))


def test_other_archives_are_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    path = tmp_path / "other.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other/readme", b"hello")
    with pytest.raises(ModelError, match="PyTorch cannot read this exported program"):
        load(parse_ref(str(path)))


def test_without_pytorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OrderError, match=r"pip install 'kintune\[torch\]'"):
        export_module(object(), (), tmp_path)  # type: ignore[arg-type]
