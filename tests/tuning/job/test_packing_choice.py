"""Programs of the same weights: which ones ship."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.tuning.job.packing_choice import WORTH, PackingOption, agree_on_packing


def option(workload: str, us: float, packing: str, number: int = 0) -> PackingOption:
    return PackingOption(Candidate(workload, "sketch", ((number,),)), us, packing)


def packings(chosen: dict[str, PackingOption]) -> list[str]:
    return [one.packing for one in chosen.values()]


def test_a_program_that_is_nearly_as_fast_gives_way() -> None:
    options = {
        "a": [option("a", 100.0, "p"), option("a", 101.0, "q", 1)],
        "b": [option("b", 50.0, "q")],
    }
    assert packings(agree_on_packing(options)) == ["q", "q"]


def test_a_program_that_is_much_slower_does_not_ship() -> None:
    options = {"a": [option("a", 100.0, "p"), option("a", 110.0, "q", 1)], "b": [option("b", 50.0, "q")]}
    assert packings(agree_on_packing(options)) == ["p", "q"]


def test_of_two_shared_layouts_the_faster_one_is_taken() -> None:
    options = {
        "a": [option("a", 100.0, "p"), option("a", 101.0, "q", 1)],
        "b": [option("b", 500.0, "p"), option("b", 510.0, "q", 1)],
    }
    assert packings(agree_on_packing(options)) == ["p", "p"]


def test_what_was_not_measured_keeps_its_program() -> None:
    chosen = agree_on_packing({"a": [option("a", math.inf, "")], "b": [option("b", 1.0, "q")]})
    assert packings(chosen) == ["", "q"]


_OPTIONS = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.tuples(st.floats(90.0, 110.0), st.sampled_from("pqrs")), min_size=1, max_size=6),
    min_size=1,
)


@given(_OPTIONS)
def test_nobody_pays_more_than_it_is_worth_and_no_layout_is_added(
    given_options: dict[str, list[tuple[float, str]]],
) -> None:
    options = {
        workload: [option(workload, us, packing, number) for number, (us, packing) in enumerate(of)]
        for workload, of in given_options.items()
    }
    chosen = agree_on_packing(options)
    assert list(chosen) == list(options)
    for workload, one in chosen.items():
        assert one in options[workload]
        assert one.us <= WORTH * min(o.us for o in options[workload])
    fastest = {min(of, key=lambda o: (o.us, o.candidate)).packing for of in options.values()}
    assert len(set(packings(chosen))) <= len(fastest)
