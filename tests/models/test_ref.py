from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import InputError, ModelError, ShapeError
from kintune.models import zoo
from kintune.models.ref import parse_ref


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InputError):
        parse_ref(text)


def test_one_input_with_two_shapes_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"x was already given as 1x2"):
        parse_ref("zoo:resnet18", ["x=1x2", "x=1x3"])


@pytest.mark.parametrize("name", zoo.names())
def test_every_zoo_name_is_accepted(name: str) -> None:
    ref = parse_ref(f"zoo:{name}")
    assert (ref.kind, ref.source, ref.name, ref.options) == ("zoo", name, name, {})


def test_zoo_options_are_read() -> None:
    assert parse_ref("zoo:bert_base?batch=8&sequence=64").options == {"batch": 8, "sequence": 64}
    assert parse_ref("zoo:bert_base?batch=8", options={"sequence": 64}).options == {"batch": 8, "sequence": 64}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zoo:resnet19", "did you mean resnet18"),
        ("zoo:", "there are bert_base, bert_large"),
        ("zoo:nothing-like-it", "vit_huge"),
        ("zoo:resnet18?sequence=3", "no option 'sequence'; it takes batch, image"),
        ("zoo:resnet18?batch=0", "batch must be at least 1, not 0"),
        ("zoo:resnet18?batch=5000", "batch must be at most 4096"),
        ("zoo:resnet18?batch=two", "'batch=two' is none"),
        ("zoo:resnet18?batch", "'batch' is none"),
        ("zoo:resnet18?", None),
    ],
)
def test_zoo_names_and_options_that_do_not_exist(text: str, said: str | None) -> None:
    if said is None:
        assert parse_ref(text).options == {}
        return
    with pytest.raises(ModelError) as caught:
        parse_ref(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(("name", "content", "kind"), [("a.onnx", b"x", "onnx"), ("a.pt2", b"PK\x03\x04", "exported")])
def test_files_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    ref = parse_ref(name, ["input=1x3"])
    assert (ref.kind, ref.source, ref.name) == (kind, str(tmp_path / name), "a")
    assert ref.shapes == {"input": (1, 3)}
    several = parse_ref(name, ["input=1x{3,4}", "mask=2"])
    assert several.combinations == ({"input": (1, 3), "mask": (2,)}, {"input": (1, 4), "mask": (2,)})
    assert [each.shapes for each in several.each()] == list(several.combinations)
    assert all(each.more_shapes == () and each.source == several.source for each in several.each())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.onnx", b"", "the file is empty"),
        ("empty.pt2", b"", "the file is empty"),
        ("weights.pt", pickle.dumps({"w": 1}), "torch.export.save"),
        ("weights.PTH", b"PK\x03\x04", "never loaded"),
        ("archive.onnx", b"PK\x03\x04", "ends in .pt2"),
        ("program.pt2", b"not a zip", "is not a PyTorch exported program"),
        ("model.safetensors", b"x", "convert the model to ONNX"),
    ],
)
def test_unsuitable_files_are_refused_by_name(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        parse_ref(str(tmp_path / name))
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_a_missing_file_a_directory_and_a_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        parse_ref(str(tmp_path / "missing.onnx"))
    with pytest.raises(ModelError, match="is a directory"):
        parse_ref(str(tmp_path))
    with pytest.raises(ModelError, match="not a regular file"):
        parse_ref("/dev/zero")


def test_a_zoo_name_without_its_prefix_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="write zoo:resnet18"):
        parse_ref("resnet18")


def test_parsing_loads_no_heavy_library() -> None:
    code = (
        "import sys, kintune.models, kintune.models.zoo as zoo; kintune.models.parse_ref('zoo:bert_base');"
        "print([m for m in ('numpy', 'onnx', 'tvm', 'torch') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
