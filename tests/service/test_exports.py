from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.service.exports import ExportKind, exported
from tests.support.toy_model import write_model


@pytest.mark.parametrize(
    ("kind", "name", "inside"),
    [
        (ExportKind.C, "net-c.zip", "net-c/libkintune.so"),
        (ExportKind.ONNX, "net-onnx.zip", "net-onnx/net.onnx"),
    ],
)
def test_an_export_is_one_archive(tmp_path: Path, kind: ExportKind, name: str, inside: str) -> None:
    with exported(write_model(tmp_path / "model.kt"), kind, "net", tmp_path / "exports") as made:
        assert made.name == name
        with zipfile.ZipFile(made) as archive:
            assert inside in archive.namelist()
    assert list((tmp_path / "exports").iterdir()) == []


def test_a_wheel_is_a_wheel(tmp_path: Path) -> None:
    with exported(write_model(tmp_path / "model.kt"), ExportKind.WHEEL, "net", tmp_path / "exports") as made:
        assert made.suffix == ".whl"


def test_where_a_result_lies_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"no executable")
    with pytest.raises(InputError) as caught, exported(tmp_path / "abc", ExportKind.C, "net", tmp_path / "exports"):
        pass
    assert str(tmp_path) not in str(caught.value)
