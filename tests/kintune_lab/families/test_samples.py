from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from kintune.core.outcome import Outcome, Status
from kintune.core.version import FEATURES
from kintune.records import Measurement, Store
from kintune.search.family import Subject
from kintune.testing.records import COMPILER, DEVICE, add_workload, measurement, subgraph
from kintune_lab.families.samples import (
    LEAST_SAMPLES,
    SampleConditions,
    conditions_of,
    group,
    is_dynamic,
    read_measured,
    relate,
    subject_of,
)
from tests.support.synthetic_pool import synthetic_pool

HERE = SampleConditions(DEVICE.digest, COMPILER)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(":memory:") as opened:
        yield opened


def described(workload: str, index: int, *times_us: float, **changed: object) -> Measurement:
    """A measurement with two features of this version: its index, and one."""
    features = np.array([index, 1.0], dtype="<f4").tobytes()
    fields = {"features": features, "feature_version": FEATURES, **changed}
    return msgspec.structs.replace(measurement(workload, index, *times_us), **fields)


def test_samples_come_as_arrays_in_the_order_of_measuring(store: Store) -> None:
    workload = add_workload(store)
    failed = Outcome(Status.RUN_FAILED, cause="crash")
    rows = [described(workload, 3, 30.0, 32.0), described(workload, 1, 10.0), described(workload, 2, outcome=failed)]
    for row in rows:
        store.measurements.add(row)
    (measured,) = read_measured(store, [subject_of(subgraph())], HERE).values()
    assert measured.candidates == tuple(row.candidate for row in rows)
    assert measured.times_us.tolist() == [31.0, 10.0, math.inf]
    assert measured.features.tolist() == [[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    assert measured.evidence.labels.tolist() == pytest.approx([10 / 31, 1.0, 0.0])
    assert measured.take(np.array([1])).times_us.tolist() == [10.0]


def test_the_first_time_counts_as_for_all_others(store: Store) -> None:
    workload = add_workload(store)
    row = described(workload, 1, 10.0)
    store.measurements.add(row)
    store.measurements.confirm(DEVICE.digest, COMPILER, row.candidate, Outcome(Status.OK, (99.0,)))
    (measured,) = read_measured(store, [subject_of(subgraph())], HERE).values()
    assert measured.times_us.tolist() == [10.0]


def test_what_cannot_be_compared_is_left_out(store: Store) -> None:
    workload = add_workload(store)
    store.measurements.add(described(workload, 1, 10.0, feature_version="older"))
    store.measurements.add(described(workload, 2, 10.0, features=b""))
    store.measurements.add(described(workload, 3, 10.0, compiler="compiler-2"))
    assert read_measured(store, [subject_of(subgraph())], HERE) == {}


def test_most_was_measured_under_the_conditions_that_count(store: Store) -> None:
    workload = add_workload(store)
    assert conditions_of(store, [workload]) is None
    store.measurements.add(described(workload, 1, 10.0))
    store.measurements.add(described(workload, 2, 10.0))
    store.measurements.add(described(workload, 3, 10.0, compiler="compiler-0"))
    assert conditions_of(store, [workload]) == HERE
    assert conditions_of(store, ["another"]) is None


def test_conditions_without_features_do_not_count(store: Store) -> None:
    """However much another tuner, or an older version, has measured."""
    workload = add_workload(store)
    for index in range(3):
        store.measurements.add(
            described(workload, index, 10.0, compiler="another tuner's", features=b"", feature_version="")
        )
        store.measurements.add(described(workload, index, 10.0, compiler="older", feature_version="older"))
    assert conditions_of(store, [workload]) is None
    store.measurements.add(described(workload, 1, 10.0))
    assert conditions_of(store, [workload]) == HERE


def test_failures_that_say_nothing_are_no_samples(store: Store) -> None:
    workload = add_workload(store)
    killed = Outcome(Status.RUN_FAILED, cause="killed by SIGKILL")
    ran_later = described(workload, 2, outcome=killed)
    for row in (described(workload, 1, outcome=killed), ran_later, described(workload, 3, 10.0)):
        store.measurements.add(row)
    store.measurements.confirm(DEVICE.digest, COMPILER, ran_later.candidate, Outcome(Status.OK, (20.0,)))
    (measured,) = read_measured(store, [subject_of(subgraph())], HERE).values()
    assert measured.times_us.tolist() == [20.0, 10.0]


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
