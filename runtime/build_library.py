"""Compiles the runtime's libraries: a build hook of hatchling, and `python build_library.py OUTPUT.so`.

The library for onnxruntime, `libkintune_onnx.so`, is written beside OUTPUT.so; `kintune export` copies it.

By default the C compiler of this machine is used, and the wheel is for this machine.  With the name of a platform in
`KINTUNE_WHEEL_PLATFORM`, such as `manylinux_2_17_aarch64`, the wheel is for that: `ziglang` compiles, for its machine
and against the symbols of its glibc.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
NATIVE = ROOT / "native"
INCLUDE = ROOT / "src" / "kintune_runtime" / "include"
LIBRARY = ROOT / "src" / "kintune_runtime" / "libkintune.so"
ONNX_LIBRARY = LIBRARY.with_name("libkintune_onnx.so")
ONNX_SOURCES = ("onnx_operator.c", "onnx_registration.c")  # in the second library alone

PLATFORM_VARIABLE = "KINTUNE_WHEEL_PLATFORM"
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)")

FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror", "-g0",
    "-Wl,--build-id=none",
)  # fmt: skip


def c_compiler() -> list[str]:
    """The command of this machine's compiler: the one in `CC`, by default `cc`."""
    return shlex.split(os.environ.get("CC", "cc"))


def cross_compiler(platform: str) -> list[str]:
    """The command of the compiler for a wheel's platform, such as `manylinux_2_17_aarch64`.

    Raises:
        ValueError: it is no such platform.
    """
    found = _MANYLINUX.fullmatch(platform)
    if found is None:
        raise ValueError(f"{PLATFORM_VARIABLE}={platform}: name one such as manylinux_2_17_x86_64, or leave it out")
    major, minor, machine = found.groups()
    # -s strips symbols: those of its own C library would contain paths of the machine that builds
    return [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.{major}.{minor}", "-s"]


def compile_library(output: Path, flags: tuple[str, ...] = (), compiler: list[str] | None = None) -> None:
    """Compile with `compiler`, by default that of this machine; further `flags` follow the usual ones.

    Raises:
        CalledProcessError: the compiler fails.
        FileNotFoundError: there is no C compiler.
    """
    sources = [each for each in _sources() if each.name not in ONNX_SOURCES]
    _compile(output, ("-Wl,-soname,libkintune.so", *flags), sources, compiler)


def compile_onnx_library(output: Path, flags: tuple[str, ...] = (), compiler: list[str] | None = None) -> None:
    """Compile the library that onnxruntime loads: the runtime and the custom operators.

    It binds its own functions: another copy of the runtime in the process does not replace them.

    Raises:
        CalledProcessError: the compiler fails.
        FileNotFoundError: there is no C compiler.
    """
    _compile(output, ("-Wl,-soname,libkintune_onnx.so", "-Wl,-Bsymbolic", *flags), _sources(), compiler)


def _sources() -> list[Path]:
    return sorted(NATIVE.glob("*.c"))


def _compile(output: Path, flags: tuple[str, ...], sources: list[Path], compiler: list[str] | None) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    # without the folder in what is compiled, the same sources give the same bytes anywhere
    where = f"-ffile-prefix-map={ROOT}=."
    command = [*(compiler or c_compiler()), *FLAGS, where, f"-I{INCLUDE}", *flags, "-o", str(temporary)]
    subprocess.run([*command, *map(str, sources), "-ldl"], check=True)
    os.replace(temporary, output)  # a process that has loaded the old one keeps it


if __name__ == "__main__":
    compile_library(Path(sys.argv[1]))
    compile_onnx_library(Path(sys.argv[1]).with_name(ONNX_LIBRARY.name))
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class BuildLibrary(BuildHookInterface):  # type: ignore[type-arg]
        """Compiles the libraries before a wheel is packed.

        A wheel's own ones are compiled elsewhere: those in the source tree, which an editable install uses, stay.
        """

        def dependencies(self) -> list[str]:
            """What must be installed to build."""
            return ["ziglang"] if os.environ.get(PLATFORM_VARIABLE) else []

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile, and give the wheel the tag of its platform: any Python 3."""
            if self.target_name != "wheel":
                return
            platform = os.environ.get(PLATFORM_VARIABLE, "")
            compiler = cross_compiler(platform) if platform else c_compiler()
            tag = platform or sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{tag}"
            if version == "editable":
                compile_library(LIBRARY, compiler=compiler)
                compile_onnx_library(ONNX_LIBRARY, compiler=compiler)
                return
            self._folder = tempfile.TemporaryDirectory(prefix="kintune-runtime-")
            made = Path(self._folder.name)
            compile_library(made / LIBRARY.name, compiler=compiler)
            compile_onnx_library(made / ONNX_LIBRARY.name, compiler=compiler)
            build_data["force_include"] |= {str(each): f"kintune_runtime/{each.name}" for each in made.iterdir()}

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove what was compiled for this wheel."""
            del version, build_data, artifact_path
            if hasattr(self, "_folder"):
                self._folder.cleanup()
