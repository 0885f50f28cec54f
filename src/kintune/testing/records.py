"""The conformance suite of records, and values to fill records with.

The tests of a database system subclass `RecordsConformance` and define the fixture `store`, an empty `Store`.
"""

from __future__ import annotations

import msgspec
import pytest

from kintune.core.candidate import Candidate, Choice, Sketch, Tile, digest_of
from kintune.core.device import Peak
from kintune.core.knowledge import ModelVersion
from kintune.core.measurement_protocol import DeviceType
from kintune.core.messages import Committed, ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.workload import Subgraph
from kintune.errors import OrderError, RecordsError
from kintune.records import Measurement, RunState, Store

__all__ = ["COMPILER", "DEVICE", "RecordsConformance", "add_workload", "event", "measurement", "sketch_of", "subgraph"]

COMPILER = "compiler-1"
DEVICE = DeviceType('{"kind":"llvm"}', "A processor", ("avx2", "fma"), 2, "1-cold")


def subgraph(name: str = "conv") -> Subgraph:
    """Return a subgraph; equal names give equal ones."""
    return Subgraph(name, digest_of(name.encode()), 2, 1e6, "conv2d", "conv2d+relu", True)


def sketch_of(workload: str) -> Sketch:
    """Return a sketch of a workload with two axes, a tile and a choice."""
    axes = (Tile(extent=64, parts=2, loop="i"), Choice(tuple(range(64)), (1 / 64,) * 64))
    return Sketch(workload, digest_of(workload.encode(), b"sketch"), b"trace" * 100, axes)


def add_workload(store: Store, name: str = "conv") -> str:
    """Add the device type, a workload and its sketch; returns the workload's digest."""
    described = subgraph(name)
    with store.transaction():
        store.devices.add(DEVICE)
        store.workloads.add(described, b"module of " + name.encode() * 200)
        store.workloads.add_sketch(sketch_of(described.workload))
    return described.workload


def measurement(
    workload: str,
    index: int,
    *times_us: float,
    status: Status = Status.OK,
    cause: str = "",
    run_id: str | None = None,
    compiler: str = COMPILER,
) -> Measurement:
    """Return a measurement of the `index`-th candidate of a workload; candidates 0 to 63 are different."""
    candidate = Candidate(workload, sketch_of(workload).digest, ((64 // 2 ** (index % 7), 2 ** (index % 7)), (index,)))
    return Measurement(
        device_type=DEVICE.digest,
        compiler=compiler,
        candidate=candidate,
        outcome=Outcome(status, times_us, cause),
        features=bytes([index % 256]) * 64,
        feature_version="1",
        origin="evolve",
        predicted=0.5,
        run_id=run_id,
    )


def event(seq: int, payload: bytes = b"payload", **changed: object) -> Committed:
    """Return the `seq`-th event of a run, with fields `changed`."""
    first = Committed(seq, seq * 0.5, f"profile-{seq}", 0, "profile", 0, ItemStatus.OK, payload)
    return msgspec.structs.replace(first, **changed)


class RecordsConformance:
    """The contract of `Store` as tests."""

    def test_new_records_are_empty_and_sound(self, store: Store) -> None:
        """There are no rows and no damage."""
        assert set(msgspec.structs.astuple(store.counts())) == {0}
        assert store.check() == []
        assert store.notice is None

    def test_blobs_are_kept_once_under_their_digest(self, store: Store) -> None:
        """Small, compressible and random bytes come back; the same bytes are one blob."""
        for data in (b"", b"x", b"abc" * 10_000, bytes(range(256)) * 4):
            digest = store.blobs.put(data)
            assert digest == digest_of(data) == store.blobs.put(data)
            assert store.blobs.get(digest) == data
        assert store.counts().blobs == 4
        with pytest.raises(RecordsError, match="no blob 00"):
            store.blobs.get("00")

    def test_measurements_are_renamed_unless_that_program_was_measured(self, store: Store) -> None:
        """All else stays, and the row is sound; of two measurements of one program, the one that was there stays."""
        workload = add_workload(store)
        first, second, third = (store.measurements.add(measurement(workload, i, 1.0 + i)) for i in range(3))
        fresh, taken = measurement(workload, 9).candidate, measurement(workload, 2).candidate
        assert store.measurements.rename({first: fresh, second: taken}) == 1
        renamed, kept = store.measurements.find()
        assert (renamed.id, renamed.candidate, renamed.outcome.times_us) == (first, fresh, (1.0,))
        assert (kept.id, kept.outcome.times_us) == (third, (3.0,))
        assert store.check() == []
        store.measurements.remove([first])
        assert [m.id for m in store.measurements.find()] == [third]

    def test_workloads_and_sketches_come_back(self, store: Store) -> None:
        """What was added is read again; adding again changes nothing."""
        workload = add_workload(store)
        assert add_workload(store) == workload
        kept = store.workloads.get(workload)
        assert (kept.name, kept.operator, kept.signature, kept.flops) == ("conv", "conv2d", "conv2d+relu", 1e6)
        assert store.workloads.module(workload).startswith(b"module of conv")
        assert store.workloads.sketches([workload, "unknown"]) == (sketch_of(workload),)
        assert store.workloads.list() == (kept,)
        assert store.devices.list() == (DEVICE,) == (store.devices.get(DEVICE.digest),)
        with pytest.raises(RecordsError, match="no workload 00"):
            store.workloads.get("00")

    def test_the_first_measurement_of_a_candidate_stays(self, store: Store) -> None:
        """Adding a second one returns the first one's id; one of another compiler is stored beside it."""
        workload = add_workload(store)
        first = measurement(workload, 1, 10.0, 11.0, 12.5)
        number = store.measurements.add(first)
        assert store.measurements.add(measurement(workload, 1, 5.0)) == number
        assert store.measurements.add(measurement(workload, 1, 5.0, compiler="compiler-2")) != number
        (kept,) = store.measurements.find(compiler=COMPILER)
        assert kept == msgspec.structs.replace(first, id=number, created=kept.created)

    def test_many_measurements_are_kept_as_each_alone_would_be(self, store: Store) -> None:
        """The first one of a candidate stays, also within one call; if one is refused, none of the call is stored."""
        workload = add_workload(store)
        store.measurements.add(measurement(workload, 1, 10.0))
        many = [measurement(workload, index, time) for index, time in ((1, 5.0), (2, 6.0), (3, 7.0), (2, 8.0))]
        store.measurements.add_all(many)
        store.measurements.add_all([])
        assert [m.outcome.times_us for m in store.measurements.find()] == [(10.0,), (6.0,), (7.0,)]
        with pytest.raises(RecordsError, match="refused a record"):
            store.measurements.add_all([measurement(workload, 4, 1.0), measurement("0" * 32, 5, 1.0)])
        assert len(store.measurements.find()) == 3

    def test_measurements_are_found_by_what_is_asked(self, store: Store) -> None:
        """Workloads, device type, compiler and run narrow a look-up; an untuned program has no sketch."""
        one, other = add_workload(store, "one"), add_workload(store, "other")
        store.runs.create("run", key="key", model_name="model")
        untuned = msgspec.structs.replace(measurement(one, 0, 9.0), candidate=Candidate.untuned(one))
        for added in (untuned, measurement(one, 1, 8.0, run_id="run"), measurement(other, 2, 7.0)):
            store.measurements.add(added)
        find = store.measurements.find
        assert [m.candidate.workload for m in find()] == [one, one, other]
        assert [m.outcome.times_us for m in find(workloads=[other, one, one])] == [(9.0,), (8.0,), (7.0,)]
        assert find(workloads=[one], device_type=DEVICE.digest, compiler=COMPILER)[0].candidate == untuned.candidate
        assert [m.outcome.times_us for m in find(run_id="run")] == [(8.0,)]
        assert find(workloads=[]) == find(device_type="00") == find(compiler="other") == []

    def test_one_candidate_is_found_by_its_digest(self, store: Store) -> None:
        """It is found under the conditions of its measurement only."""
        workload = add_workload(store)
        added = measurement(workload, 1, 5.0)
        store.measurements.add(added)
        store.measurements.add(measurement(workload, 2, 6.0))
        found = store.measurements.of(DEVICE.digest, COMPILER, workload, added.candidate.digest)
        assert found is not None
        assert (found.candidate, found.outcome) == (added.candidate, added.outcome)
        assert store.measurements.of(DEVICE.digest, "other", workload, added.candidate.digest) is None
        assert store.measurements.of(DEVICE.digest, COMPILER, workload, "0" * 32) is None

    def test_best_believes_what_was_confirmed(self, store: Store) -> None:
        """A lucky time that was not confirmed does not win; failures never do."""
        workload = add_workload(store)
        assert store.measurements.best(workload, DEVICE.digest, COMPILER) is None
        lucky, steady = measurement(workload, 1, 1.0), measurement(workload, 2, 3.0)
        failed = measurement(workload, 3, status=Status.RUN_FAILED, cause="SIGSEGV")
        for added in (lucky, steady, failed):
            store.measurements.add(added)
        best = store.measurements.best(workload, DEVICE.digest, COMPILER)
        assert best is not None
        assert best.candidate == lucky.candidate
        store.measurements.confirm(DEVICE.digest, COMPILER, lucky.candidate, Outcome(Status.OK, (4.0, 5.0, 6.0)))
        best = store.measurements.best(workload, DEVICE.digest, COMPILER)
        assert best is not None
        assert best.candidate == steady.candidate
        confirmed = store.measurements.find()[0]
        assert confirmed.outcome == lucky.outcome
        assert confirmed.confirmed == Outcome(Status.OK, (4.0, 5.0, 6.0))
        assert confirmed.believed_us == 5.0
        assert store.check() == []
        with pytest.raises(RecordsError, match="was never measured"):
            store.measurements.confirm(DEVICE.digest, COMPILER, Candidate.untuned(workload), lucky.outcome)

    def test_named_and_wide(self, store: Store) -> None:
        """Measurements are found by id; conditions with features, and the number of features, are known."""
        workload = add_workload(store)
        ids = [store.measurements.add(measurement(workload, index, 1.0)) for index in range(3)]
        store.measurements.add(msgspec.structs.replace(measurement(workload, 3, 1.0), features=b"", feature_version=""))
        assert [m.id for m in store.measurements.named([ids[2], ids[0], 10**6, ids[0]])] == [ids[0], ids[2]]
        assert store.measurements.named([]) == []
        assert store.measurements.conditions() == [(DEVICE.digest, COMPILER, "1")]
        assert (store.measurements.width("1"), store.measurements.width("2")) == (16, None)

    def test_failures_and_tallies_count(self, store: Store) -> None:
        """Failures by status and cause, the most frequent first; measurements by workload."""
        workload = add_workload(store)
        store.measurements.add(measurement(workload, 0, 4.0))
        for index in range(1, 4):
            cause = "LLVM says no" if index < 3 else "SIGSEGV"
            store.measurements.add(measurement(workload, index, status=Status.BUILD_FAILED, cause=cause))
        counts = store.measurements.failures(workloads=[workload])
        assert [(f.status, f.cause, f.count) for f in counts] == [
            (Status.BUILD_FAILED, "LLVM says no", 2),
            (Status.BUILD_FAILED, "SIGSEGV", 1),
        ]
        assert store.measurements.failures(run_id="none") == []
        (tally,) = store.measurements.tallies()
        assert (tally.workload, tally.measured, tally.ok, tally.best_us) == (workload, 4, 1, 4.0)

    def test_a_measurement_needs_what_it_names(self, store: Store) -> None:
        """An unknown workload, device type or run is refused, and nothing is kept."""
        workload = add_workload(store)
        for wrong in (
            measurement("0" * 32, 0, 1.0),
            measurement(workload, 0, 1.0, run_id="no such run"),
            msgspec.structs.replace(measurement(workload, 0, 1.0), device_type="0" * 32),
        ):
            with pytest.raises(RecordsError, match="refused a record"):
                store.measurements.add(wrong)
        assert store.measurements.find() == []

    def test_events_are_numbered_without_a_gap(self, store: Store) -> None:
        """They come back as committed, of any size; a wrong number is refused and changes nothing."""
        store.runs.create("run", key="key", model_name="model")
        added = [
            event(0),
            event(1, b"z" * 5000, attempt=2, index=7, seconds=0.25),
            event(2, b"", status=ItemStatus.CRASHED, cause="signal 11 (é)"),
        ]
        store.events.append("run", added[0])
        store.events.append("run", *added[1:])
        for wrong in (1, 2, 4):
            with pytest.raises(RecordsError, match=f"event {wrong} of run run cannot be added: 3 is the next"):
                store.events.append("run", event(wrong))
        with pytest.raises(RecordsError, match="event 3 of run run cannot be added: 4 is the next"):
            store.events.append("run", event(3), event(3))
        store.events.append("run")
        assert store.events.history("run") == tuple(added)
        assert store.events.count("run") == 3
        assert store.events.history("other") == ()
        with pytest.raises(RecordsError):
            store.events.append("no such run", event(0))

    def test_texts_may_have_any_character(self, store: Store) -> None:
        """NUL may be replaced, since not all databases store it; the row is sound."""
        store.runs.create("run", key="key", model_name="a\0b")
        store.events.append("run", event(0, status=ItemStatus.FAILED, cause="one\0two\n\U0001f642"))
        (found,) = store.events.history("run")
        assert found.cause.replace("\0", "\ufffd") == "one\ufffdtwo\n\U0001f642"
        assert store.runs.get("run").model_name.replace("\0", "\ufffd") == "a\ufffdb"
        assert store.check() == []

    def test_runs_change_until_they_are_over(self, store: Store) -> None:
        """A run is created once, changed while it lasts, found by its key until its end, and then stays as it is."""
        run = store.runs.create("one", key="key", model_name="m", spec=b"spec", seeds={"s": 1}, versions={"v": "2"})
        assert run.state is RunState.RUNNING
        assert store.runs.get("one") == run == store.runs.find_unfinished("key")
        with pytest.raises(RecordsError, match="run one is there already"):
            store.runs.create("one", key="key", model_name="m")
        store.runs.update("one", state=RunState.INTERRUPTED, active_seconds=2.5, model_digest="d")
        changed = store.runs.get("one")
        assert (changed.state, changed.active_seconds, changed.model_digest) == (RunState.INTERRUPTED, 2.5, "d")
        assert store.runs.find_unfinished("key") == changed
        assert store.runs.find_unfinished("key", ["one"]) is None
        store.runs.update("one", state=RunState.FINISHED, summary=b"summary")
        assert store.runs.find_unfinished("key") is None
        with pytest.raises(RecordsError, match="run one is finished and cannot become running"):
            store.runs.update("one", state=RunState.RUNNING)
        assert [r.run_id for r in store.runs.list()] == ["one"]
        assert store.runs.get("one").summary == b"summary"
        with pytest.raises(RecordsError, match="no run two"):
            store.runs.update("two", state=RunState.FAILED)

    def test_model_versions_come_latest_first(self, store: Store) -> None:
        """They are found by device type and family; the same version is stored once."""
        add_workload(store)
        versions = [
            ModelVersion(store.blobs.put(bytes([n])), family, DEVICE.digest, "1", n)
            for n, family in enumerate(("conv2d", "dense", "conv2d"))
        ]
        for version in (*versions, versions[0]):
            store.models.add(version)
        assert [m.version for m in store.models.find(DEVICE.digest, "conv2d")] == [versions[2], versions[0]]
        assert len(store.models.find(DEVICE.digest)) == 3
        assert store.models.find("other") == ()

    def test_a_fact_replaces_the_one_before(self, store: Store) -> None:
        """Facts are kept by key and subject."""
        assert store.devices.fact("fans", DEVICE.digest) is None
        others = [("fans", "other"), ("lamps", DEVICE.digest)]
        for key, subject in others:
            store.devices.note_fact(key, subject, [key])
        store.devices.note_fact("fans", DEVICE.digest, {"rpm": 335.0})
        store.devices.note_fact("fans", DEVICE.digest, {"rpm": 340.5})
        for key, subject in others:
            kept = store.devices.fact(key, subject)
            assert kept is not None
            assert (kept.key, kept.subject, kept.value) == (key, subject, [key])
        fact = store.devices.fact("fans", DEVICE.digest)
        assert fact is not None
        assert fact.value == {"rpm": 340.5}

    def test_the_peak_of_a_device_type_is_kept_and_never_made_up(self, store: Store) -> None:
        """A later peak replaces an earlier one; a value that is not a peak is read as None."""
        assert store.devices.peak(DEVICE.digest) is None
        peak = Peak(gflops=335.0, gbytes_per_s=20.0, threads=2, read_gbytes_per_s=25.0)
        store.devices.note_peak(DEVICE.digest, Peak(1.0, 1.0, 1))
        store.devices.note_peak(DEVICE.digest, peak)
        assert store.devices.peak(DEVICE.digest) == peak
        store.devices.note_fact("peak", DEVICE.digest, {"gflops": "many"})
        assert store.devices.peak(DEVICE.digest) is None

    def test_a_transaction_is_kept_whole_or_not_at_all(self, store: Store) -> None:
        """An exception takes back what the block wrote, in inner transactions too."""
        store.runs.create("run", key="key", model_name="model")

        def write(*, fail: bool) -> None:
            with store.transaction():
                store.events.append("run", event(0))
                with store.transaction():
                    store.blobs.put(b"inner")
                assert store.events.count("run") == 1
                if fail:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write(fail=True)
        assert (store.counts().events, store.counts().blobs) == (0, 0)
        write(fail=False)
        assert (store.counts().events, store.counts().blobs) == (1, 1)

    def test_a_failed_statement_ends_its_transaction(self, store: Store) -> None:
        """If the error is caught inside the block, the rest of the transaction is not committed either."""
        workload = add_workload(store)

        def write() -> None:
            with store.transaction():
                store.blobs.put(b"half")
                for of in ("0" * 32, workload):
                    with pytest.raises(RecordsError):
                        store.measurements.add(measurement(of, 0, 1.0))

        with pytest.raises(RecordsError, match="refused a record"):
            write()
        assert store.measurements.find() == []
        with pytest.raises(RecordsError, match="no blob"):
            store.blobs.get(digest_of(b"half"))
        store.measurements.add(measurement(workload, 0, 1.0))
        assert len(store.measurements.find()) == 1

    def test_nothing_is_written_inside_a_snapshot(self, store: Store) -> None:
        """A snapshot only reads, and says what to use instead."""
        with store.snapshot(), pytest.raises(OrderError, match="use transaction"):
            store.blobs.put(b"data")
