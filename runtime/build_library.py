"""Compiles the runtime's library: a build hook of hatchling, and `python build_library.py OUTPUT.so`."""

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
LIBRARY = ROOT / "src" / "kintune_runtime" / "libkintune.so"

FLAGS = (
    "-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror", "-g0",
    "-Wl,-soname,libkintune.so", "-Wl,--build-id=none",
)  # fmt: skip


def compile_library(output: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile with the C compiler in `CC`, by default `cc`; further `flags` follow the usual ones.

    Raises:
        CalledProcessError: the compiler fails.
        FileNotFoundError: there is no C compiler.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = sorted(str(source) for source in NATIVE.glob("*.c"))
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    subprocess.run([*compiler, *FLAGS, *flags, "-o", str(temporary), *sources, "-ldl"], check=True)
    os.replace(temporary, output)  # a process that has loaded the old one keeps it


if __name__ == "__main__":
    compile_library(Path(sys.argv[1]))
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
            platform = os.environ.get("KINTUNE_WHEEL_PLATFORM", sysconfig.get_platform())
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
