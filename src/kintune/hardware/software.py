"""Checks that the software that tuning needs is installed, in versions that were tried."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kintune.errors import EnvironmentProblem, OrderError
from kintune.hardware.check import Check, HardwareVerdict
from kintune.hardware.toolchain import compiler_command, find_linker

__all__ = ["TVM_FFI_RANGE", "TVM_VERSION", "allow_torch", "check_software", "forbid_torch", "require_tried_versions"]


TVM_VERSION = "0.27.0.post1"
"""The one version of apache-tvm that was tried."""

TVM_FFI_RANGE = ((0, 1, 14), (0, 1, 15))
"""The versions of apache-tvm-ffi that were tried: from the first, below the second."""

_TVM_FFI_REQUIREMENT = "apache-tvm-ffi>=0.1.14.post0,<0.1.15"
_REQUIRED = ("msgspec", "numpy", "onnx", "onnxruntime", "onnxslim", "sqlalchemy", "xgboost-cpu")
_OPTIONAL = ("onnxscript", "openvino", "torch")
_PYTHONS = ((3, 10), (3, 14))  # the first and the last that were tried
_LOAD_TIMEOUT_S = 120


VersionOf = Callable[[str], "str | None"]


def installed(package: str) -> str | None:
    """The version of an installed package, found without importing it; None when it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_software(version_of: VersionOf = installed) -> list[Check]:
    """Run all checks of software; TVM is loaded in a process of its own, since that may crash.

    `version_of` says which version of a package is installed.
    """
    tvm = [_python(), _tvm(version_of), _tvm_ffi(version_of)]
    if all(check.verdict is not HardwareVerdict.PROBLEM for check in tvm):
        tvm.append(check_loads("tvm", "import tvm"))
    required = [_required(package, version_of) for package in _REQUIRED]
    return [*tvm, *required, *(_optional(package, version_of) for package in _OPTIONAL), check_compiler()]


def require_tried_versions(version_of: VersionOf = installed) -> None:
    """Check that the installed TVM and TVM FFI are of versions that were tried.

    Raises:
        EnvironmentProblem: one is missing, is known to crash, or was never tried.
    """
    for check in (_tvm(version_of), _tvm_ffi(version_of)):
        if check.verdict is HardwareVerdict.PROBLEM:
            raise EnvironmentProblem(f"{check.name} {check.finding}; {check.remedy}")


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    if _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return Check("python", HardwareVerdict.GOOD, found)
    return Check("python", HardwareVerdict.PROBLEM, f"{found} was not tried", "use Python 3.10 to 3.14")


def _tvm(version_of: VersionOf) -> Check:
    found = version_of("apache-tvm")
    remedy = f"pip install 'apache-tvm=={TVM_VERSION}' '{_TVM_FFI_REQUIREMENT}'"
    if found is None:
        return Check("apache-tvm", HardwareVerdict.PROBLEM, "is not installed", remedy)
    if found != TVM_VERSION:
        return Check("apache-tvm", HardwareVerdict.PROBLEM, f"{found} was not tried", remedy)
    return Check("apache-tvm", HardwareVerdict.GOOD, found)


def _tvm_ffi(version_of: VersionOf) -> Check:
    name, found = "apache-tvm-ffi", version_of("apache-tvm-ffi")
    remedy = f"pip install '{_TVM_FFI_REQUIREMENT}'"
    if found is None:
        return Check(name, HardwareVerdict.PROBLEM, "is not installed", remedy)
    first, beyond = TVM_FFI_RANGE
    numbers = _numbers(found)
    if numbers >= beyond:
        finding = f"{found} makes TVM {TVM_VERSION} die with a segmentation fault while tuning"
        return Check(name, HardwareVerdict.PROBLEM, finding, remedy)
    if numbers < first:
        return Check(name, HardwareVerdict.PROBLEM, f"{found} was not tried", remedy)
    return Check(name, HardwareVerdict.GOOD, found)


def _required(package: str, version_of: VersionOf) -> Check:
    found = version_of(package)
    if found is None:
        return Check(package, HardwareVerdict.PROBLEM, "is not installed", f"pip install {package}")
    return Check(package, HardwareVerdict.GOOD, found)


def _optional(package: str, version_of: VersionOf) -> Check:
    found = version_of(package)
    return Check(package, HardwareVerdict.NOTE, "is not installed; it is optional") if found is None else Check(
        package, HardwareVerdict.GOOD, found
    )  # fmt: skip


def check_loads(name: str, code: str) -> Check:
    """Check that `code` runs in a new interpreter, which may crash without harm to this one."""
    what = f"loading {name}"
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Check(
            what, HardwareVerdict.PROBLEM, f"takes more than {_LOAD_TIMEOUT_S} s", "look for a stuck file system"
        )
    if done.returncode == 0:
        return Check(what, HardwareVerdict.GOOD, "works")
    remedy = "reinstall Kintune in a new environment"
    if done.returncode < 0:
        return Check(what, HardwareVerdict.PROBLEM, f"dies of {signal.Signals(-done.returncode).name}", remedy)
    last = done.stderr.strip().splitlines()[-1:] or ["for no stated reason"]
    return Check(what, HardwareVerdict.PROBLEM, f"fails: {last[0]}", remedy)


def check_compiler() -> Check:
    """Check that the compiler that links programs (see `find_linker`) makes a shared library."""
    name = "C compiler"
    remedy = "install gcc or clang (Debian, Ubuntu: apt-get install g++), or name one in CC, or `pip install ziglang`"
    try:
        found = find_linker()
    except OrderError:
        return Check(
            name,
            HardwareVerdict.PROBLEM,
            "none of cc, gcc and clang is on the path, and ziglang is not installed",
            remedy,
        )
    with tempfile.TemporaryDirectory(prefix="kintune-doctor-") as folder:
        source = Path(folder, "probe.c")
        source.write_text("int probe(void) { return 42; }\n")
        library = Path(folder, "probe.so")
        command = [*compiler_command(found), "-shared", "-fPIC", "-o", str(library), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LOAD_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check(name, HardwareVerdict.PROBLEM, f"{found} cannot be run ({error})", remedy)
        linked = done.returncode == 0 and library.exists()
    if not linked:
        last = done.stderr.strip().splitlines()[-1:] or ["for no stated reason"]
        return Check(name, HardwareVerdict.PROBLEM, f"{found} cannot link a shared library: {last[0]}", remedy)
    return Check(name, HardwareVerdict.GOOD, found)


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: `0.1.14.post1` is (0, 1, 14)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


class _NoTorch(MetaPathFinder):
    """An import finder that refuses PyTorch.

    `sys.modules["torch"] = None` would do that too, but scipy takes any entry there for the module.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for PyTorch; leave every other module to the other finders."""
        del path, target
        if name == "torch":
            raise ModuleNotFoundError("this process does without PyTorch", name=name)


_NO_TORCH = _NoTorch()


def forbid_torch() -> None:
    """Let imports of PyTorch fail from now on, as if it were not installed, unless it is already imported."""
    if "torch" not in sys.modules and _NO_TORCH not in sys.meta_path:
        sys.meta_path.insert(0, _NO_TORCH)


def allow_torch() -> None:
    """Let imports of PyTorch succeed again, if `forbid_torch` has stopped them."""
    if _NO_TORCH in sys.meta_path:
        sys.meta_path.remove(_NO_TORCH)
