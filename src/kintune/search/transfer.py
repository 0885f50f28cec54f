"""Transfer of programs: the decisions of a good program of one subgraph, adapted to the extents of another.

FamilySeer (arXiv 2201.00194) shares models between subgraphs; this shares programs as well.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kintune.core.candidate import Candidate, Choice, Decision, Location, NamedChoice, Sketch, Tile
from kintune.core.knowledge import KnownProgram
from kintune.search.bounds import bounds_of, divisors, repair
from kintune.search.sketch_program import program_of
from kintune.search.space import SearchSpace
from kintune.search.subgraph import SubgraphState

__all__ = ["TransferredPrograms", "carry", "counterpart", "likeness"]


_ROOT = -1


_SEED = 0  # fixed, so that a candidate is always adapted in the same way


def counterpart(source: Sketch, targets: Sequence[Sketch]) -> Sketch | None:
    """Return the sketch most like `source` among those of its program whose tiles correspond; None without one."""
    program = program_of(source)
    fitting = [sketch for sketch in targets if program_of(sketch) == program and _tiles_correspond(source, sketch)]
    return max(fitting, key=lambda s: (likeness(source, s), s.axes == source.axes), default=None)


def carry(candidate: Candidate, source: Sketch, target: Sketch) -> Candidate | None:
    """Return a candidate of the sketch `source` adapted to `target`; None if their tiles do not correspond.

    Register tiles stay as they are as far as the extents divide, and the part with most of the old extent takes what is
    left of the new one.  A choice takes the nearest value, a named one the nearest values of the same names, a producer
    the same loop.  A choice without a counterpart takes the last decision of its kind, or the first value; a producer
    without one goes to the root.  Factors are moved until the bounds of `target` hold.
    """
    if not _tiles_correspond(source, target):
        return None
    pairs = list(zip(source.axes, candidate.decisions, strict=True))
    tiles = [(axis, decision) for axis, decision in pairs if isinstance(axis, Tile)]
    choices = [(axis, decision) for axis, decision in pairs if isinstance(axis, Choice)]
    named = {axis.names: decision for axis, decision in pairs if isinstance(axis, NamedChoice)}
    places = [decision for axis, decision in pairs if isinstance(axis, Location)]
    decisions: list[Decision] = []
    for axis in target.axes:
        if isinstance(axis, Tile):
            decisions.append(_fit(*tiles.pop(0), axis))
        elif isinstance(axis, Choice):
            decisions.append(_choose(choices, axis))
        elif isinstance(axis, NamedChoice):
            decisions.append(_nearest_row(axis.values, named.get(axis.names, axis.values[0])))
        else:
            place = places.pop(0)[0] if places else _ROOT
            decisions.append((min(place, axis.choices - 1),))
    if bounds_of(target):
        decisions = list(repair(target, decisions, np.random.default_rng(_SEED)))
    return Candidate(target.workload, target.digest, tuple(decisions))


def _tiles_correspond(source: Sketch, target: Sketch) -> bool:
    return _tile_kinds(source) == _tile_kinds(target)


def _tile_kinds(sketch: Sketch) -> list[tuple[int, str]]:
    """Return, for each tile, its number of parts and whether its loop is spatial or of a reduction."""
    return [(axis.parts, axis.loop[:1]) for axis in sketch.axes if isinstance(axis, Tile)]


def _fit(source: Tile, decision: Decision, target: Tile) -> Decision:
    """Return factors for the extent of `target` near those of `source`; the innermost is chosen first."""
    slack = _slack(decision)
    left = target.extent
    factors = [1] * target.parts
    for part in reversed(range(target.parts)):
        if part != slack:
            limit = max(target.max_inner, decision[part]) if part == target.parts - 1 else left
            factors[part] = _nearest([d for d in divisors(left) if d <= limit], decision[part])
            left //= factors[part]
    factors[slack] = left
    return tuple(factors)


def _slack(decision: Decision) -> int:
    """Return the part that takes the rest of the extent: the largest outer one, or the last of a whole reduction."""
    if len(decision) == 1 or (len(decision) == 2 and decision[0] == 1):
        return len(decision) - 1
    outer = decision[:-1]
    return outer.index(max(outer))


def _nearest(values: Sequence[int], wanted: int) -> int:
    """Return the value nearest to `wanted` by ratio; the smaller one of two equally near."""
    return min(values, key=lambda value: (abs(math.log(value / wanted)), value))


def _choose(choices: list[tuple[Choice, Decision]], axis: Choice) -> Decision:
    if not choices:
        return (0,)
    (source, (index,)) = choices.pop(0) if len(choices) > 1 else choices[0]
    wanted = source.values[index]
    return (min(range(len(axis.values)), key=lambda i: (abs(axis.values[i] - wanted), i)),)


def _nearest_row(rows: Sequence[Decision], wanted: Decision) -> Decision:
    """Return the row whose values are nearest by ratio; the first one of those equally near."""
    return min(rows, key=lambda row: sum(abs(math.log((a + 1) / (b + 1))) for a, b in zip(row, wanted, strict=True)))


def likeness(left: Sketch, right: Sketch) -> float:
    """Return the share of equal steps of two sketches, from 0.0 to 1.0.

    Steps are compared by kind, annotations also by key; operands and order do not count.
    """
    ours, theirs = _steps(left.trace), _steps(right.trace)
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else 0.0


@lru_cache(maxsize=4096)
def _steps(trace: bytes) -> Counter[str]:
    try:
        instructions = json.loads(trace)["insts"]
    except (ValueError, KeyError, TypeError):
        return Counter([trace.decode(errors="replace")])  # a trace of another space, in another format
    return Counter(
        f"{kind}:{attributes[0]}" if kind == "Annotate" else str(kind) for kind, _, attributes, _ in instructions
    )


_PROGRAMS = 3  # best programs of each sibling


_CARRIED = 12  # transferred candidates, at most


_FAST = 0.8  # least relative speed of a known program that is transferred


class _Origin(NamedTuple):
    """A good program: its rank within its workload (0 is the best), its sketch and its candidate."""

    rank: int
    sketch: Sketch
    candidate: Candidate


class TransferredPrograms:
    """Transfers good programs of other subgraphs to a subgraph, the most promising first.

    They are ordered by their rank within their own workload, then by the distance of the loops' extents.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._taught: dict[str, list[_Origin]] = {}

    def teach(self, programs: Iterable[KnownProgram]) -> None:
        """Take in programs of earlier jobs; slow ones are ignored."""
        ranks: dict[str, int] = {}
        for known in sorted(programs, key=lambda k: (-k.speed, k.candidate)):
            rank = ranks[known.subject.workload] = ranks.get(known.subject.workload, -1) + 1
            if known.speed >= _FAST:
                origin = _Origin(rank, known.sketch, known.candidate)
                self._taught.setdefault(known.subject.operator, []).append(origin)

    def offered(self, state: SubgraphState) -> int:
        """Return the number of programs of earlier jobs for this subgraph, whether they can be transferred or not."""
        return len(self._origins(state))

    def known(self, state: SubgraphState) -> list[Candidate]:
        """Return candidates from programs of earlier jobs with the same core operator."""
        return self._carried(state, self._origins(state))

    def carried(self, state: SubgraphState, states: Iterable[SubgraphState]) -> list[Candidate]:
        """Return candidates from the best programs of the other subgraphs of the family."""
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
    """Return the distance of the extents of two sketches: the sum of the absolute logarithms of their ratios."""
    return sum(abs(math.log(a / b)) for a, b in zip(_extents(left), _extents(right), strict=True))


def _extents(sketch: Sketch) -> Sequence[int]:
    return [axis.extent for axis in sketch.axes if isinstance(axis, Tile)]
