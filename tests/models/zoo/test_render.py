from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kintune.models import zoo
from kintune.models.graph_file import open_graph
from kintune.models.onnx import read
from kintune.models.zoo.network import Weight
from kintune.models.zoo.render import render

SMALL = {"mobilenet_v1_0.5": {"image": 32}, "mobilenet_v2_0.5": {"image": 32}, "resnet18": {"image": 32}}


def test_weights_are_drawn_from_seed_and_name_alone() -> None:
    weight = Weight("w", (1000, 1000), 0.5, 0.25)
    values = weight.values(7)
    np.testing.assert_array_equal(values, weight.values(7))
    assert not np.array_equal(values, weight.values(8))
    assert not np.array_equal(values, Weight("v", (1000, 1000), 0.5, 0.25).values(7))
    assert values.min() >= 0.25
    assert values.max() <= 0.75
    assert values.mean() == pytest.approx(0.5, abs=1e-3)
    assert values.std() == pytest.approx(0.25 / np.sqrt(3), rel=1e-2)


def test_the_stream_of_numbers_is_the_same_for_ever() -> None:
    drawn = Weight("w", (3,), 0.0, 1.0).values(0)
    assert drawn.tobytes().hex() == "a60d623f80da3f3d4c8706bf"


def test_longer_weights_are_drawn_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Weight("w", (1001,), 0.0, 1.0)
    whole = weight.values(3)
    monkeypatch.setattr("kintune.models.zoo.network._CHUNK", 64)
    np.testing.assert_array_equal(weight.values(3), whole)


@pytest.mark.parametrize("name", SMALL)
def test_written_files_are_valid_and_written_once(tmp_path: Path, name: str) -> None:
    path = zoo.write(name, tmp_path, **SMALL[name])
    onnx.checker.check_model(str(path), full_check=True)
    before = path.stat()
    assert zoo.write(name, tmp_path, **SMALL[name]) == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_content_decides_the_name(tmp_path: Path) -> None:
    network = zoo.build("mobilenet_v1_0.5", image=32)
    paths = {render(network, tmp_path, seed=0), render(network, tmp_path, seed=1)}
    paths.add(zoo.write("mobilenet_v1_0.5", tmp_path, image=64))
    assert len(paths) == 3


def test_external_weights_are_the_same_weights(tmp_path: Path) -> None:
    network = zoo.build("mobilenet_v1_0.5", image=32)
    embedded = render(network, tmp_path, seed=0)
    external = render(network, tmp_path, seed=0, external_from=0)
    assert external != embedded
    assert external.stat().st_size < embedded.stat().st_size / 10
    assert external.with_name(f"{external.name}.data").exists()
    assert read(external, {}, own=True).digest == read(embedded, {}).digest
    ours = open_graph(external, own=True).weights
    theirs = {t.name: numpy_helper.to_array(t) for t in onnx.load(external).graph.initializer}
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


def test_nothing_half_written_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kintune.models.zoo.render._write_weights", fail)
    with pytest.raises(OSError, match="No space"):
        render(zoo.build("mobilenet_v1_0.5", image=32), tmp_path, seed=0, external_from=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mobilenet_v1_0.5", {"image": 64}),
        ("mobilenet_v2", {"image": 64}),
        ("resnet18", {"image": 64}),
        ("vit_base", {"layers": 1, "image": 64}),
    ],
)
def test_activations_stay_sane(tmp_path: Path, name: str, options: dict[str, int]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(zoo.write(name, tmp_path, **options)))
    draw = np.random.default_rng(0)
    inputs = {
        port.name: draw.standard_normal(port.shape, dtype=np.float32)
        if port.type == "tensor(float)"
        else draw.integers(0, 2, port.shape)
        for port in session.get_inputs()
    }
    for output in session.run(None, inputs):
        assert 0.05 < np.asarray(output).std() < 50
