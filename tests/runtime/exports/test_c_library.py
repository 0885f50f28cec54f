"""What is exported to C is built and run with nothing but a compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import kintune_runtime
from kintune.errors import InputError
from kintune.runtime.exports.c_library import export_c
from kintune.runtime.merging import merge
from tests.support.toy_model import ADDING, adding, write_model
from tests.support.toy_open_model import ranged, summing

SUPPORT = Path(__file__).parents[2] / "support"

CPP = """
#include <cstdio>
#include "kintune.hpp"
int main() {
  kintune::Network network("model.kt", 2);
  std::vector<float> x(1000, 1.0f), y(1000);
  kintune::Network other = network.another(1);
  other.run({kintune::buffer(x)}, {kintune::buffer(y)});
  std::printf("%s %zu %g %g\\n", network.inputs()[0].name, network.outputs().size(), y[0], y[999]);
  try {
    network.run({kintune::buffer(x)}, {});
  } catch (const kintune::Error &error) {
    std::printf("%d %s\\n", error.status, error.what());
  }
}
"""

VARIANT = """
#include <cstdio>
#include "kintune.hpp"
int main() {
  kintune::Network network("model.kt");
  kt_variant chosen = network.variant();
  std::printf("%d of %d, %s, %d threads\\n", chosen.number, chosen.total, chosen.machine, chosen.threads);
  return 0;
}
"""

OPEN = """
#include <cstdio>
#include "kintune.hpp"
int main() {
  kintune::Network network("model.kt", 1);
  for (int64_t count : {12, 1000, 7}) try {
    kintune::Network fitting = network.for_shapes({{count}, {count}, {2 * count}}, 1).another(1);
    std::vector<float> x(static_cast<size_t>(count), 1.0f), y = x, z(2 * x.size()), sum(x.size());
    fitting.run({kintune::buffer(x), kintune::buffer(y), kintune::buffer(z)}, {kintune::buffer(sum)});
    std::printf("%lld %lld %g\\n", static_cast<long long>(fitting.inputs()[2].shape[0]),
                static_cast<long long>(fitting.outputs()[0].shape[0]), sum.back());
  } catch (const kintune::Error &error) {
    std::printf("%d %s\\n", error.status, error.what());
  }
}
"""

SHAPES = """
#include <cstdio>
#include "kintune.hpp"
int main() {
  kintune::Network network("model.kt", 1);
  for (int64_t count : {10, 1000, 7}) try {
    kintune::Network fitting = network.for_shapes({{count}}, 1).another(1);
    std::vector<float> x(static_cast<size_t>(count), 1.0f), y(x.size());
    fitting.run({kintune::buffer(x)}, {kintune::buffer(y)});
    std::printf("%lld %g\\n", static_cast<long long>(fitting.inputs()[0].shape[0]), y.back());
  } catch (const kintune::Error &error) {
    std::printf("%d %s\\n", error.status, error.what());
  }
}
"""


def run(folder: Path, *command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export_c(write_model(tmp_path / "toy.kt", [ADDING]), tmp_path / "export")


def test_the_example_is_built_and_run_with_a_c_compiler_alone(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    folder.rename(moved)
    command = [shutil.which("cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L"]
    run(moved, *command, "example.c", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "example")
    out, fastest = run(moved, moved / "example").splitlines()
    assert out == "out [1000] 1 3 5 7"
    assert fastest.startswith("fastest of 100 runs: ")
    assert run(moved, moved / "example", "model.kt", "1").startswith("out [1000] 1 3 5 7")


def test_a_program_in_cpp_uses_the_class(folder: Path) -> None:
    (folder / "program.cpp").write_text(CPP)
    command = [shutil.which("c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(folder, *command, "program.cpp", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "program")
    assert run(folder, folder / "program").splitlines() == [
        "x 1 1 1999",
        "1 1 inputs and 0 outputs given, 1 and 1 needed",
    ]


def test_a_program_in_cpp_takes_any_shape_of_a_range(tmp_path: Path) -> None:
    folder = export_c(write_model(tmp_path / "toy.kt", [ranged(summing())]), tmp_path / "export")
    (folder / "program.cpp").write_text(OPEN)
    command = [shutil.which("c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(folder, *command, "program.cpp", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "program")
    small, greatest, refused = run(folder, folder / "program").splitlines()
    assert (small, greatest) == ("24 12 2", "2000 1000 2")
    assert "7 elements along axis 0" in refused


def test_the_folder_has_all_that_the_page_lists(folder: Path) -> None:
    names = ("CMakeLists.txt", "example.c", "kintune.h", "kintune.hpp", "kintune.pc", "libkintune.so", "model.kt")
    assert tuple(sorted(path.name for path in folder.iterdir())) == names
    assert f"\nVersion: {kintune_runtime.__version__}\n" in (folder / "kintune.pc").read_text()


def test_a_program_in_cpp_finds_the_plan_for_its_shapes(tmp_path: Path) -> None:
    folder = export_c(write_model(tmp_path / "toy.kt", [adding(1000), adding(10)]), tmp_path / "export")
    (folder / "shapes.cpp").write_text(SHAPES)
    command = [shutil.which("c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(folder, *command, "shapes.cpp", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "shapes")
    assert run(folder, folder / "shapes").splitlines() == [
        "10 19",
        "1000 1999",
        "1 the shapes x=7 were not tuned; tuned are: x=1000; x=10",
    ]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake here")
def test_cmake_builds_the_example(folder: Path) -> None:
    run(folder, shutil.which("cmake"), "-S", ".", "-B", "build")
    run(folder, shutil.which("cmake"), "--build", "build")
    assert "1 3 5 7" in run(folder, folder / "build" / "example")


def test_a_merged_file_is_exported_whole(tmp_path: Path) -> None:
    given = [write_model(tmp_path / "new.kt", isa=["avx1024"]), write_model(tmp_path / "old.kt")]
    folder = export_c(merge(given, tmp_path / "fat.kt").path, tmp_path / "export")
    (folder / "program.cpp").write_text(VARIANT)
    command = [shutil.which("c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(folder, *command, "program.cpp", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "program")
    assert run(folder, folder / "program") == f"1 of 2, {platform.machine()}, 2 threads\n"


def test_kernels_that_a_linker_alone_has_linked_find_the_mathematics(tmp_path: Path) -> None:
    """As those for another architecture are: they name no library, and the program does not use that of mathematics."""
    summed = "work->a[i] + work->b[i]"
    source = (SUPPORT / "toy_kernels.c").read_text()
    assert summed in source
    (tmp_path / "kernels.c").write_text(
        f"float cosf(float);\n{source.replace(summed, f'{summed} + cosf(0 * work->b[i])')}"
    )
    run(tmp_path, "cc", "-O1", "-fno-builtin", "-shared", "-fPIC", "-nostdlib", "-o", "kernels.so", "kernels.c")
    model = write_model(tmp_path / "toy.kt", [ADDING], library=(tmp_path / "kernels.so").read_bytes())
    folder = export_c(model, tmp_path / "export")
    run(folder, "cc", "example.c", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "example")
    assert "libm.so" not in run(folder, "ldd", "example")
    assert run(folder, folder / "example").startswith("out [1000] 3 5 7 9\n")


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "toy.kt", [adding(10)])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="is not empty"):
        export_c(model, tmp_path / "full")
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        export_c(model, tmp_path / "export")
    assert not (tmp_path / "export").exists()
