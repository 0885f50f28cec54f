"""What is exported is for machines of one kind."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.runtime.exports.c_library import export_c
from kintune.runtime.exports.onnx_operator import export_onnx
from kintune.runtime.exports.source import open_source
from kintune.runtime.exports.wheel import export_wheel
from kintune.runtime.merging import merge
from kintune.runtime.package import write_vm_package
from tests.support.toy_model import ADDING, manifest, write_model

EXPORTS = [export_c, export_onnx, export_wheel]


def test_a_model_for_cpus_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "toy.kt")
    monkeypatch.chdir(tmp_path)
    path, package = open_source(Path("toy.kt"))
    assert path == model
    assert package.manifest.model_name == "toy"


def test_variants_for_machines_of_this_kind_are_taken(tmp_path: Path) -> None:
    given = [write_model(tmp_path / f"{name}.kt", isa=[name]) for name in ("avx1024", "avx2048")]
    _, package = open_source(merge(given, tmp_path / "fat.kt").path)
    assert [variant.manifest.isa for variant in package.variants] == [("avx1024",), ("avx2048",)]


@pytest.mark.parametrize("export", EXPORTS)
def test_machines_of_several_kinds_are_refused(tmp_path: Path, export: Callable[[Path, Path], Path]) -> None:
    given = [write_model(tmp_path / "this.kt"), write_model(tmp_path / "other.kt", machine="a64")]
    fat = merge(given, tmp_path / "fat.kt").path
    with pytest.raises(InputError, match=rf"fat.kt: built for a64 and {platform.machine()}.*export each of the files"):
        export(fat, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("export", EXPORTS)
def test_a_file_for_the_virtual_machine_is_refused(tmp_path: Path, export: Callable[[Path, Path], Path]) -> None:
    write_vm_package(tmp_path / "board.kt", manifest(ADDING), b"", [])
    with pytest.raises(InputError, match=r"board.kt: made for TVM's virtual machine"):
        export(tmp_path / "board.kt", tmp_path / "export")
    assert not (tmp_path / "export").exists()
