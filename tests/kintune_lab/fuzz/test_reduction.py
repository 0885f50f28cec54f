"""Delta debugging."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.fuzz.reduction import reduced


@given(st.integers(1, 24), st.data())
def test_what_is_left_is_the_cause_where_one_set_of_elements_is(size: int, data: st.DataObject) -> None:
    cause = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4))
    assert set(reduced(range(size), lambda part: cause.issubset(part), most=10_000)) == cause


def test_no_more_parts_are_tried_than_allowed() -> None:
    tried: list[Sequence[int]] = []

    def fails(part: Sequence[int]) -> bool:
        tried.append(part)
        return len(part) > 20

    assert len(reduced(range(40), fails, most=50)) >= 21
    assert len(tried) <= 50
