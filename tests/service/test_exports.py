from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.service.exports import ExportKind, exported, sweep_exports
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


def test_what_a_process_that_was_killed_has_left_goes_once_it_is_old(tmp_path: Path) -> None:
    for name, at in (("export-old", 10.0), ("export-new", 100.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.kt").write_bytes(b"x")
        os.utime(tmp_path / name, (at, at))
    sweep_exports(tmp_path, 50.0)
    assert [left.name for left in tmp_path.iterdir()] == ["export-new"]
    sweep_exports(tmp_path / "none", 50.0)
