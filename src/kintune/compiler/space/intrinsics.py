"""Registers the tensor intrinsics that schedules for this machine's CPU may name, and no others.

Importing `tvm.s_tir.tensor_intrin`, as a first `TuneContext` does, parses the intrinsics of every GPU, DSP and CPU that
the compiler knows: 250 functions, 15 seconds in every process.  Those of one architecture take a fraction of a second.
"""

from __future__ import annotations

import importlib
import platform
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType

import tvm.s_tir

__all__ = ["load_intrinsics"]

_PACKAGE = "tvm.s_tir.tensor_intrin"

_MODULES = {"x86_64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu", "riscv64": "riscv_cpu"}
"""The module of each architecture, by what `platform.machine()` calls it."""

_loading = threading.Lock()


def load_intrinsics(machine: str = "") -> None:
    """Register the intrinsics of the architecture `machine` (by default, this one); call it before using MetaSchedule.

    Leaves everything as it is when they have been registered already.  Those of another architecture can still be
    imported by their modules' names.  Threads may call it at once; each returns when all are registered.
    """
    with _loading:
        if _PACKAGE not in sys.modules:
            _load(machine or platform.machine())


def _load(machine: str) -> None:
    found = PathFinder.find_spec(_PACKAGE, tvm.s_tir.__path__)
    if found is None or found.submodule_search_locations is None:
        return  # another version of the compiler, which keeps them elsewhere
    package = ModuleType(_PACKAGE)
    package.__spec__ = found
    package.__path__ = found.submodule_search_locations
    sys.modules[_PACKAGE] = package
    tvm.s_tir.tensor_intrin = package
    if (module := _MODULES.get(machine)) is not None:
        importlib.import_module(f"{_PACKAGE}.{module}")
