"""The C compiler and linker that link kernels, and the CUDA compiler that builds them for GPUs; free of TVM."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kintune.errors import BuildError, OrderError
from kintune.hardware.nvrtc import Nvrtc

__all__ = ["LINKING_FAILED", "compile_cubin", "compiler_command", "find_linker", "find_nvcc", "link", "linking_for"]

LINKING_FAILED = "linking failed"
"""The beginning of the error message when the linker fails, as opposed to a program that does not compile."""

_WARN_OF_UNDEFINED = ("--unresolved-symbols=report-all", "--warn-unresolved-symbols")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?(\w+)")
_IN_EVERY_PROCESS = ("TVM", "memcpy", "memset", "memmove")  # beginnings of symbols that every loading process has

_ZIG = "zig"
_LIBM = "libm.so.6"
_OLDEST_GLIBC = "2.17"  # that of the wheels of the runtime

_CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")
_CUDA_DIRECTORY = "/usr/local/cuda"
_CUDA_MAJOR = "13"
_CUDA_RELEASE = re.compile(r"release (\d+)\.")
_NVCC_ERROR = re.compile(r"\b(?:error|fatal)\b")


def find_linker(architecture: str = "") -> str:
    """The program that links artifacts for an architecture, by default this machine's.

    Here that is the C compiler: the one in `CC`, else `cc`, `gcc` or `clang`.  For another architecture it is a C
    compiler or a linker for that one, by the names that they have in distributions, or else LLVM's.  Where there is
    none of these, it is the `zig` of the Python package `ziglang`, which links for all of them.

    Raises:
        OrderError: there is none.
    """
    if architecture not in ("", platform.machine()):
        for name in (f"{architecture}-linux-gnu-gcc", f"{architecture}-linux-gnu-ld", "ld.lld"):
            if (path := shutil.which(name)) is not None:
                return path
        if (zig := _zig()) is not None:
            return zig
        raise OrderError(
            f"no linker for {architecture} found: install binutils-{architecture.replace('_', '-')}-linux-gnu, or lld, "
            "or the Python package ziglang"
        )
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)) is not None:
            return path
    if (zig := _zig()) is not None:
        return zig
    raise OrderError(
        "no C compiler found to link programs with: install gcc or clang, or name one in the variable CC, or install "
        "the Python package ziglang (`pip install ziglang`), which has one"
    )


def compiler_command(found: str) -> list[str]:
    """Return the command that compiles C code that calls no library; `found` is the result of `find_linker()`.

    With Zig, no library is linked, since Zig would compile the libraries first, which takes a minute.
    """
    return [found, "cc", "-nostdlib"] if _is_zig(found) else [found]


def link(output: str, objects: Sequence[str], architecture: str = "") -> None:
    """Link object files for an architecture, by default this machine's, into a shared library.

    The linker is called directly where possible: the C compiler takes four times as long, since it starts a helper that
    starts the linker.  The library of mathematics, which doubles the linker's time, is linked only to kernels that
    need it.

    Raises:
        BuildError: they do not link; the message is the linker's first line.
        OrderError: nothing here links for that architecture.
    """
    tools = _tools(find_linker(architecture), architecture)
    start = (*tools.command, "-o", output, *objects, *tools.helpers)
    if not tools.mathematics and not tools.whole:
        _run(start)
        return
    if _lacks(_run((*start, *_WARN_OF_UNDEFINED))):
        said = _run((*start, *tools.mathematics, *(_WARN_OF_UNDEFINED if tools.whole else ())))
        if tools.whole and _lacks(said):
            _run((*tools.whole, "-o", output, *objects, "-lm"))


def linking_for(architecture: str) -> Callable[..., None]:
    """`link` for an architecture, as the compiler's `export_library` calls it."""

    def linking(output: str, objects: Sequence[str], **_: Any) -> None:
        link(output, objects, architecture)

    return linking


class _Tools(NamedTuple):
    """The parts of linker commands.

    `command` is the linker.  `helpers` are linked to every kernel, `mathematics` only to kernels with undefined
    symbols.  `whole` is the complete command of a compiler, for kernels that then still have undefined symbols.
    """

    command: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    mathematics: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def _tools(compiler: str, architecture: str) -> _Tools:
    """Return the tools of a compiler or linker: where the compiler names them, its linker and its libraries.

    On other systems than Linux, the compiler itself links, since it adds the arguments that the linker needs there.
    With a linker without a compiler, mathematical functions come from the process that loads the library.  Zig's
    compiler builds the helpers of a target when they are first needed, which takes a minute; so its linker is used,
    with this machine's library of mathematics.
    """
    if _is_zig(compiler):
        machine = architecture or platform.machine()
        mathematics = _mathematics() if machine == platform.machine() else ""
        return _Tools(
            (compiler, "ld.lld", "-shared"),
            mathematics=("--as-needed", mathematics) if mathematics else (),
            whole=(compiler, "cc", "-target", f"{machine}-linux-gnu.{_OLDEST_GLIBC}", "-shared"),
        )
    if compiler.endswith(("-ld", "ld.lld")):
        return _Tools((compiler, "-shared"))
    linker = shutil.which(_asked(compiler, "-print-prog-name=ld"))
    helpers, mathematics = _asked(compiler, "-print-libgcc-file-name"), _asked(compiler, "-print-file-name=libm.so.6")
    if sys.platform != "linux" or linker is None or not all(Path(found).is_file() for found in (helpers, mathematics)):
        return _Tools((compiler, "-shared"), ("-lm",))
    return _Tools((linker, "-shared"), (helpers,), ("--as-needed", mathematics))


def _zig() -> str | None:
    """The program of the package `ziglang`, if that is installed."""
    found = importlib.util.find_spec("ziglang")
    places = found.submodule_search_locations if found is not None else None
    return next((str(path) for place in places or () if (path := Path(place, _ZIG)).is_file()), None)


def _is_zig(compiler: str) -> bool:
    return Path(compiler).name == _ZIG


def _mathematics() -> str:
    """Return the path of this machine's library of mathematics, which needs no compiler; "" if it is not found."""
    try:
        ctypes.CDLL(_LIBM)
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ""
    paths = (line.split(maxsplit=5)[-1] for line in mapped if "/libm" in line)
    return next((path for path in paths if Path(path).name == _LIBM or Path(path).name.startswith("libm-2.")), "")


def _run(command: Sequence[str]) -> str:
    """Run the command and return its standard error, in English, since `_lacks` reads it.

    Raises:
        BuildError: the command fails.
    """
    english = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=english)
    if done.returncode != 0:
        line = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "")
        raise BuildError(f"{LINKING_FAILED}: exit code {done.returncode}, {line[:300]}")
    return done.stderr


def _lacks(said: str) -> bool:
    """Whether a linker's output names an undefined symbol that not every process which loads the kernel has."""
    for line in said.splitlines():
        if "undefined" in line:
            named = _UNDEFINED.search(line)
            if named is None or not named[1].startswith(_IN_EVERY_PROCESS):
                return True
    return False


def _asked(compiler: str, question: str) -> str:
    """Return the answer of a compiler to an option such as `-print-prog-name=ld`; empty if it fails."""
    try:
        done = subprocess.run([compiler, question], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


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
    """Return machine code (a cubin) for an architecture such as "sm_90" from one CUDA source.

    `--use_fast_math` is not set, so that a tuned network computes the same values.  The toolkit's run-time compiler
    (NVRTC) is used where it is installed, else nvcc.

    Raises:
        BuildError: it does not compile; the message is the compiler's first error, one line.
        OrderError: there is no CUDA compiler.
    """
    nvcc = find_nvcc()
    if (library := _nvrtc(nvcc)) is not None:
        return library.compile(code, architecture)
    with tempfile.TemporaryDirectory(prefix="kintune-nvcc-") as folder:
        source, product = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        source.write_text(code)
        command = [nvcc, "--cubin", "-O3", "-arch", architecture, "-o", str(product), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            raise BuildError(f"nvcc failed: {_first_error(done.stderr + done.stdout)}")
        return product.read_bytes()


@cache
def _nvrtc(nvcc: str) -> Nvrtc | None:
    return Nvrtc.load(Path(nvcc).resolve().parents[1])


def _candidates() -> Iterator[str]:
    for variable in _CUDA_HOMES:
        if os.environ.get(variable):
            yield str(Path(os.environ[variable]) / "bin" / "nvcc")
    yield "nvcc"
    yield f"{_CUDA_DIRECTORY}/bin/nvcc"


@cache
def _require_tried(nvcc: str) -> None:
    """Check that nvcc is of the major version of the compiler's CUDA runtime.

    Raises:
        OrderError: it is not, or it cannot be run.
    """
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise OrderError(f"the CUDA compiler {nvcc} cannot be run ({error.strerror}): install it again") from error
    release = _CUDA_RELEASE.search(said)
    if release is None or release.group(1) != _CUDA_MAJOR:
        found = "of an unknown version" if release is None else f"of version {release.group(1)}"
        raise OrderError(
            f"the CUDA compiler {nvcc} is {found}: install version {_CUDA_MAJOR}, or name its toolkit in CUDA_HOME"
        )


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _NVCC_ERROR.search(line)), lines[0] if lines else "no message")[:300]
