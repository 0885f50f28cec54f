"""Whatever can be committed or measured comes back as it was, and any change of it is noticed."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from kintune.core.candidate import digest_of
from kintune.core.messages import Committed, ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.records import Store
from kintune.records.blobs import Codec, pack, unpack
from kintune.records.integrity import find_damage, sealed, without_nul
from kintune.records.schema import events, meta
from kintune.testing.records import add_workload, measurement

QUICK = settings(max_examples=60, deadline=None)


@QUICK
@given(st.sampled_from([math.nan, math.inf, -math.inf, 0.25, None]))
def test_a_score_that_is_no_number_is_none(predicted: float | None) -> None:
    with Store.open(":memory:") as store:
        added = msgspec.structs.replace(measurement(add_workload(store), 1, 1.0), predicted=predicted)
        store.measurements.add(added)
        (found,) = store.measurements.find()
        assert found.predicted == (predicted if predicted == 0.25 else None)


TEXT = st.text(max_size=30)
FLOATS = st.floats(allow_nan=False)

EVENTS = st.builds(
    Committed,
    seq=st.just(0),
    at=FLOATS,
    stage=TEXT,
    attempt=st.integers(0, 1 << 20),
    kind=TEXT,
    index=st.integers(0, 1 << 20),
    status=st.sampled_from(ItemStatus),
    payload=st.binary(max_size=2000),
    cause=TEXT,
    seconds=FLOATS,
)
OUTCOMES = st.one_of(
    st.builds(Outcome, st.just(Status.OK), st.lists(st.floats(1e-3, 1e9), min_size=1).map(tuple)),
    st.builds(Outcome, st.sampled_from([s for s in Status if s is not Status.OK]), st.just(()), TEXT),
)


@QUICK
@given(EVENTS)
def test_any_event_comes_back(event: Committed) -> None:
    with Store.open(":memory:") as store:
        store.runs.create("run", key="key", model_name="model")
        store.events.append("run", event)
        assert store.events.history("run") == (event,)


@QUICK
@given(
    OUTCOMES,
    st.one_of(st.none(), OUTCOMES),
    st.sampled_from([None, math.inf, -math.inf, math.nan]) | st.floats(),
    st.binary(max_size=100),
)
def test_any_measurement_comes_back(
    outcome: Outcome, confirmed: Outcome | None, predicted: float | None, features: bytes
) -> None:
    with Store.open(":memory:") as store:
        added = msgspec.structs.replace(
            measurement(add_workload(store), 0),
            outcome=outcome,
            confirmed=confirmed,
            predicted=predicted,
            features=features,
            created="now",
            id=1,
        )
        store.measurements.add(added)
        (found,) = store.measurements.find()
        finite = predicted is not None and math.isfinite(predicted)
        assert found == (added if finite else msgspec.structs.replace(added, predicted=None))


@QUICK
@given(EVENTS, EVENTS)
def test_any_changed_column_is_noticed(event: Committed, other: Committed) -> None:
    with Store.open(":memory:") as store:
        for run, each in (("run", event), ("other", other)):
            store.runs.create(run, key="key", model_name="model")
            store.events.append(run, each)
        with store.snapshot() as connection:
            row, foreign = (r._asdict() for r in connection.execute(select(events).order_by(events.c.run_id.desc())))
        assert find_damage(events, row) is None
        for column in row.keys() - {"checksum"}:
            changed = row | {column: foreign[column]}
            assert (find_damage(events, changed) is None) == (row[column] == foreign[column])


def test_a_row_in_which_a_database_has_replaced_nul_matches_its_checksum() -> None:
    row = sealed(meta, key="note", value="one\0two")
    assert find_damage(meta, row) is None
    assert find_damage(meta, {**row, "value": without_nul("one\0two")}) is None
    assert find_damage(meta, {**row, "value": "one two"}) is not None
    of_old = digest_of(b"meta", msgspec.msgpack.encode(["note", "one\0two"]))  # nothing was replaced in it
    assert find_damage(meta, {**row, "checksum": of_old}) is None


@QUICK
@given(st.binary(max_size=1000), st.integers(1, 20))
def test_packed_bytes_are_unpacked_and_never_larger(data: bytes, times: int) -> None:
    codec, kept = pack(data * times)
    assert len(kept) <= len(data * times)
    assert unpack(codec.value, kept) == data * times
    assert (codec is Codec.RAW) == (kept == data * times)
