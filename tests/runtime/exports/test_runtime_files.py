"""An export ships the runtime of the model's machine, or is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import kintune_runtime
from kintune.errors import InputError, KintuneError
from kintune.hardware.cpu import host_machine
from kintune.runtime.exports.c_library import export_c
from kintune.runtime.exports.onnx_operator import export_onnx
from kintune.runtime.exports.runtime_files import runtime_files
from kintune.runtime.exports.wheel import export_wheel
from tests.support.toy_model import write_model

OTHER = "riscv64"
INSTALLED = Path(kintune_runtime.__file__).parent
LIBRARIES = ("libkintune.so", "libkintune_onnx.so")
EXPORTS = {
    "c": lambda model, folder, wheel: export_c(model, folder, wheel),
    "onnx": lambda model, folder, wheel: export_onnx(model, folder, wheel),
    "wheel": lambda model, folder, wheel: export_wheel(model, folder, runtime=wheel),
}
Export = Callable[[Path, Path, "Path | None"], Path]


def for_riscv(library: bytes) -> bytes:
    """A library whose header says that it is for riscv64; nothing here runs it."""
    return library[:18] + (243).to_bytes(2, "little") + library[20:]


def write_wheel(path: Path, version: str = kintune_runtime.__version__, without: str = "") -> Path:
    """A wheel of the runtime for riscv64."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"kintune_runtime-{version}.dist-info/METADATA", "")
        for each in sorted(INSTALLED.rglob("*")):
            name = each.relative_to(INSTALLED).as_posix()
            if each.is_file() and "__pycache__" not in each.parts and name != without:
                content = each.read_bytes()
                archive.writestr(f"kintune_runtime/{name}", for_riscv(content) if name in LIBRARIES else content)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "toy.kt", machine=OTHER)


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_model_of_another_machine_needs_its_runtime(model: Path, tmp_path: Path, export: Export) -> None:
    with pytest.raises(InputError) as caught:
        export(model, tmp_path / "export", None)
    assert str(caught.value) == (
        f"{model}: built for {OTHER}, the runtime installed here is for {host_machine()}; name a wheel of the runtime"
        f" for {OTHER}, as `make wheel` builds it: --runtime"
        f" kintune_runtime-{kintune_runtime.__version__}-py3-none-manylinux_2_17_{OTHER}.whl"
    )
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_it_gets_the_one_in_the_wheel(model: Path, tmp_path: Path, export: Export) -> None:
    made = export(model, tmp_path / "export", write_wheel(tmp_path / "runtime.whl"))
    if made.suffix == ".whl":
        assert made.name.endswith(f"-py3-none-linux_{OTHER}.whl")
        with zipfile.ZipFile(made) as archive:
            assert archive.read("toy/runtime/libkintune.so")[18:20] == b"\xf3\x00"
            (info,) = (name for name in archive.namelist() if name.endswith("/WHEEL"))
            assert f"Tag: py3-none-linux_{OTHER}\n" in archive.read(info).decode()
        return
    (library,) = (tmp_path / "export").glob("*.so")
    assert library.read_bytes() == for_riscv((INSTALLED / library.name).read_bytes())


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_a_wheel_of_another_machine_is_refused(tmp_path: Path, export: Export) -> None:
    wheel = write_wheel(tmp_path / "runtime.whl")
    with pytest.raises(InputError, match=rf"built for {host_machine()}, .*runtime\.whl is for {OTHER}; name a wheel"):
        export(write_model(tmp_path / "toy.kt"), tmp_path / "export", wheel)
    assert not (tmp_path / "export").exists()


def test_what_is_no_wheel_of_this_runtime_is_refused(model: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "runtime.whl"

    def refused(what: str) -> None:
        with pytest.raises(InputError, match=what):
            export_c(model, tmp_path / "export", wheel)

    refused("does not exist; check the path")
    wheel.write_text("no archive")
    refused("no wheel, or a damaged one: File is not a zip file")
    write_wheel(wheel, version="9.9")
    refused(rf"no wheel of kintune-runtime {kintune_runtime.__version__}")
    write_wheel(wheel, without="libkintune.so")
    refused(r"has no libkintune\.so; build it again, with `make wheel`")
    whole = write_wheel(wheel).read_bytes()
    at = whole.index(b"\x7fELF") + 100
    wheel.write_bytes(whole[:at] + bytes(100) + whole[at + 100 :])
    refused("no wheel, or a damaged one: Bad CRC-32")
    with zipfile.ZipFile(write_wheel(wheel), "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kintune_runtime/zeros", bytes(65 << 20))
    refused("it unpacks to more than 64 MB")


def test_a_file_that_is_no_library_is_for_no_machine(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libkintune.so").touch()
    monkeypatch.setattr(kintune_runtime, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(InputError, match="is for no machine"):
        runtime_files(model, OTHER, ["libkintune.so"])
    with pytest.raises(KintuneError, match=r"libkintune_onnx\.so is missing; install kintune-runtime again"):
        runtime_files(model, OTHER, ["libkintune_onnx.so"])
