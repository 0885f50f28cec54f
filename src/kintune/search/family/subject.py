"""What a family algorithm is told of a subgraph."""

from __future__ import annotations

import msgspec

__all__ = ["Subject"]


class Subject(msgspec.Struct, frozen=True):
    """One distinct subgraph: its workload digest, how often it occurs, FLOPs a run, core operator, operator sequence."""

    workload: str
    weight: int
    flops: float
    operator: str
    signature: str
