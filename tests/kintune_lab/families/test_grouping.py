from __future__ import annotations

import numpy as np

from kintune.search.family import Subject
from kintune_lab.families.grouping import LEAST_SAMPLES, group, is_dynamic, relate
from tests.support.pools import synthetic_pool


def test_what_was_measured_and_what_was_not_have_a_family() -> None:
    pool = synthetic_pool(16)
    other = Subject("other", 1, 1.0, "softmax", "softmax")
    assert group("op", pool.subgraphs, [other, *pool.subjects]) == {
        "large": "op:dense", "square": "op:dense", "deep": "op:batch_matmul", "other": "op:softmax",
    }  # fmt: skip


def test_rules_need_no_samples() -> None:
    assert [is_dynamic(name) for name in ("op", "hash", "ind", "none")] == [False] * 4


def test_samples_group_where_there_are_any() -> None:
    pool = synthetic_pool(48)
    assert is_dynamic("measured")
    assert set(group("measured", pool.subgraphs)) == set(pool.subgraphs)


def test_the_map_is_in_the_order_asked_for_and_says_nothing_of_few_samples() -> None:
    measured = synthetic_pool(48).subgraphs
    few = measured["square"].take(np.arange(LEAST_SAMPLES - 1))
    forth = relate([measured["large"], few, measured["deep"]])
    back = relate([measured["deep"], few, measured["large"]])
    assert np.array_equal(forth, back[::-1, ::-1], equal_nan=True)
    assert np.isnan(forth).tolist() == [[False, True, False], [True, True, True], [False, True, False]]
    assert forth[0, 0] > 0.6
