"""What links the object files that the tensor compiler makes; free of TVM."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kintune.errors import BuildError, OrderError

__all__ = ["find_linker", "link", "linking_for"]


def find_linker(architecture: str = "") -> str:
    """The program that links artifacts for an architecture, by default this machine's.

    Here that is the C compiler: the one in `CC`, else `cc`, `gcc` or `clang`.  For another architecture it is a C
    compiler or a linker for that one, by the names that they have in distributions, or else LLVM's.

    Raises:
        OrderError: there is none.
    """
    if architecture not in ("", platform.machine()):
        for name in (f"{architecture}-linux-gnu-gcc", f"{architecture}-linux-gnu-ld", "ld.lld"):
            if (path := shutil.which(name)) is not None:
                return path
        raise OrderError(
            f"no linker for {architecture} found: install binutils-{architecture.replace('_', '-')}-linux-gnu, or lld"
        )
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)) is not None:
            return path
    raise OrderError("no C compiler found to link programs with: install gcc or clang, or name one in the variable CC")


def link(output: str, objects: Sequence[str], architecture: str = "") -> None:
    """Link object files for an architecture, by default this machine's, into a shared library.

    The C compiler would start its own helper, and that the linker, which takes four times as long as the linker alone.

    Raises:
        BuildError: they do not link; the message is the linker's first line.
        OrderError: nothing here links for that architecture.
    """
    command, libraries = _command(find_linker(architecture))
    done = subprocess.run([*command, "-o", output, *objects, *libraries], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        line = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "")
        raise BuildError(f"linking failed: exit code {done.returncode}, {line[:300]}")


def linking_for(architecture: str) -> Callable[..., None]:
    """`link` for an architecture, as the compiler's `export_library` calls it."""

    def linking(output: str, objects: Sequence[str], **_: Any) -> None:
        link(output, objects, architecture)

    return linking


@lru_cache(maxsize=8)
def _command(compiler: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command that links, and the libraries that kernels may need: the compiler's linker if it says where it is.

    Elsewhere than on Linux a linker wants more to be told, which the compiler knows.  A linker that comes alone leaves
    the mathematics to the process that will load the library.
    """
    if compiler.endswith(("-ld", "ld.lld")):
        return (compiler, "-shared"), ()
    linker = shutil.which(_asked(compiler, "-print-prog-name=ld"))
    helpers, mathematics = _asked(compiler, "-print-libgcc-file-name"), _asked(compiler, "-print-file-name=libm.so.6")
    if sys.platform != "linux" or linker is None or not all(Path(found).is_file() for found in (helpers, mathematics)):
        return (compiler, "-shared"), ("-lm",)
    return (linker, "-shared"), (helpers, "--as-needed", mathematics)


def _asked(compiler: str, question: str) -> str:
    try:
        done = subprocess.run([compiler, question], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
