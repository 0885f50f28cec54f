from __future__ import annotations

import ctypes
import math
import platform
import subprocess
from pathlib import Path

import pytest

from kintune.errors import BuildError, OrderError
from kintune.hardware.check import HardwareVerdict
from kintune.hardware.software import check_compiler
from kintune.hardware.toolchain import compiler_command, find_linker, find_nvcc, link


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_named_one_comes_first_then_the_usual_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    clang = program(tmp_path, "clang")
    assert find_linker() == clang
    cc = program(tmp_path, "cc")
    assert find_linker() == cc
    monkeypatch.setenv("CC", program(tmp_path, "mine"))
    assert find_linker() == str(tmp_path / "mine")


def test_a_machine_without_one_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(OrderError, match=r"install gcc or clang.*pip install ziglang"):
        find_linker()


def compiled(folder: Path, source: str) -> str:
    (folder / "kernel.c").write_text(source)
    subprocess.run([find_linker(), "-c", "-fPIC", "-O1", "-o", "kernel.o", "kernel.c"], cwd=folder, check=True)
    return str(folder / "kernel.o")


SOURCE = """
#include <math.h>
double kernel(double x) { return exp(x) * 2; }
unsigned __int128 halved(unsigned __int128 x, unsigned __int128 by) { return x / by; }
"""


def test_what_is_linked_finds_mathematics_and_the_compilers_helpers(tmp_path: Path) -> None:
    link(str(tmp_path / "kernel.so"), [compiled(tmp_path, SOURCE)])
    kernel = ctypes.CDLL(str(tmp_path / "kernel.so")).kernel
    kernel.restype, kernel.argtypes = ctypes.c_double, (ctypes.c_double,)
    assert kernel(1.0) == pytest.approx(2 * math.e)


PLAIN = """
#include <string.h>
void TVMFFIErrorSet(void);
int kernel(float* a, float* b) { memcpy(a, b, 4096); if (a[0] > 1) TVMFFIErrorSet(); return 0; }
"""


@pytest.mark.parametrize(("source", "wanted"), [(PLAIN, []), (SOURCE, ["libm.so.6"])])
def test_mathematics_is_wanted_only_by_what_calls_it(tmp_path: Path, source: str, wanted: list[str]) -> None:
    library = tmp_path / "kernel.so"
    link(str(library), [compiled(tmp_path, source)])
    told = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert [line.split("[")[1].rstrip("]") for line in told.splitlines() if "(NEEDED)" in line] == wanted


MATHEMATICS = """
#include <math.h>
double kernel(double x) { return exp(x) * 2; }
"""


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.needs("ziglang")
@pytest.mark.parametrize("source", [PLAIN, MATHEMATICS])
def test_a_package_links_where_no_compiler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, source: str
) -> None:
    kernel = compiled(tmp_path, source)
    request.getfixturevalue("no_compiler")
    assert Path(find_linker()).name == "zig"
    assert find_linker("riscv64") == find_linker()
    link(str(tmp_path / "kernel.so"), [kernel])
    library = (tmp_path / "kernel.so").read_bytes()
    assert (b"libm.so.6" in library) == (source is MATHEMATICS)
    if source is MATHEMATICS:
        found = ctypes.CDLL(str(tmp_path / "kernel.so")).kernel
        found.restype, found.argtypes = ctypes.c_double, (ctypes.c_double,)
        assert found(1.0) == pytest.approx(2 * math.e)


@pytest.mark.needs("ziglang")
@pytest.mark.usefixtures("no_compiler")
def test_its_compiler_is_found_by_the_doctor() -> None:
    check = check_compiler()
    assert (check.verdict, Path(check.finding).name) == (HardwareVerdict.GOOD, "zig")
    assert compiler_command(find_linker())[1:] == ["cc", "-nostdlib"]


def test_the_compiler_links_where_it_does_not_say_what_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_linker()
    silent = tmp_path / "silent"
    silent.write_text(f'#!/bin/sh\ncase "$1" in -print*) exit 1;; esac\nexec {real} "$@"\n')
    silent.chmod(0o755)
    source = compiled(tmp_path, SOURCE)
    monkeypatch.setenv("CC", str(silent))
    link(str(tmp_path / "kernel.so"), [source])
    assert ctypes.CDLL(str(tmp_path / "kernel.so")).kernel


def test_what_does_not_link_says_why(tmp_path: Path) -> None:
    (tmp_path / "no.o").write_bytes(b"not an object")
    with pytest.raises(BuildError, match=r"linking failed: exit code 1, .*no\.o"):
        link(str(tmp_path / "kernel.so"), [str(tmp_path / "no.o")])


def test_another_architecture_has_linkers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", program(tmp_path, "cc"))
    with pytest.raises(OrderError, match="no linker for riscv64 found: install binutils-riscv64-linux-gnu, or lld"):
        find_linker("riscv64")
    lld = program(tmp_path, "ld.lld")
    assert find_linker("riscv64") == lld
    ld = program(tmp_path, "riscv64-linux-gnu-ld")
    assert find_linker("riscv64") == ld
    gcc = program(tmp_path, "riscv64-linux-gnu-gcc")
    assert find_linker("riscv64") == gcc
    assert find_linker(platform.machine()) == str(tmp_path / "cc")


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
