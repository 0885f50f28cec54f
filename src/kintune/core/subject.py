"""What a family algorithm is told of a subgraph."""

from __future__ import annotations

import msgspec

__all__ = ["Subject"]


class Subject(msgspec.Struct, frozen=True):
    """One distinct subgraph of a network.

    `workload` is its digest, `weight` how often it occurs, `flops` what one run computes, `operator` its core operator,
    `signature` its operators in order.
    """

    workload: str
    weight: int
    flops: float
    operator: str
    signature: str
