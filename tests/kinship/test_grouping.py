from __future__ import annotations

from kintune.kinship.grouping import group, is_dynamic
from kintune.search.family import Subject
from kintune.testing.pools import synthetic_pool


def test_what_was_measured_and_what_was_not_have_a_family() -> None:
    pool = synthetic_pool(16)
    other = Subject("other", 1, 1.0, "softmax", "softmax")
    assert group("op", pool.subgraphs, [other, *pool.subjects]) == {
        "large": "op:dense", "square": "op:dense", "deep": "op:batch_matmul", "other": "op:softmax",
    }  # fmt: skip


def test_rules_need_no_samples() -> None:
    assert [is_dynamic(name) for name in ("op", "hash", "ind", "none")] == [False] * 4
