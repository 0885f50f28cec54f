"""The open choices of a program that is written as a whole."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.core.candidate import Decision, NamedChoice, described
from kintune.errors import BuildError

NAMES = ("rows", "columns vectors", "parts", "ways")
NUMBERS = st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True)
PAIRS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=4, unique=True)
LISTS = st.fixed_dictionaries({}, optional={name: PAIRS if " " in name else NUMBERS for name in NAMES})


@given(LISTS, st.data())
def test_what_decisions_pick_is_decided_by_them(lists: dict[str, list[Any]], data: st.DataObject) -> None:
    choices = ChoiceLists("thing", lists)
    picked = tuple(data.draw(st.sampled_from(values)) for values in lists.values())
    assert choices.picked(choices.decisions(picked)) == picked
    assert all(
        decision in axis.values for axis, decision in zip(choices.axes(), choices.decisions(picked), strict=True)
    )


@given(LISTS, st.data())
def test_a_decision_means_the_same_in_any_order_and_beside_further_values(
    lists: dict[str, list[Any]], data: st.DataObject
) -> None:
    choices = ChoiceLists("thing", lists)
    picked = tuple(data.draw(st.sampled_from(values)) for values in lists.values())
    decisions = choices.decisions(picked)
    others = {
        name: data.draw(st.permutations([*values, (77, True) if " " in name else 77])) for name, values in lists.items()
    }
    assert ChoiceLists("thing", others).picked(decisions) == picked
    assert described(ChoiceLists("thing", others).axes(), decisions) == described(choices.axes(), decisions)


class Pair(NamedTuple):
    rows: int
    copies: bool


def test_axes_have_names_and_values_in_integers() -> None:
    choices = ChoiceLists("thing", {"rows copies": [Pair(4, True), Pair(2, False)], "parts": (1, 3)})
    assert choices.axes() == (
        NamedChoice(("rows", "copies"), ((4, 1), (2, 0))),
        NamedChoice(("parts",), ((1,), (3,))),
    )
    assert choices.picked(((2, 0), (3,))) == (Pair(2, False), 3)
    assert isinstance(choices.picked(((2, 0), (3,)))[0], Pair)
    assert described(choices.axes(), ((2, 0), (3,))) == "rows=2 copies=0 parts=3"


@given(LISTS, st.integers(0, 12))
def test_the_cheapest_come_first_and_others_are_left_out(lists: dict[str, list[Any]], count: int) -> None:
    choices = ChoiceLists("thing", lists)

    def cost(*values: Any) -> float | None:
        total = sum(map(sum, choices.decisions(values)))
        return None if total % 3 == 0 else abs(total)

    wanted = sorted(found for values in itertools.product(*lists.values()) if (found := cost(*values)) is not None)
    cheapest = choices.cheapest(count, cost)
    assert [cost(*choices.picked(decisions)) for decisions in cheapest] == wanted[:count]
    assert len(set(cheapest)) == len(cheapest)


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ((), "thing has 2 decisions, not 0"),
        (((1,), (3, 1), (0,)), "thing has 2 decisions, not 3"),
        (((1,), (3, 3)), "thing has no rows vectors = 3 3 for this workload"),
        (((0,), (3, 1)), "thing has no parts = 0 for this workload"),
        (((1, 1), (3, 1)), "thing has no parts = 1 1 for this workload"),
        (((1,), (3,)), "thing has no rows vectors = 3 for this workload"),
    ],
)
def test_decisions_of_another_program_are_refused(decisions: tuple[Decision, ...], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        ChoiceLists("thing", {"parts": (1, 2), "rows vectors": ((3, 1), (4, 1))}).picked(decisions)
