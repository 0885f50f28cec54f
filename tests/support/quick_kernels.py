"""Kernels as the compiler writes them: LLVM optimises nothing, and no argument is checked.

They compute the same and take a fifth of LLVM's time, which is half of what a small network costs.  A wrong argument is
then no error, but a wrong result or a crash.  Tests in `ROOMS` have such kernels, but for those with the mark
`optimised`.  In `make test-slow` all tests have the kernels that a user gets.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from tests.support.examples import PROFILE, THOROUGH

__all__ = ["ROOMS", "QuickKernels"]

ROOMS = (
    "tests/compiler/graph/test_absorb.py",
    "tests/compiler/graph/test_arena.py",
    "tests/compiler/graph/test_assemble.py",
    "tests/compiler/graph/test_integers.py",
    "tests/compiler/graph/test_tuned_lookups.py",
    "tests/models/torch_converters/",
    "tests/support/",
)
"""Where tests that have the mark `tvm` have such kernels: they compare what many small networks compute."""


class QuickKernels:
    """The plugin: tests have such kernels while they run, if they compile in this process."""

    @pytest.hookimpl(wrapper=True, trylast=True)  # what is hidden from the test is hidden from the compiler as well
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        marked = {mark.name for mark in item.iter_markers()}
        quick = item.nodeid.startswith(ROOMS) and "tvm" in marked and "optimised" not in marked
        with quick_kernels() if quick and PROFILE != THOROUGH else nullcontext():
            return (yield)


@contextmanager
def quick_kernels() -> Iterator[None]:
    import tvm
    from tvm.tirx import transform

    module = sys.modules["tvm.tirx.build"]  # `tvm.tirx.build` is a function
    generate = module.codegen_build

    def quick(kernels: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        if target.kind.name != "llvm":
            return generate(kernels, target)
        return generate(transform.SkipAssert()(kernels), _without_optimisation(str(target)))

    module.codegen_build = quick  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.codegen_build = generate  # type: ignore[attr-defined]


@functools.cache
def _without_optimisation(target: str) -> Any:
    import tvm

    return tvm.target.Target({**json.loads(target), "opt-level": 0})
