from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import OrderError
from kintune.hardware.toolchain import find_nvcc


def pretend(folder: Path, version: str) -> None:
    (folder / "nvcc").write_text(f"#!/bin/sh\necho '{version}'\n")
    (folder / "nvcc").chmod(0o755)


@pytest.mark.parametrize(
    ("said", "found"), [("release 12.9, V12.9.41", "of version 12"), ("", "of an unknown version")]
)
def test_a_compiler_of_another_version_is_refused(programs: Path, said: str, found: str) -> None:
    pretend(programs, said)
    with pytest.raises(OrderError, match=f"nvcc is {found}: install version 13"):
        find_nvcc()


def test_the_compiler_of_a_named_toolkit_comes_first(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (programs, programs / "toolkit" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        pretend(folder, "Cuda compilation tools, release 13.0, V13.0.88")
    assert find_nvcc() == str(programs / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(programs / "toolkit"))
    assert find_nvcc() == str(programs / "toolkit" / "bin" / "nvcc")


@pytest.mark.usefixtures("programs")
def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.hardware.toolchain._CUDA_DIRECTORY", "/nowhere")
    with pytest.raises(OrderError, match=r"no CUDA compiler found .* install nvcc"):
        find_nvcc()
