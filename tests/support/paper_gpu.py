"""A GPU on paper: a CUDA driver, runtime library and compiler that run kernels on the CPU, for machines without a GPU.

Everything around kernels is the real thing: the tensor compiler's code generator and runtime, our device worker, our
executables.  It computes what a GPU computes; how fast it is says nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["build_paper_gpu"]

_SOURCES = Path(__file__).parent / "paper"
_VERSIONS = "libcudart.so.13 { global: *; };\n"


def build_paper_gpu(folder: Path) -> dict[str, str]:
    """Build it in an empty folder; returns the environment in which processes find it.

    Raises CalledProcessError when there is no C++ compiler that can.
    """
    libraries, programs = folder / "lib", folder / "bin"
    libraries.mkdir()
    shutil.copytree(_SOURCES / "bin", programs)
    for program in programs.iterdir():
        program.chmod(0o755)
    versions = folder / "versions"
    versions.write_text(_VERSIONS)
    _compile("driver.cc", libraries / "libcuda.so.1")
    _compile("runtime.cc", libraries / "libcudart.so.13", f"-Wl,--version-script={versions}")
    return {
        "CUDA_HOME": str(folder),
        "CUDA_VISIBLE_DEVICES": "0",
        "LD_LIBRARY_PATH": str(libraries),
        "PAPER_GPU_INCLUDE": str(_SOURCES / "include"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }


def _compile(source: str, library: Path, *options: str) -> None:
    flags: Sequence[str] = ("-std=c++17", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", *options)
    subprocess.run(["c++", *flags, "-o", str(library), str(_SOURCES / source)], check=True, capture_output=True)
