"""Compiles the runtime's libraries: a build hook of hatchling, and `python build_library.py OUTPUT.so`.

The second one, `libkintune_onnx.so`, is written beside the first one; `kintune export` copies it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
NATIVE = ROOT / "native"
INCLUDE = ROOT / "src" / "kintune_runtime" / "include"
LIBRARY = ROOT / "src" / "kintune_runtime" / "libkintune.so"
ONNX_LIBRARY = LIBRARY.with_name("libkintune_onnx.so")
ONNX_SOURCE = "onnx_operator.c"  # in the second library alone

FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror", "-g0",
    "-Wl,--build-id=none",
)  # fmt: skip


def compile_library(output: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile with the C compiler in `CC`, by default `cc`; further `flags` follow the usual ones.

    Raises:
        CalledProcessError: the compiler fails.
        FileNotFoundError: there is no C compiler.
    """
    _compile(output, ("-Wl,-soname,libkintune.so", *flags), [each for each in _sources() if each.name != ONNX_SOURCE])


def compile_onnx_library(output: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile the library that onnxruntime loads: the runtime and the custom operator.

    It binds its own functions: another copy of the runtime in the process does not replace them.

    Raises:
        CalledProcessError: the compiler fails.
        FileNotFoundError: there is no C compiler.
    """
    _compile(output, ("-Wl,-soname,libkintune_onnx.so", "-Wl,-Bsymbolic", *flags), _sources())


def _sources() -> list[Path]:
    return sorted(NATIVE.glob("*.c"))


def _compile(output: Path, flags: tuple[str, ...], sources: list[Path]) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    subprocess.run(
        [*compiler, *FLAGS, f"-I{INCLUDE}", *flags, "-o", str(temporary), *map(str, sources), "-ldl"], check=True
    )
    os.replace(temporary, output)  # a process that has loaded the old one keeps it


if __name__ == "__main__":
    compile_library(Path(sys.argv[1]))
    compile_onnx_library(Path(sys.argv[1]).with_name(ONNX_LIBRARY.name))
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class BuildLibrary(BuildHookInterface):  # type: ignore[type-arg]
        """Compiles the library before a wheel is packed, for the machine in `KINTUNE_WHEEL_PLATFORM` or this one."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile, and give the wheel the tag of its platform: any Python 3."""
            del version
            if self.target_name != "wheel":
                return
            compile_library(LIBRARY)
            compile_onnx_library(ONNX_LIBRARY)
            platform = os.environ.get("KINTUNE_WHEEL_PLATFORM", sysconfig.get_platform())
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
