"""Which subgraphs are worth a search."""

from __future__ import annotations

from collections.abc import Sequence

from kintune.compiler.graph.workload import StandaloneWorkload

__all__ = ["is_tunable"]

_FLOPS_PER_US = 50_000.0  # 50 GFLOP/s and 10 GB/s: what any machine in question reaches without tuning
_BYTES_PER_US = 10_000.0
_LEAST_SHARE = 0.002


def is_tunable(workloads: Sequence[StandaloneWorkload]) -> frozenset[str]:
    """The digests of the workloads that reduce something and take a share of the network's time worth speaking of.

    The share is a rough one, from FLOPs and bytes alone; what falls below it (reshapes, transposes, tiny reductions)
    would cost more to search than it could ever give back.
    """
    work = {w.digest: w.weight * max(w.flops / _FLOPS_PER_US, w.bytes / _BYTES_PER_US) for w in workloads}
    total = sum(work.values())
    return frozenset(w.digest for w in workloads if w.reduces and work[w.digest] >= _LEAST_SHARE * total)
