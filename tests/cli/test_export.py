from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import write_model

if TYPE_CHECKING:
    from tests.support.command import Kintune


@pytest.fixture(autouse=True)
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "m.kt")


def test_it_says_what_to_register(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("export", "m.kt", "--to", "onnx", "made")
    assert said.code == 0
    assert said.out.splitlines() == [
        f"The result is {tmp_path / 'made' / 'm.onnx'}",
        "Register the library first: SessionOptions.register_custom_ops_library("
        f"'{tmp_path / 'made' / 'libkintune_onnx.so'}')",
    ]
    assert (tmp_path / "made" / "m.onnx").is_file()


def test_commands_to_copy_take_names_with_blanks(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("export", "m.kt", "--to", "c", "made here")
    assert f"cd '{tmp_path / 'made here'}' && cc example.c" in said.out


def test_the_document_names_the_files(kintune: Kintune, tmp_path: Path) -> None:
    document = json.loads(kintune("export", "m.kt", "--to", "onnx", "made", "--json", "-").out)
    assert document == {
        "schema_version": 1, "executable": "m.kt", "to": "onnx", "network": str(tmp_path / "made" / "m.onnx"),
        "library": str(tmp_path / "made" / "libkintune_onnx.so"),
    }  # fmt: skip


def test_a_directory_that_is_not_empty_is_wrong_input(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("export", "m.kt", "--to", "onnx", str(tmp_path))
    assert said.code == 2
    assert "is not empty" in said.err


def test_a_model_of_another_machine_is_one_clear_line(kintune: Kintune, tmp_path: Path) -> None:
    write_model(tmp_path / "other.kt", machine="riscv64")
    for to in ("c", "onnx", "wheel"):
        said = kintune("export", "other.kt", "--to", to, "made")
        assert (said.code, len(said.err.splitlines())) == (2, 1)
        assert "name a wheel of the runtime for riscv64" in said.err
    (tmp_path / "runtime.whl").write_text("no wheel")
    said = kintune("export", "other.kt", "--to", "c", "made", "--runtime", "runtime.whl")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "no wheel, or a damaged one" in said.err


def test_what_runs_partly_in_onnxruntime_is_for_onnxruntime_and_python(kintune: Kintune, tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)
    said = kintune("export", path, "--to", "c", "made")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "runs partly in onnxruntime (1 CumSum), which a program in C or C++" in said.err
    for to in ("onnx", "wheel"):
        assert kintune("export", path, "--to", to, to).code == 0
    assert (tmp_path / "onnx" / "hybrid.onnx").is_file()
