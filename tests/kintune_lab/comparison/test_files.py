from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.model import ModelRef
from kintune.errors import InputError
from kintune.testing.small_onnx import write_small_onnx
from kintune_lab.comparison.files import (
    ModelFiles,
    check_constants,
    check_shapes,
    content_of,
    find_models,
    model_of,
    name_models,
)

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def folder(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()


def test_a_folder_stands_for_the_models_in_it_and_below() -> None:
    folder("m/b.onnx", "m/a.pt2", "m/deep/c.onnx", "m/readme.txt", "m/weights.bin")
    assert find_models("m") == ["m/a.pt2", "m/b.onnx", "m/deep/c.onnx"]


def test_a_pattern_stands_for_the_models_that_fit() -> None:
    folder("m/ab.onnx", "m/ac.onnx", "m/b.onnx", "m/a.txt", "m/deep/ad.onnx")
    assert find_models("m/a*") == ["m/ab.onnx", "m/ac.onnx"]
    assert find_models("m/**/a*") == ["m/ab.onnx", "m/ac.onnx", "m/deep/ad.onnx"]


def test_a_file_and_a_network_of_the_zoo_stand_for_themselves() -> None:
    folder("a[1].onnx")
    assert find_models("a[1].onnx") == ["a[1].onnx"]
    assert find_models("zoo:bert_base?batch=2") == ["zoo:bert_base?batch=2"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("none.onnx", "there is no such file; paths are relative"),
        ("empty", "no .onnx or .pt2 file in this folder"),
        ("*.onnx", "no .onnx or .pt2 file has such a name"),
        ("zoo:nothing", "nothing"),
    ],
)
def test_what_stands_for_nothing_is_refused(text: str, problem: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(InputError, match=problem):
        find_models(text)


def test_shapes_and_constants_are_words() -> None:
    write_small_onnx("a.onnx")
    model = model_of("a.onnx", "x=1x2 'a name=3'", "sr=16000")
    assert model.shapes == {"x": (1, 2), "a name": (3,)}
    assert list(model.constants) == ["sr"]


def test_what_does_not_read_so_is_refused() -> None:
    check_shapes("")
    check_constants("")
    with pytest.raises(InputError, match="write NAME=DIM"):
        check_shapes("x:1")
    with pytest.raises(InputError, match="one shape an input"):
        check_shapes("x=1x{2,3}")
    with pytest.raises(InputError, match="close it"):
        check_shapes("'x=1")
    with pytest.raises(InputError, match="write NAME=VALUE"):
        check_constants("sr")


def test_others_read_the_file_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert content_of(ModelRef("onnx", "/a.onnx", "a")) == ModelFiles(onnx="/a.onnx")
    assert content_of(ModelRef("exported", "/a.pt2", "a")) == ModelFiles(exported="/a.pt2")
    written: list[str] = []

    def write(name: str, directory: Path, **options: int) -> Path:
        written.append(name)
        return directory / f"{name}.onnx"

    monkeypatch.setattr("kintune.models.zoo.write", write)
    found = content_of(ModelRef("zoo", "gpt2", "gpt2"))
    assert found.onnx is not None
    assert found.onnx.endswith("zoo/gpt2.onnx")
    assert written == ["gpt2"]


def test_names_are_as_short_as_they_can_be() -> None:
    assert name_models(["m/a.onnx", "m/x/b.onnx", "m/y/b.onnx", "zoo:gpt2", "m/a.onnx"]) == {
        "m/a.onnx": "a",
        "m/x/b.onnx": "x/b",
        "m/y/b.onnx": "y/b",
        "zoo:gpt2": "zoo:gpt2",
    }
    assert name_models(["m/a.onnx", "m/a.pt2"]) == {"m/a.onnx": "m/a.onnx", "m/a.pt2": "m/a.pt2"}
