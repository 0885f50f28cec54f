"""Carrying a program over: the decisions that were good for one subgraph, adapted to the extents of its sibling.

FamilySeer (arXiv 2201.00194) leaves this open: what was searched for one subgraph is predicted for another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kintune.core.candidate import Candidate, Choice, Decision, Location, Sketch, Tile
from kintune.search.bounds import bounds_of, repair
from kintune.search.divisors import divisors
from kintune.search.skeleton import likeness

__all__ = ["carry", "counterpart"]

_ROOT = -1
_SEED = 0  # a candidate is carried over to the same one each time


def counterpart(source: Sketch, targets: Sequence[Sketch]) -> Sketch | None:
    """The sketch of another workload that is most like `source`, among those that candidates can be carried to."""
    fitting = [sketch for sketch in targets if _tiles_correspond(source, sketch)]
    return max(fitting, key=lambda s: (likeness(source, s), s.axes == source.axes), default=None)


def carry(candidate: Candidate, source: Sketch, target: Sketch) -> Candidate | None:
    """The candidate of `source` as one of `target`; None when their loops do not correspond.

    Register tiles stay as they are as far as the extents divide, and the loop that took most of the old extent takes
    what is left of the new one.  Choices go to the nearest value; producers stay at the same loop.  An axis that has
    no counterpart takes the last one's decision of its kind, or the first value; a producer goes to the root.  Where
    the target's loops are threads, factors are moved until there are as many as may be.
    """
    if not _tiles_correspond(source, target):
        return None
    pairs = list(zip(source.axes, candidate.decisions, strict=True))
    tiles = [(axis, decision) for axis, decision in pairs if isinstance(axis, Tile)]
    choices = [(axis, decision) for axis, decision in pairs if isinstance(axis, Choice)]
    places = [decision for axis, decision in pairs if isinstance(axis, Location)]
    decisions: list[Decision] = []
    for axis in target.axes:
        if isinstance(axis, Tile):
            decisions.append(_fit(*tiles.pop(0), axis))
        elif isinstance(axis, Choice):
            decisions.append(_choose(choices, axis))
        else:
            place = places.pop(0)[0] if places else _ROOT
            decisions.append((min(place, axis.choices - 1),))
    if bounds_of(target):
        decisions = list(repair(target, decisions, np.random.default_rng(_SEED)))
    return Candidate(target.workload, target.digest, tuple(decisions))


def _tiles_correspond(source: Sketch, target: Sketch) -> bool:
    return _tile_kinds(source) == _tile_kinds(target)


def _tile_kinds(sketch: Sketch) -> list[tuple[int, str]]:
    """Parts of each tile, and whether its loop is spatial or of a reduction."""
    return [(axis.parts, axis.loop[:1]) for axis in sketch.axes if isinstance(axis, Tile)]


def _fit(source: Tile, decision: Decision, target: Tile) -> Decision:
    """Factors for the extent of `target`, near those of `source`, the innermost first."""
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
    """The part that takes what is left: the largest around the register tile; a reduction in one piece stays so."""
    if len(decision) == 1 or (len(decision) == 2 and decision[0] == 1):
        return len(decision) - 1
    outer = decision[:-1]
    return outer.index(max(outer))


def _nearest(values: Sequence[int], wanted: int) -> int:
    """In proportion; the smaller one of two equally near."""
    return min(values, key=lambda value: (abs(math.log(value / wanted)), value))


def _choose(choices: list[tuple[Choice, Decision]], axis: Choice) -> Decision:
    if not choices:
        return (0,)
    (source, (index,)) = choices.pop(0) if len(choices) > 1 else choices[0]
    wanted = source.values[index]
    return (min(range(len(axis.values)), key=lambda i: (abs(axis.values[i] - wanted), i)),)
