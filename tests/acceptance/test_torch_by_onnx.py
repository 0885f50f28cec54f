"""Programs of PyTorch by way of ONNX, by the real command: parts in onnxruntime, int8, few bits, other shapes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.runtime.manifest import read_manifest
from tests.support.tools import require

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.conftest import Command, Place

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]
by_onnx = pytest.mark.needs("onnxscript")

SAID = "the result is made of the program as ONNX, to which PyTorch"


class Detector(torch.nn.Module):
    """Returns the places of large values: their number depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3))

    def forward(self, image: Any) -> Any:
        found = torch.sigmoid(self.body(image))
        return {"scores": found, "places": torch.nonzero(found > 0.5)}


class Layers(torch.nn.Module):
    """Two products of matrices that are large enough for weights of few bits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Images(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Conv2d(3, 32, 3, padding=1, bias=False), torch.nn.BatchNorm2d(32), torch.nn.ReLU()),
            *(torch.nn.Conv2d(32, 64, 3, 2, 1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()),
            torch.nn.Linear(64, 10),
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def save(place: Place, module: Any, shape: tuple[int, ...], **options: Any) -> Path:
    torch.manual_seed(0)
    path = place.folder / "net.pt2"
    torch.export.save(torch.export.export(module().eval(), (torch.randn(shape),), **options), path)
    return path


def outputs(place: Place, path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Checks that the result computes what PyTorch does; returns the outputs of both."""
    np.savez(place.folder / "in.npz", **inputs)
    command = place.start("run", "net.kt", "--input", "in.npz", "--output", "out.npz")
    assert command.wait() == 0, command.err
    with np.load(place.folder / "out.npz") as found:
        wanted = torch.export.load(path).module()(*map(torch.from_numpy, inputs.values()))
        named = wanted if isinstance(wanted, dict) else {"output": wanted}
        return {name: (found[name], value.detach().numpy()) for name, value in named.items()}


def made_by_onnx(place: Place, command: Command) -> dict[str, Any]:
    """The report of a command that has ended well; it and the file say how the result was made, and no file is left."""
    assert command.wait() == 0, command.err
    document: dict[str, Any] = json.loads((place.folder / "report.json").read_text())
    assert [note for note in document["notes"] if note.startswith(SAID)]
    assert SAID in command.out
    assert read_manifest(place.folder / "net.kt").exporter.startswith("PyTorch")
    assert not list(place.folder.glob("net*.onnx*"))
    return document


@by_onnx
def test_a_program_with_a_node_that_cannot_be_compiled_runs_in_parts(empty_place: Place) -> None:
    path = save(empty_place, Detector, (1, 3, 24, 24))
    command = empty_place.start("compile", "net.pt2", "--json", "report.json")
    document = made_by_onnx(empty_place, command)
    assert "aten.nonzero.default" in " ".join(document["notes"])
    assert "onnxruntime runs NonZero (1)" in command.out
    assert document["within_tolerance"]
    image = np.random.default_rng(0).standard_normal((1, 3, 24, 24), np.float32)
    found = outputs(empty_place, path, {"image": image})
    np.testing.assert_allclose(*found["scores"], rtol=1e-3, atol=1e-4)
    assert found["places"][0].shape == found["places"][1].shape
    said = empty_place.start("evaluate", "net.kt")
    assert said.wait() == 0
    assert "made of a program of PyTorch as ONNX" in said.out


def test_without_the_exporter_such_a_program_is_refused_and_the_package_is_named(empty_place: Place) -> None:
    save(empty_place, Detector, (1, 3, 24, 24))
    command = empty_place.start("compile", "net.pt2")
    assert command.wait() == 2
    line = command.err.splitlines()[-1]
    assert "aten.nonzero.default" in line
    assert "needs onnxscript, PyTorch's exporter to ONNX; first run: pip install 'kintune[torch]'" in line
    assert [path.name for path in empty_place.folder.glob("net*")] == ["net.pt2"]


@by_onnx
@pytest.mark.slow
def test_a_program_gets_weights_of_few_bits_and_takes_other_shapes(empty_place: Place) -> None:
    """The error is that from PyTorch, also where onnxruntime runs a shape that was not tuned.

    The fast tests of the same are in `tests/tuning/job/test_loading.py`.
    """
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    path = save(empty_place, Layers, (4, 256), dynamic_shapes=(rows,))
    command = empty_place.start(
        "compile", "net.pt2", "--weights", 8, "--max-error", 0.05, "--shape", "x=4x256",
        "--other-shapes", "onnxruntime", "--json", "report.json",
    )  # fmt: skip
    document = made_by_onnx(empty_place, command)
    assert (document["quantised"]["bits"], document["quantised"]["int8"]) == (8, 2)
    assert 0 < document["norm_error"] <= 0.05
    for number, bound in ((4, 0.05), (7, 1e-5)):
        x = np.random.default_rng(0).standard_normal((number, 256), np.float32)
        ((found, wanted),) = outputs(empty_place, path, {"x": x}).values()
        assert np.linalg.norm(found - wanted) <= bound * np.linalg.norm(wanted)


@by_onnx
@pytest.mark.slow
def test_a_program_is_quantised_and_scored(empty_place: Place) -> None:
    """The fast tests of the same are in `tests/tuning/job/test_loading.py` and `tests/validate/test_score.py`."""
    path = save(empty_place, Images, (1, 3, 32, 32))
    rng = np.random.default_rng(0)
    (empty_place.folder / "samples").mkdir()
    for number in range(8):
        np.savez(empty_place.folder / "samples" / f"{number}.npz", x=rng.standard_normal((1, 3, 32, 32), np.float32))
    (empty_place.folder / "mine.py").write_text(
        "import numpy as np\n\n\ndef score(run):\n"
        "    x = np.random.default_rng(9).standard_normal((1, 3, 32, 32)).astype(np.float32)\n"
        "    return float(abs(run({'x': x})['output']).sum())\n"
    )
    command = empty_place.start(
        "compile", "net.pt2", "--precision", "auto", "--calibrate", "samples", "--metric", "mine.py:score",
        "--max-drop", 0.5, "--json", "report.json",
    )  # fmt: skip
    document = made_by_onnx(empty_place, command)
    if document["quantised"] is None:
        assert "The model was not quantised: this processor has no instructions for products of bytes" in command.out
    else:
        assert document["quantised"]["int8"] > 0
        assert document["options"]["metric"]["reference"] - document["score"] <= 0.5
    x = rng.standard_normal((1, 3, 32, 32), np.float32)
    ((found, wanted),) = outputs(empty_place, path, {"x": x}).values()
    assert np.linalg.norm(found - wanted) <= 0.2 * np.linalg.norm(wanted)
