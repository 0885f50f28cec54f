"""Targets that tests compile for."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["cpu_target", "native_target"]


def native_target(threads: int = 1) -> Any:
    """The CPU of this machine."""
    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target("native", threads)))


def cpu_target(cpu: str = "core-avx2", *attributes: str) -> Any:
    """A CPU of x86-64 with two cores, by LLVM's name for it, with further attributes."""
    import tvm

    given = {"mattr": list(attributes)} if attributes else {}
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": 2, **given})
