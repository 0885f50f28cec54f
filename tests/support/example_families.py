"""A small network as PREPARE describes it, and its families, for tests."""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Axis, Choice, Sketch, Tile
from kintune.core.stage_results import Prepared
from kintune.core.workload import Subgraph
from kintune_lab.families.document import FamiliesDocument, RelationMap, families_of

__all__ = ["example_families", "prepared_network"]

_UNROLL = Choice((0, 16), (0.5, 0.5))


def prepared_network() -> Prepared:
    """Two convolutions, two dense layers and one subgraph that is not worth tuning."""
    subgraphs = (
        Subgraph("fused_conv", "conv", 1, 1e6, "conv2d", "conv2d-add", True),
        Subgraph("fused_wide", "wide", 3, 2e6, "conv2d", "conv2d-add", True),
        Subgraph("fused_dense", "dense", 1, 5e5, "dense", "matmul-add", True),
        Subgraph("fused_tail", "tail", 1, 1e5, "dense", "matmul", True),
        Subgraph("reshape", "reshape", 1, 0.0, "elementwise", "reshape", False),
    )
    sketches = (
        _sketch("conv", {"s0:n": 1, "s1:y": 56, "s2:x": 56, "s3:f": 64}, {"r4:y": 3, "r5:x": 3, "r6:c": 32}),
        _sketch("wide", {"s0:n": 1, "s1:y": 112, "s2:x": 112, "s3:f": 64}, {"r4:y": 1, "r5:x": 1, "r6:c": 32}),
        _sketch("dense", {"s0:i": 1, "s1:j": 1000}, {"r2:k": 512}),
        Sketch("tail", "tail", b"", (_UNROLL,)),
    )
    return Prepared("network", "d" * 32, (), (), subgraphs, {}, sketches)


def example_families(*, measured: bool = True) -> FamiliesDocument:
    """The network's families by core operator; when `measured`, with samples and a relationship map."""
    keys = {"conv": "op:conv2d", "wide": "op:conv2d", "dense": "op:dense", "tail": "op:dense"}
    if not measured:
        return families_of(prepared_network(), "op", keys)
    families = families_of(prepared_network(), "op", keys, {"conv": 20, "wide": 20, "dense": 20})
    accuracy = ((0.95, 0.85, 0.62), (0.66, 0.92, None), (0.45, 0.55, 0.9))
    return msgspec.structs.replace(families, measured_on="A processor", relation=RelationMap((1, 2, 3), accuracy))


def _sketch(workload: str, spatial: dict[str, int], reduced: dict[str, int]) -> Sketch:
    tiles: tuple[Axis, ...] = tuple(Tile(extent, 4, loop=loop) for loop, extent in spatial.items())
    tiles += tuple(Tile(extent, 2, loop=loop) for loop, extent in reduced.items())
    return Sketch(workload, workload, b"", (*tiles, _UNROLL))
