"""The families of a network as a document: what `kintune families` says, for people and machines alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kintune.core.candidate import Sketch, Tile
from kintune.core.stage_results import Prepared
from kintune.core.workload import Subgraph

__all__ = ["FamiliesDocument", "Family", "Member", "RelationMap", "families_of"]


class Member(msgspec.Struct, frozen=True):
    """One distinct subgraph that is worth tuning.

    `number` (from 1) names it in the relationship map.  `loops` are the extents of its tiled loops, those of the
    reduction after "over", as far as they are known; it occurs `weight` times, each run takes `flops`; `samples` of it
    are in the records.
    """

    number: int
    name: str
    workload: str
    operator: str
    signature: str
    loops: str
    weight: int
    flops: float
    samples: int = 0


class Family(msgspec.Struct, frozen=True):
    """Subgraphs that share a cost model, and the share of the network's operations that is theirs (0 to 1)."""

    key: str
    share: float
    members: tuple[Member, ...]


class RelationMap(msgspec.Struct, frozen=True):
    """How well the samples of each member rank those of each other one.

    `accuracy[i][j]` is the share of pairs of member `j`'s samples that a model of member `i`'s samples puts in the
    right order: 0.5 is chance.  None where there were too few.  Rows and columns are in the order of `numbers`.
    """

    numbers: tuple[int, ...]
    accuracy: tuple[tuple[float | None, ...], ...]


class FamiliesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The families of a network by one algorithm, those with most operations first.

    `subgraphs` are distinct, `tunable` of them worth a budget; only these have a family.  `measured_on` names the
    device of the samples, None where there are none.
    """

    schema_version: int = 1
    model: str
    model_digest: str
    algorithm: str
    subgraphs: int
    tunable: int
    families: tuple[Family, ...]
    samples: int = 0
    measured_on: str | None = None
    relation: RelationMap | None = None

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, by number."""
        return tuple(member for family in self.families for member in family.members)


def families_of(
    prepared: Prepared, algorithm: str, keys: Mapping[str, str], samples: Mapping[str, int] | None = None
) -> FamiliesDocument:
    """The document: `keys` has the family key of each tunable workload, `samples` how many each has."""
    tunable = [subgraph for subgraph in prepared.subgraphs if subgraph.tunable]
    counts = samples or {}
    total = sum(subgraph.weight * subgraph.flops for subgraph in tunable)
    by_key: dict[str, list[Subgraph]] = {}
    for subgraph in tunable:
        by_key.setdefault(keys[subgraph.workload], []).append(subgraph)
    families: list[Family] = []
    number = 0
    for key, members in sorted(by_key.items(), key=lambda item: (-_work(item[1]), item[0])):
        described = []
        for subgraph in sorted(members, key=lambda s: (-s.weight * s.flops, s.name)):
            number += 1
            described.append(_member(number, subgraph, prepared.sketches, counts.get(subgraph.workload, 0)))
        families.append(Family(key, _work(members) / total if total else 0.0, tuple(described)))
    return FamiliesDocument(
        model=prepared.model_name,
        model_digest=prepared.model_digest,
        algorithm=algorithm,
        subgraphs=len(prepared.subgraphs),
        tunable=len(tunable),
        families=tuple(families),
        samples=sum(counts.values()),
    )


def _member(number: int, subgraph: Subgraph, sketches: Sequence[Sketch], samples: int) -> Member:
    own = [sketch for sketch in sketches if sketch.workload == subgraph.workload]
    return Member(
        number=number,
        name=subgraph.name,
        workload=subgraph.workload,
        operator=subgraph.operator,
        signature=subgraph.signature,
        loops=_loops(own),
        weight=subgraph.weight,
        flops=subgraph.flops,
        samples=samples,
    )


def _loops(sketches: Sequence[Sketch]) -> str:
    """`112x112x32 over 16`: the extents of the sketch that says most, loops of one iteration left out."""
    named = [
        dict.fromkeys((a.loop, a.extent) for a in sketch.axes if isinstance(a, Tile) and a.loop) for sketch in sketches
    ]
    loops = max(named, key=len, default={})
    spatial = [str(extent) for loop, extent in loops if loop.startswith("s") and extent > 1]
    reduced = [str(extent) for loop, extent in loops if loop.startswith("r") and extent > 1]
    return " ".join(part for part in ("x".join(spatial), "over " + "x".join(reduced) if reduced else "") if part)


def _work(subgraphs: Sequence[Subgraph]) -> float:
    return sum(subgraph.weight * subgraph.flops for subgraph in subgraphs)
