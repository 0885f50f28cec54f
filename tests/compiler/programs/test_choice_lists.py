"""The open choices of a program that is written as a whole."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.errors import BuildError

LISTS = st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True).map(tuple), min_size=1, max_size=3)


@given(LISTS, st.data())
def test_what_decisions_pick_is_decided_by_them(lists: list[tuple[int, ...]], data: st.DataObject) -> None:
    choices = ChoiceLists("thing", tuple(lists))
    picked = tuple(data.draw(st.sampled_from(values)) for values in lists)
    assert choices.picked(choices.decisions(picked)) == picked


@given(LISTS)
def test_axes_have_the_values_or_their_places(lists: list[tuple[int, ...]]) -> None:
    choices = ChoiceLists("thing", tuple(lists))
    assert [axis.values for axis in choices.axes()] == lists
    assert [axis.values for axis in choices.axes_of_places()] == [tuple(range(len(values))) for values in lists]
    for axis in (*choices.axes(), *choices.axes_of_places()):
        assert math.isclose(sum(axis.weights), 1)


@given(LISTS, st.integers(0, 12))
def test_the_cheapest_come_first_and_others_are_left_out(lists: list[tuple[int, ...]], count: int) -> None:
    choices = ChoiceLists("thing", tuple(lists))

    def cost(*values: int) -> float | None:
        return None if sum(values) % 3 == 0 else abs(sum(values))

    wanted = sorted(found for values in itertools.product(*lists) if (found := cost(*values)) is not None)
    cheapest = choices.cheapest(count, cost)
    assert [cost(*choices.picked(decisions)) for decisions in cheapest] == wanted[:count]
    assert len(set(cheapest)) == len(cheapest)


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ((), "thing has 2 decisions, not 0"),
        (((0,), (0,), (0,)), "thing has 2 decisions, not 3"),
        (((0,), (3,)), r"thing has 3 choices on axis 1, not \(3,\)"),
        (((-1,), (0,)), r"thing has 2 choices on axis 0, not \(-1,\)"),
        (((0, 0), (0,)), r"thing has 2 choices on axis 0, not \(0, 0\)"),
    ],
)
def test_decisions_of_another_program_are_refused(decisions: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        ChoiceLists("thing", ((1, 2), (3, 4, 5))).picked(decisions)
