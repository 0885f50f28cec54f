"""Measurements of earlier programs become measurements of today's, samples for training, or go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate, Choice, Decision, NamedChoice, Sketch, digest_of
from kintune.records import Measurement, Store
from kintune.testing.records import add_workload, measurement
from kintune.transfer import upgrade
from kintune.transfer.upgrade import NAMES, Converted, EarlierSketch, UpgradeSummary, upgrade_records

ROWS = (1, 2, 4, 6, 9)


def sketch_of(workload: str, program: str) -> Sketch:
    """The sketch of a program with one axis: of version 1 with places, of later ones with values."""
    trace = json.dumps({"insts": [], "sampled": [], "program": program}).encode()
    axis = Choice((0, 1, 2, 3, 4), (0.2,) * 5) if ".1:" in program else NamedChoice(("rows",), ((1,), (6,)))
    return Sketch(workload, digest_of(workload.encode(), trace), trace, (axis,))


class Worker:
    """What the worker answers: "tiled.1" is "tiled.2" but for 9 rows, "gone.1" is nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, kind: str, context: bytes, payload: bytes) -> bytes:
        self.asked.append(kind)
        if kind == NAMES:
            names = msgspec.msgpack.decode(payload, type=list[str])
            return msgspec.msgpack.encode([name for name in names if name.startswith("tiled.2")])
        earlier = msgspec.msgpack.decode(payload, type=EarlierSketch)
        assert earlier.module.startswith(b"module of")
        if "gone" in str(earlier.sketch.trace):
            return msgspec.msgpack.encode(Converted(None))
        decided: list[tuple[Decision, ...] | None] = [
            ((ROWS[at],),) if at < 4 else None for ((at,),) in earlier.decided
        ]
        return msgspec.msgpack.encode(Converted(sketch_of(earlier.sketch.workload, "tiled.2:8x16"), tuple(decided)))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()

    @contextmanager
    def interview(module: str) -> Iterator[Worker]:
        assert module == "kintune.workers.upgrade_worker"
        yield made

    monkeypatch.setattr(upgrade, "interview", interview)
    return made


def of(workload: str, program: str, number: int, *, features: bool = True) -> Measurement:
    sketch = sketch_of(workload, program)
    made = msgspec.structs.replace(
        measurement(workload, number, 1.0 + number), candidate=Candidate(workload, sketch.digest, ((number,),))
    )
    return made if features else msgspec.structs.replace(made, features=b"", feature_version="")


def filled(store: Store, *measured: tuple[str, int, bool]) -> None:
    workload = add_workload(store)
    for program, number, features in measured:
        store.workloads.add_sketch(sketch_of(workload, program))
        store.measurements.add(of(workload, program, number, features=features))


def test_what_says_the_same_is_converted_and_the_rest_trains_or_goes(worker: Worker) -> None:
    with Store.open(":memory:") as store:
        filled(
            store,
            ("tiled.1:8x16", 0, True),
            ("tiled.1:8x16", 3, False),
            ("tiled.1:8x16", 4, True),  # 9 rows are no more
            ("tiled.1:8x16", 1, True),
            ("tiled.2:8x16", 2, True),  # what place 1 says
            ("gone.1:", 0, True),
            ("gone.1:", 1, False),
        )
        store.measurements.add(measurement(store.workloads.list()[0].digest, 3, 1.0))  # of MetaSchedule's sketch
        before = {m.id: m for m in store.measurements.find()}
        assert upgrade_records(store) == UpgradeSummary(converted=2, training=2, dropped=2, current=2)
        after = {m.id: m for m in store.measurements.find()}
        sketch = sketch_of(before[1].candidate.workload, "tiled.2:8x16")
        assert [after[i].candidate for i in (1, 2)] == [
            Candidate(sketch.workload, sketch.digest, ((rows,),)) for rows in (1, 6)
        ]
        assert set(before) - set(after) == {4, 7}
        for number, left in after.items():
            assert msgspec.structs.replace(left, candidate=before[number].candidate) == before[number]
            assert number in (1, 2) or left == before[number]
        assert store.check() == []
        assert upgrade_records(store) == UpgradeSummary(converted=0, training=2, dropped=0, current=4)


def test_without_programs_of_our_own_no_process_is_started(worker: Worker) -> None:
    with Store.open(":memory:") as store:
        store.measurements.add(measurement(add_workload(store), 3, 1.0))
        assert upgrade_records(store) == UpgradeSummary(current=1)
    assert worker.asked == []


@given(st.sets(st.tuples(st.sampled_from(["tiled.1:a", "tiled.1:b", "tiled.2:8x16", "gone.1:"]), st.integers(0, 4))))
def test_every_measurement_is_counted_once(found: set[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch, Store.open(":memory:") as store:
        worker = Worker()
        patch.setattr(upgrade, "interview", contextmanager(lambda _: iter([worker])))
        filled(store, *((program, number, True) for program, number in sorted(found)))
        told = upgrade_records(store)
        assert sum(msgspec.structs.astuple(told)) == len(found)
        assert store.counts().measurements == len(found) - told.dropped
        assert told.training == sum(
            program == "gone.1:" or (number == 4 and ".1:" in program) for program, number in found
        )
