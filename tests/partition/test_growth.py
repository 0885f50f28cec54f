from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kintune.partition.growth import grow_regions


def test_a_chain_is_cut_by_a_node_that_may_not_be_inside() -> None:
    assert grow_regions([[], [0], [1], [2], [3]], [True, True, False, True, True]) == ((0, 1), (3, 4))


def test_what_is_all_inside_is_one_region() -> None:
    assert grow_regions([[], [0], [0], [1, 2]], [True] * 4) == ((0, 1, 2, 3),)


def test_a_detour_through_another_node_keeps_both_sides_apart() -> None:
    assert grow_regions([[], [0], [0, 1]], [True, False, True]) == ((0,), (2,))


def test_a_branch_that_does_not_feed_the_other_node_joins_its_reader() -> None:
    """Node 1 is outside and does not read node 2, which node 3 reads beside it: 2 and 3 are one region."""
    assert grow_regions([[], [0], [], [1, 2]], [True, False, True, True]) == ((0,), (2, 3))


def test_unconnected_parts_are_regions_of_their_own() -> None:
    assert grow_regions([[], [], [0], [1]], [True] * 4) == ((0, 2), (1, 3))


def test_nothing_inside_is_no_region() -> None:
    assert grow_regions([[], [0]], [False, False]) == ()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[bool]]:
    count = draw(st.integers(0, 14))
    needed = [
        sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else [] for number in range(count)
    ]
    return needed, [draw(st.booleans()) for _ in range(count)]


@given(graphs())
def test_regions_cover_each_node_once_and_leave_no_cycle(graph: tuple[list[list[int]], list[bool]]) -> None:
    needed, inside = graph
    regions = grow_regions(needed, inside)
    members = [number for region in regions for number in region]
    assert sorted(members) == [number for number, may in enumerate(inside) if may]
    assert not _has_cycle(needed, regions)


@given(graphs())
def test_no_two_neighbouring_regions_could_be_one(graph: tuple[list[list[int]], list[bool]]) -> None:
    needed, inside = graph
    regions = grow_regions(needed, inside)
    for first in range(len(regions)):
        for second in range(first):
            a, b = regions[first], regions[second]
            touching = any(s in b for n in a for s in needed[n]) or any(s in a for n in b for s in needed[n])
            if touching:
                others = [region for region in regions if region not in (a, b)]
                assert _has_cycle(needed, [*others, tuple(sorted((*a, *b)))])


def _has_cycle(needed: Sequence[Sequence[int]], regions: Sequence[tuple[int, ...]]) -> bool:
    home = {number: -1 - index for index, region in enumerate(regions) for number in region}
    edges = {
        (home.get(source, source), home.get(number, number))
        for number, sources in enumerate(needed)
        for source in sources
    }
    edges = {(a, b) for a, b in edges if a != b}
    names = {name for edge in edges for name in edge}
    while names:
        free = {name for name in names if not any(b == name for a, b in edges if a in names)}
        if not free:
            return True
        names -= free
    return False
