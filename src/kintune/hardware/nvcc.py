"""Compiles CUDA sources to the machine code of one architecture; free of TVM, and of any GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kintune.errors import BuildError, OrderError

__all__ = ["compile_cubin", "find_nvcc"]

_HOMES = ("CUDA_HOME", "CUDA_PATH")
_USUAL = "/usr/local/cuda"
_MAJOR = "13"
_RELEASE = re.compile(r"release (\d+)\.")
_ERROR = re.compile(r"\b(?:error|fatal)\b")


def find_nvcc() -> str:
    """The CUDA compiler: that of the toolkit in `CUDA_HOME` or `CUDA_PATH`, else the one on the path.

    Raises:
        OrderError: there is none, or it is of another major version than the compiler's CUDA runtime.
    """
    for candidate in _candidates():
        if (path := shutil.which(candidate)) is not None:
            _require_tried(path)
            return path
    raise OrderError(
        "no CUDA compiler found to build programs for GPUs with: install nvcc, or name the toolkit in CUDA_HOME"
    )


def compile_cubin(code: str, architecture: str) -> bytes:
    """Machine code for an architecture such as "sm_90" from one CUDA source.

    Arithmetic is not made faster at the cost of digits (`--use_fast_math`): a tuned network computes what it did.

    Raises:
        BuildError: it does not compile; the message is the compiler's first error, one line.
        OrderError: there is no CUDA compiler.
    """
    nvcc = find_nvcc()
    with tempfile.TemporaryDirectory(prefix="kintune-nvcc-") as folder:
        source, product = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        source.write_text(code)
        command = [nvcc, "--cubin", "-O3", "-arch", architecture, "-o", str(product), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            raise BuildError(f"nvcc failed: {_first_error(done.stderr + done.stdout)}")
        return product.read_bytes()


def _candidates() -> Iterator[str]:
    for variable in _HOMES:
        if os.environ.get(variable):
            yield str(Path(os.environ[variable]) / "bin" / "nvcc")
    yield "nvcc"
    yield f"{_USUAL}/bin/nvcc"


@cache
def _require_tried(nvcc: str) -> None:
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise OrderError(f"the CUDA compiler {nvcc} cannot be run ({error.strerror}): install it again") from error
    release = _RELEASE.search(said)
    if release is None or release.group(1) != _MAJOR:
        found = "of an unknown version" if release is None else f"of version {release.group(1)}"
        raise OrderError(
            f"the CUDA compiler {nvcc} is {found}: install version {_MAJOR}, or name its toolkit in CUDA_HOME"
        )


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), lines[0] if lines else "no message")[:300]
