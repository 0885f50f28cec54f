"""Whatever is asked of measurements is what a list of them says."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.outcome import Outcome, Status
from kintune.records import Measurement, Store, measurements
from kintune.records.measurements import FailureCount, MeasurementTally
from kintune.records.schema import METADATA
from kintune.testing.records import DEVICE, add_workload, measurement

NAMES = ("conv", "dense", "sum")
RUNS = (None, "one", "other")

_outcomes = st.one_of(
    st.lists(st.integers(1, 9).map(float), min_size=1, max_size=3).map(lambda times: Outcome(Status.OK, tuple(times))),
    st.builds(
        Outcome, st.sampled_from([Status.RUN_FAILED, Status.BUILD_FAILED]), st.just(()), st.sampled_from(["", "a", "b"])
    ),
)
_rows = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 20),
        st.sampled_from(["compiler-1", "compiler-2"]),
        _outcomes,
        st.none() | _outcomes,
        st.sampled_from(RUNS),
        st.integers(0, 3),
        st.sampled_from(["", "then"]),
    ),
    max_size=14,
)


@settings(max_examples=40)
@given(rows=_rows, asked=st.lists(st.sampled_from(NAMES), max_size=3), at_once=st.integers(1, 3))
def test_they_say_what_a_list_of_them_says(
    rows: list[tuple[str, int, str, Outcome, Outcome | None, str | None, int, str]], asked: list[str], at_once: int
) -> None:
    with Store.open(":memory:") as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurements, "_AT_ONCE", at_once)
        workloads = {name: add_workload(store, name) for name in NAMES}
        for run in RUNS[1:]:
            store.runs.create(run or "", key="key", model_name="model")
        kept: dict[tuple[str, str, str], Measurement] = {}
        for name, index, compiler, outcome, confirmed, run, width, created in rows:
            added = msgspec.structs.replace(
                measurement(workloads[name], index, run_id=run, compiler=compiler),
                outcome=outcome,
                confirmed=confirmed,
                features=bytes(4 * width),
                feature_version=f"version {width}" if width else "",
                created=created,
            )
            number = store.measurements.add(added)
            key = (compiler, added.candidate.workload, added.candidate.digest)
            if key in kept:
                assert number == kept[key].id
            else:
                kept[key] = msgspec.structs.replace(added, id=number)
        of = store.measurements
        found = of.find()
        model = [
            m if m.created else msgspec.structs.replace(m, created=f.created)
            for m, f in zip(kept.values(), found, strict=True)
        ]
        assert found == model
        assert all(m.created for m in found)
        wanted = {workloads[name] for name in asked}
        some = [m for m in model if m.candidate.workload in wanted]
        assert of.find(workloads=(workloads[name] for name in asked)) == some
        assert of.find(workloads=wanted, run_id="one") == [m for m in some if m.run_id == "one"]
        assert of.named([m.id for m in reversed(some)] * 2) == some
        assert of.made_here() == sum(m.run_id is not None for m in model)
        for m in model:
            assert of.of(DEVICE.digest, m.compiler, m.candidate.workload, m.candidate.digest) == m
        for runs, expected in ((None, some), ("other", [m for m in some if m.run_id == "other"])):
            failed = Counter((m.outcome.status, m.outcome.cause) for m in expected if not m.outcome.ok)
            ordered = sorted(failed.items(), key=lambda item: (-item[1], item[0][0].value, item[0][1]))
            counts = [FailureCount(status, cause, count) for (status, cause), count in ordered]
            assert of.failures(workloads=wanted, run_id=runs) == counts
        groups: dict[tuple[str, str], list[Measurement]] = {}
        for m in model:
            groups.setdefault((m.candidate.workload, m.compiler), []).append(m)
        tallies = []
        for (workload, compiler), members in sorted(groups.items()):
            ran = sorted((m for m in members if math.isfinite(m.believed_us)), key=lambda m: (m.believed_us, m.id))
            ok = sum(m.outcome.ok for m in members)
            best = ran[0].believed_us if ran else None
            tallies.append(MeasurementTally(workload, DEVICE.digest, compiler, len(members), ok, best))
            assert of.fastest(workload, DEVICE.digest, compiler, 3) == ran[:3]
            seen = [m for m in ran if m.run_id != "one"]
            assert of.fastest(workload, DEVICE.digest, compiler, 99, hidden=["one"]) == seen
            assert of.best(workload, DEVICE.digest, compiler) == (ran[0] if ran else None)
        assert of.tallies() == tallies
        versions = [(m.compiler, m.feature_version) for m in model if m.feature_version]
        latest = sorted(set(versions), key=lambda each: max(i for i, v in enumerate(versions) if v == each))
        assert of.conditions() == [(DEVICE.digest, compiler, version) for compiler, version in latest]
        for width in range(1, 4):
            assert of.width(f"version {width}") == (width if any(v.endswith(str(width)) for _, v in versions) else None)


def test_a_width_is_that_of_most_and_of_equally_many_the_smaller_one() -> None:
    with Store.open(":memory:") as store:
        workload = add_workload(store)
        for index, width in enumerate((5, 3, 3, 5, 7, 0, 0, 0)):
            each = measurement(workload, index, 1.0)
            store.measurements.add(msgspec.structs.replace(each, features=bytes(4 * width), feature_version="v"))
        assert store.measurements.width("v") == 3


def test_every_row_of_a_table_with_checksums_has_one() -> None:
    sums = [table.columns["checksum"] for table in METADATA.tables.values() if "checksum" in table.columns]
    assert len(sums) == len(METADATA.tables) - 1  # blobs are their own
    assert not any(column.nullable for column in sums)


def test_all_that_get_another_candidate_are_counted() -> None:
    with Store.open(":memory:") as store:
        workload, of = add_workload(store, "conv"), store.measurements
        ids = [of.add(measurement(workload, index, 1.0)) for index in range(3)]
        candidates = [measurement(workload, index).candidate for index in (10, 11, 12)]
        assert of.rename(dict(zip(ids, candidates, strict=True))) == 3
        assert [each.candidate for each in of.find()] == candidates
