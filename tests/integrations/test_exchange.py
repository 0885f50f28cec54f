from __future__ import annotations

import pytest

from kintune.core.candidate import Candidate, Choice, Sketch, digest_of
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome, Status
from kintune.core.workload import Subgraph
from kintune.errors import RecordsError
from kintune.integrations.exchange import FOREIGN, ForeignMeasurement, TuningDatabase, absorb, gather
from kintune.records import Measurement, Store

TARGET = '{"kind": "llvm", "num-cores": 2}'
OURS = DeviceType(target=TARGET, model="a CPU", isa=(), threads=2, protocol="1-cold")
WORKLOAD = digest_of(b"dense")
SUBGRAPH = Subgraph("dense", WORKLOAD, 1, 1e6, "dense", "dense", True)
SKETCH = Sketch(WORKLOAD, digest_of(b"sketch"), b"a trace", (Choice((0, 16), (0.5, 0.5)),))
FAST, SLOW = (Candidate(WORKLOAD, SKETCH.digest, ((i,),)) for i in range(2))


@pytest.fixture
def database() -> TuningDatabase:
    measured = (ForeignMeasurement(FAST, (5.0, 5.5), TARGET), ForeignMeasurement(SLOW, (9.0,), TARGET))
    return TuningDatabase((SUBGRAPH,), {WORKLOAD: b"a program"}, (SKETCH,), measured)


def test_what_was_absorbed_is_gathered_again(database: TuningDatabase) -> None:
    with Store.open(":memory:") as store:
        assert (absorb(store, database).added, absorb(store, database).known) == (2, 2)
        assert gather(store) == database


def test_foreign_measurements_are_never_taken_for_our_own(database: TuningDatabase) -> None:
    with Store.open(":memory:") as store:
        absorb(store, database)
        (device_type,) = store.devices.list()
        assert (device_type.protocol, device_type.threads) == (FOREIGN, 2)
        assert store.measurements.find(device_type=OURS.digest) == []
        assert {m.compiler for m in store.measurements.find()} == {FOREIGN}


def test_a_confirmed_time_takes_the_place_of_the_first(database: TuningDatabase) -> None:
    with Store.open(":memory:") as store:
        store.workloads.add(SUBGRAPH, b"a program")
        store.workloads.add_sketch(SKETCH)
        device_type = store.devices.add(OURS)
        outcome = Outcome(Status.OK, (4.0,))
        store.measurements.add(Measurement(device_type=device_type, compiler="c", candidate=FAST, outcome=outcome))
        store.measurements.confirm(device_type, "c", FAST, Outcome(Status.OK, (6.0,)))
        assert gather(store).measured == (ForeignMeasurement(FAST, (6.0,), TARGET),)


def test_what_cannot_be_compared_is_not_mixed(database: TuningDatabase) -> None:
    """A foreign tuner would take the fastest, wherever that was measured and however; ours comes first, then most."""
    with Store.open(":memory:") as store:
        absorb(store, database)
        device_type = store.devices.add(OURS)

        def measure(compiler: str, candidate: Candidate, time_us: float) -> None:
            outcome = Outcome(Status.OK, (time_us,))
            store.measurements.add(
                Measurement(device_type=device_type, compiler=compiler, candidate=candidate, outcome=outcome)
            )

        measure("old", FAST, 1.0)
        measure("new", FAST, 7.0)
        measure("new", SLOW, 8.0)
        gathered = gather(store)
        assert gathered.measured == (ForeignMeasurement(FAST, (7.0,), TARGET), ForeignMeasurement(SLOW, (8.0,), TARGET))
        assert gathered.skipped == {"measured under other conditions": 3}


def test_nothing_of_a_database_that_does_not_fit_together_is_kept(database: TuningDatabase) -> None:
    torn = TuningDatabase(database.subgraphs, database.modules, (), database.measured)
    with Store.open(":memory:") as store:
        with pytest.raises(RecordsError):
            absorb(store, torn)
        assert store.counts().measurements == 0
        assert store.counts().workloads == 0


def test_one_run_can_be_gathered_alone(database: TuningDatabase) -> None:
    with Store.open(":memory:") as store:
        absorb(store, database)
        assert gather(store, "another run") == TuningDatabase((), {}, (), ())
