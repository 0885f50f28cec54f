from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.pools.accuracy_report import bootstrap

GROUPS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.floats(-1, 1), min_size=1, max_size=4), min_size=1, max_size=4
)


def test_what_is_always_the_same_is_sure() -> None:
    found = bootstrap({"a": [0.25, 0.25], "b": [0.25]})
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_each_group_counts_once() -> None:
    found = bootstrap({"a": [1.0] * 9, "b": [0.0]})
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)


def test_missing_values_do_not_count() -> None:
    found = bootstrap({"a": [1.0, math.nan], "b": [math.nan]})
    assert found is not None
    assert found.mean == 1.0
    assert bootstrap({"b": [math.nan]}) is None
    assert bootstrap({}) is None


@given(GROUPS)
def test_the_interval_lies_among_the_values(groups: dict[str, list[float]]) -> None:
    found = bootstrap(groups)
    values = [value for group in groups.values() for value in group]
    assert found is not None
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    assert found == bootstrap(groups)
    assert found.mean == pytest.approx(sum(sum(g) / len(g) for g in groups.values()) / len(groups))
