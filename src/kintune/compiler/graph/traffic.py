"""How much memory the kernels of a network move, and how much of it is moved by kernels that reduce nothing."""

from __future__ import annotations

from kintune.compiler.graph.lower import Lowered
from kintune.compiler.graph.workload import StandaloneWorkload

__all__ = ["kernels", "share_without_reduction"]

_RESHAPE = "reshape"


def kernels(lowered: Lowered) -> list[StandaloneWorkload]:
    """What runs as a kernel: a reshape alone only gives its operand another shape."""
    return [workload for workload in lowered.workloads if workload.signature != _RESHAPE]


def share_without_reduction(lowered: Lowered) -> float:
    """The part of the network's bytes that kernels without a reduction move, from 0 to 1.

    Each kernel reads its operands once and writes its result once.  Without a reduction it computes element by element,
    or copies.
    """
    moved = [(workload.weight * workload.bytes, workload.reduces) for workload in kernels(lowered)]
    total = sum(amount for amount, _ in moved)
    return sum(amount for amount, reduces in moved if not reduces) / total if total else 0.0
