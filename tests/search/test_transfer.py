import json
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, NamedChoice, Sketch, Tile
from kintune.core.knowledge import KnownProgram
from kintune.search.evolve import draw
from kintune.search.family import Subject
from kintune.search.subgraph import SubgraphState
from kintune.search.transfer import TransferredPrograms, carry, counterpart, likeness

_EXTENTS = st.sampled_from([1, 2, 3, 7, 8, 12, 14, 49, 56, 64, 96, 100, 128, 768, 3072])


def _sketch(workload: str, extents: tuple[int, int, int], *, trace: bytes = b"tiled", places: int = 1) -> Sketch:
    axes: list[Axis] = [
        Tile(extents[0], 4, 64, "s0:i"),
        Tile(extents[1], 4, 64, "s1:j"),
        Tile(extents[2], 2, 64, "r2:k"),
        Choice((0, 16, 64, 512), (0.25,) * 4),
        *([Location(12)] * places),
    ]
    return Sketch(workload, f"{workload}-{trace.decode()}", trace, tuple(axes))


_sizes = st.tuples(_EXTENTS, _EXTENTS, _EXTENTS)


@given(source=_sizes, target=_sizes, seed=st.integers(0, 99), places=st.integers(0, 2))
def test_what_is_carried_fits_its_axes(
    source: tuple[int, int, int], target: tuple[int, int, int], seed: int, places: int
) -> None:
    there = _sketch("there", target, places=places)
    here = _sketch("here", source)
    carried = carry(draw(here, np.random.default_rng(seed)), here, there)
    assert carried is not None
    assert (carried.workload, carried.sketch, len(carried.decisions)) == ("there", there.digest, len(there.axes))
    for axis, decision in zip(there.axes, carried.decisions, strict=True):
        if isinstance(axis, Tile):
            assert len(decision) == axis.parts
            assert math.prod(decision) == axis.extent
            assert axis.parts == 2 or decision[-1] <= axis.max_inner
        elif isinstance(axis, Choice):
            assert 0 <= decision[0] < len(axis.values)
        else:
            assert -2 <= decision[0] < axis.choices


@given(extents=_sizes, seed=st.integers(0, 99))
def test_between_equal_extents_nothing_changes(extents: tuple[int, int, int], seed: int) -> None:
    here, there = _sketch("here", extents), _sketch("there", extents)
    candidate = draw(here, np.random.default_rng(seed))
    carried = carry(candidate, here, there)
    assert carried is not None
    assert carried.decisions == candidate.decisions


def test_each_choice_goes_to_its_counterpart_and_the_last_to_all_others() -> None:
    tile = Tile(64, 4, 64, "s0:i")

    def of(workload: str, *values: tuple[int, ...]) -> Sketch:
        return Sketch(workload, workload, b"", (tile, *(Choice(each, (1.0,) * len(each)) for each in values)))

    here = of("here", (0, 16, 64), (1, 2, 4))
    candidate = Candidate("here", "here", ((1, 1, 1, 64), (2,), (1,)))
    for values, expected in [
        (((0, 16, 64), (1, 2, 4)), ((2,), (1,))),
        (((0, 60, 70),), ((1,),)),
        (((64, 0), (0, 3), (9, 1, 2)), ((0,), (1,), (2,))),
    ]:
        carried = carry(candidate, here, of("there", *values))
        assert carried is not None
        assert carried.decisions == ((1, 1, 1, 64), *expected)
    bare = carry(Candidate("bare", "bare", ((1, 1, 1, 64),)), of("bare"), of("there", (5, 6)))
    assert bare is not None
    assert bare.decisions == ((1, 1, 1, 64), (0,))


def test_named_values_go_to_the_nearest_of_their_names() -> None:
    def of(workload: str, *axes: NamedChoice) -> Sketch:
        return Sketch(workload, workload, b"", axes)

    tile, parts = NamedChoice(("rows", "vectors"), ((6, 4), (12, 2), (1, 1))), NamedChoice(("parts",), ((1,), (3,)))
    candidate = Candidate("here", "here", ((12, 2), (3,)))
    others = NamedChoice(("rows", "vectors"), ((1, 1), (14, 2), (6, 4))), NamedChoice(("parts",), ((8,), (1,), (4,)))
    for target, expected in [
        ((tile, parts), ((12, 2), (3,))),
        (others, ((14, 2), (4,))),
        (others[::-1], ((4,), (14, 2))),  # names count, and not the order of axes
        ((tile, NamedChoice(("ways",), ((2,), (3,)))), ((12, 2), (2,))),  # a name without a counterpart: the first one
    ]:
        carried = carry(candidate, of("here", tile, parts), of("there", *target))
        assert carried is not None
        assert carried.decisions == expected


def test_the_register_tile_stays_and_the_large_loop_takes_the_rest() -> None:
    here, there = _sketch("here", (128, 768, 768)), _sketch("there", (128, 1024, 4096))
    candidate = draw(here, np.random.default_rng(0))
    decisions = ((1, 16, 1, 8), (12, 1, 2, 32), (12, 64), (2,), (3,))
    carried = carry(type(candidate)("here", here.digest, decisions), here, there)
    assert carried is not None
    assert carried.decisions == ((1, 16, 1, 8), (16, 1, 2, 32), (64, 64), (2,), (3,))


_FACTORS = st.sampled_from([1, 2, 3, 4, 6, 7, 8, 16, 49, 64])


@given(parts=st.lists(_FACTORS, min_size=1, max_size=5), extent=_EXTENTS, most=st.sampled_from([1, 8, 64]))
def test_each_part_but_one_is_as_near_as_it_can_be_from_the_inside_out(
    parts: list[int], extent: int, most: int
) -> None:
    """That one is the largest outer part, or the inner one of a reduction that was not split."""
    here = Sketch("here", "here", b"tiled", (Tile(math.prod(parts), len(parts), 64, "s0:i"),))
    there = Sketch("there", "there", b"tiled", (Tile(extent, len(parts), most, "s0:i"),))
    carried = carry(Candidate("here", "here", (tuple(parts),)), here, there)
    assert carried is not None
    (decision,) = carried.decisions
    whole = len(parts) == 1 or (len(parts) == 2 and parts[0] == 1)
    rest = len(parts) - 1 if whole else max(range(len(parts) - 1), key=lambda i: (parts[i], -i))
    left = extent
    for part in reversed(range(len(parts))):
        if part != rest:
            fitting = [d for d in range(1, left + 1) if left % d == 0]
            if part == len(parts) - 1:
                fitting = [d for d in fitting if d <= max(most, parts[part])]
            assert decision[part] == min(fitting, key=lambda d: (abs(math.log(d / parts[part])), d))
            left //= decision[part]
    assert decision[rest] == left


def test_loops_that_do_not_correspond_cannot_be_carried() -> None:
    here = _sketch("here", (8, 8, 8))
    flat = Sketch("flat", "flat", b"tiled", (Tile(64, 4, 64, "s0:i"), Choice((0, 16), (0.5, 0.5))))
    assert carry(draw(here, np.random.default_rng(0)), here, flat) is None
    assert counterpart(here, [flat]) is None


def test_the_counterpart_takes_the_same_steps() -> None:
    here = _sketch("here", (8, 8, 8), trace=b"fused")
    plain, fused = _sketch("there", (4, 4, 4), trace=b"plain"), _sketch("there", (4, 4, 4), trace=b"fused")
    assert counterpart(here, [plain, fused]) is fused


_STEPS = st.lists(st.sampled_from(["Split", "Fuse", "Annotate a", "Annotate b"]), max_size=6)


@given(ours=_STEPS, theirs=_STEPS)
def test_likeness_is_the_share_of_equal_steps(ours: list[str], theirs: list[str]) -> None:
    def of(steps: list[str]) -> Sketch:
        instructions = [[name.split()[0], ["loop"], name.split()[1:], ["out"]] for name in steps]
        return Sketch("w", "s", json.dumps({"insts": instructions, "names": steps}).encode(), ())

    shared = sum((Counter(ours) & Counter(theirs)).values())
    expected = 2 * shared / (len(ours) + len(theirs)) if ours or theirs else 0.0
    assert likeness(of(ours), of(theirs)) == likeness(of(theirs), of(ours)) == expected


def _subject(workload: str, operator: str = "dense") -> Subject:
    return Subject(workload, 1, 1e6, operator, operator)


@given(extents=st.lists(_sizes, min_size=1, max_size=5), own=_sizes, ranks=st.lists(st.booleans(), min_size=5))
def test_programs_come_by_their_rank_and_then_the_nearest_in_extents_first(
    extents: list[tuple[int, int, int]], own: tuple[int, int, int], ranks: list[bool]
) -> None:
    """A second program of a workload comes after the first ones of all others, however near it is."""
    target = _sketch("own", own)
    space: Any = SimpleNamespace(sketches=lambda workload: [target])
    transferred = TransferredPrograms(space)
    known, expected = [], []
    for number, (size, second) in enumerate(zip(extents, ranks, strict=False)):
        sketch = _sketch(f"w{number}", size)
        distance = sum(abs(math.log(a / b)) for a, b in zip(size, own, strict=True))
        for rank in range(1 + second):
            candidate = draw(sketch, np.random.default_rng([number, rank]))
            known.append(KnownProgram(_subject(sketch.workload), sketch, candidate, 1.0 - 0.1 * rank))
            expected.append((rank, distance, carry(candidate, sketch, target)))
    transferred.teach(reversed(known))
    state = SubgraphState(_subject("own"), "op:dense")
    assert transferred.known(state) == list(dict.fromkeys(c for _, _, c in sorted(expected)))  # type: ignore[type-var]
    assert transferred.offered(state) == len(known)
    assert transferred.known(SubgraphState(_subject("own", "conv2d"), "op:conv2d")) == []


def test_slow_programs_and_those_of_the_same_workload_are_not_carried() -> None:
    here, own = _sketch("here", (8, 8, 8)), _sketch("own", (8, 8, 8))
    space: Any = SimpleNamespace(sketches=lambda workload: [own])
    transferred = TransferredPrograms(space)
    slow = KnownProgram(_subject("here"), here, draw(here, np.random.default_rng(0)), 0.79)
    same = KnownProgram(_subject("own"), own, draw(own, np.random.default_rng(0)), 1.0)
    transferred.teach([slow, same])
    assert transferred.offered(SubgraphState(_subject("own"), "op:dense")) == 0
