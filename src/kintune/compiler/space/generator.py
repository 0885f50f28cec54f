"""MetaSchedule's rules and post-processors for a target, default schedules, and tensor intrinsics."""

from __future__ import annotations

import importlib
import logging
import platform
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import tvm
import tvm.s_tir
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.programs.recurrent_gpu import spread_recurrence
from kintune.compiler.programs.rows import write_rows
from kintune.compiler.space.wrapped_loops import has_wrapped_loops, split_wrapped_loops
from kintune.compiler.tir import SCHEDULED
from kintune.runtime.target import capabilities

__all__ = ["default_schedule", "default_schedules", "load_intrinsics", "space_generator"]

_log = logging.getLogger(__name__)


_SHARED_REDUCTION = ms.schedule_rule.CrossThreadReduction


def space_generator(target: tvm.target.Target) -> Any:
    """MetaSchedule's space generator for a target, as `ms.TuneContext` takes it; its post-processors belong to it.

    For GPUs it has the rules for plain cores, since tensor cores compute with fewer digits.  The rule by which threads
    share a reduction comes before the tiling at several levels, since a rule sees no block that another one has tiled.
    Few outputs with long sums (a classifier of one image) would have too few threads otherwise.
    """
    if capabilities(target).llvm_kernels:
        return "post-order-apply"
    kind = target.kind.name  # by which MetaSchedule registers its rules
    rules = sorted(ms.ScheduleRule.create(kind), key=lambda rule: not isinstance(rule, _SHARED_REDUCTION))
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=ms.Postproc.create(kind),
        mutator_probs=ms.Mutator.create(kind),
    )


def default_schedules(target: tvm.target.Target) -> list[tvm.transform.Pass]:
    """The passes, to be run within the target, that give unscheduled functions the schedule they need to run.

    On a CPU, functions that are passes over rows are written so that each row is read from memory once, on all threads.
    In other functions, loops that wrap around are split.  On a GPU, loops must be bound to threads.
    """
    if capabilities(target).llvm_kernels:
        return [tvm.tirx.transform.prim_func_pass(_on_cpu, opt_level=0, name="DefaultSchedules")]
    from tvm.s_tir import dlight

    rules = dlight.gpu
    return [
        tvm.tirx.transform.prim_func_pass(spread_recurrence, opt_level=0),
        tvm.tirx.transform.prim_func_pass(_on_plain_cores, opt_level=0),
        dlight.ApplyDefaultSchedule(
            rules.Matmul(), rules.GEMV(), rules.Reduction(), rules.GeneralReduction(), rules.Fallback()
        ),
    ]


def _on_cpu(function: Any, module: tvm.IRModule, context: Any) -> Any:
    """The function with its default schedule, where it is not scheduled yet."""
    if not isinstance(function, tvm.tirx.PrimFunc) or SCHEDULED in (function.attrs or {}):
        return function
    written = None if has_wrapped_loops(function) else _rows_of(function)
    return split_wrapped_loops(function, module, context) if written is None else written


def _rows_of(function: Any) -> Any:
    """The function in passes over rows; None where it is no such function, or writing it fails, which is printed."""
    try:
        return write_rows(function)
    except RuntimeError as error:  # raised by the compiler
        _log.warning(f"rows cannot be written: {error}")
        return None


def _on_plain_cores(function: Any, _module: tvm.IRModule, _context: Any) -> Any:
    """The function, marked so that no tensor cores are used for it."""
    return function.with_attr("dlight.do_not_tensorize", True)


def default_schedule(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module with `default_schedules` applied to its functions; `module` itself is not changed."""
    functions = dict(module.functions_items())
    if capabilities(target).llvm_kernels:
        scheduled = {variable: _on_cpu(function, module, None) for variable, function in functions.items()}
        same = all(scheduled[variable].same_as(function) for variable, function in functions.items())
        return module if same else tvm.IRModule(scheduled, attrs=module.attrs)
    passes = default_schedules(target)
    copy = tvm.IRModule(functions, attrs=module.attrs)
    with target:
        return tvm.transform.Sequential(passes)(copy)


_PACKAGE = "tvm.s_tir.tensor_intrin"

_MODULES = {"x86_64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu", "riscv64": "riscv_cpu"}
"""The module of each architecture, by what `platform.machine()` calls it."""

_loading = threading.Lock()


def load_intrinsics(machine: str = "") -> None:
    """Register the intrinsics of the architecture `machine` (by default, this one); call it before using MetaSchedule.

    Leaves everything as it is when they have been registered already.  Call it again for another architecture.  Threads
    may call it at once; each returns when all are registered.
    """
    with _loading:
        if _PACKAGE not in sys.modules:
            _make_package()
        module = _MODULES.get(machine or platform.machine())
        if module is not None and hasattr(sys.modules.get(_PACKAGE), "__path__"):
            importlib.import_module(f"{_PACKAGE}.{module}")


def _make_package() -> None:
    """Make the package of the intrinsics without importing those of all architectures."""
    found = PathFinder.find_spec(_PACKAGE, tvm.s_tir.__path__)
    if found is None or found.submodule_search_locations is None:
        return  # another version of the compiler, which keeps them elsewhere
    package = ModuleType(_PACKAGE)
    package.__spec__ = found
    package.__path__ = found.submodule_search_locations
    sys.modules[_PACKAGE] = package
    tvm.s_tir.tensor_intrin = package
