"""Programs of kin: what was good for other subgraphs, carried over as candidates of this one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kintune.core.candidate import Candidate, Sketch, Tile
from kintune.core.knowledge import KnownProgram
from kintune.search.space import SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune.search.transfer import carry, counterpart

__all__ = ["Kin"]

_PROGRAMS = 3  # of each sibling
_CARRIED = 12  # candidates at most
_FAST = 0.8  # relative speed from which on a known program is worth carrying


class _Origin(NamedTuple):
    """A good program: how many of its workload are better, and where it comes from."""

    rank: int
    sketch: Sketch
    candidate: Candidate


class Kin:
    """Finds, for one subgraph, the programs of others that may serve it, the most promising first.

    The best programs of the others come before their second best; among equals, those whose loops are most alike.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._taught: dict[str, list[_Origin]] = {}

    def teach(self, programs: Iterable[KnownProgram]) -> None:
        """Programs of earlier jobs; the slow ones among them are left alone."""
        ranks: dict[str, int] = {}
        for known in sorted(programs, key=lambda k: (-k.speed, k.candidate)):
            rank = ranks[known.subject.workload] = ranks.get(known.subject.workload, -1) + 1
            if known.speed >= _FAST:
                origin = _Origin(rank, known.sketch, known.candidate)
                self._taught.setdefault(known.subject.operator, []).append(origin)

    def offered(self, state: SubgraphState) -> int:
        """How many programs of earlier jobs there are for this subgraph, carried and measured or not."""
        return len(self._origins(state))

    def known(self, state: SubgraphState) -> list[Candidate]:
        """Candidates from programs of earlier jobs, with the same core operator."""
        return self._carried(state, self._origins(state))

    def carried(self, state: SubgraphState, states: Iterable[SubgraphState]) -> list[Candidate]:
        """Candidates from the best programs of the subgraph's siblings."""
        siblings = [other for other in states if other.family == state.family and other is not state]
        return self._carried(state, (origin for sibling in siblings for origin in self._best(sibling)))

    def _origins(self, state: SubgraphState) -> list[_Origin]:
        origins = self._taught.get(state.subject.operator, ())
        return [o for o in origins if o.candidate.workload != state.subject.workload]

    def _best(self, state: SubgraphState) -> Iterator[_Origin]:
        sketches = {sketch.digest: sketch for sketch in self._space.sketches(state.subject.workload)}
        for rank, candidate in enumerate(state.fastest(_PROGRAMS)):
            if candidate.sketch in sketches:
                yield _Origin(rank, sketches[candidate.sketch], candidate)

    def _carried(self, state: SubgraphState, origins: Iterable[_Origin]) -> list[Candidate]:
        targets = self._space.sketches(state.subject.workload)
        found: list[tuple[int, float, Candidate]] = []
        for origin in origins:
            target = counterpart(origin.sketch, targets)
            candidate = carry(origin.candidate, origin.sketch, target) if target is not None else None
            if target is not None and candidate is not None:
                found.append((origin.rank, _distance(origin.sketch, target), candidate))
        ordered = dict.fromkeys(candidate for _, _, candidate in sorted(found))
        return [candidate for candidate in ordered if candidate not in state.times_us][:_CARRIED]


def _distance(left: Sketch, right: Sketch) -> float:
    """How far the extents of two sketches' loops are apart: the sum of their ratios' logarithms."""
    return sum(abs(math.log(a / b)) for a, b in zip(_extents(left), _extents(right), strict=True))


def _extents(sketch: Sketch) -> Sequence[int]:
    return [axis.extent for axis in sketch.axes if isinstance(axis, Tile)]
