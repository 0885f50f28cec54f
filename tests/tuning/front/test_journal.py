"""The journal of tuning jobs, over real records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Options, Strategy
from kintune.core.messages import ItemStatus, Work
from kintune.core.outcome import Outcome, Status
from kintune.core.stage import Demand, Stage
from kintune.core.stage_requests import BuildItem, Built
from kintune.core.stage_results import Pick, Profiled, Selected, StageName, Updated
from kintune.errors import OrderError
from kintune.records import Store
from kintune.testing.journal_suite import JournalSuite
from kintune.tuning.front import run_log
from kintune.tuning.front.journal import TuningJournal
from kintune.workers.engine.journal import JournalEntry
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_journals import (
    COMPILER,
    FEATURES,
    SPEC_DEVICE,
    ToyJournals,
    item_of,
    kin_space,
    preparation,
    work_of,
)
from tests.support.toy_runs import ended
from tests.support.toy_tools import ToyTools, toy_space, toy_spec


class TestContract(JournalSuite):
    @pytest.fixture(autouse=True)
    def _records(self, tmp_path: Path) -> Iterator[None]:
        self.place = tmp_path / "records.sqlite"
        self.stores: list[Store] = []
        yield
        for store in self.stores:
            store.close()

    def make(self) -> TuningJournal:
        journal = self._open()
        for run in (self.job, self.other_job):
            self.stores[-1].runs.create(run, key=run, model_name="toy")
        self._enter(journal)
        return journal

    def reopen(self, journal: object) -> TuningJournal:
        del journal
        self.stores.pop().close()
        again = self._open()
        self._enter(again)
        return again

    def _open(self) -> TuningJournal:
        self.stores.append(Store.open(self.place))
        return TuningJournal(self.stores[-1], FEATURES)

    def _enter(self, journal: TuningJournal) -> None:
        for run in (self.job, self.other_job):
            journal.enter(toy_spec(run_id=run), COMPILER, use_known=True)


def test_a_job_must_be_entered_first(desk: ToyJournals) -> None:
    with pytest.raises(OrderError, match="job x was not entered"):
        TuningJournal(desk.store, FEATURES).history("x")


class TestFacts:
    """What lies in the records after a whole run, against what the run was."""

    @pytest.fixture
    def rehearsal(self, desk: ToyJournals) -> Rehearsal:
        return Rehearsal(ToyTools, toy_spec(), journal=desk.journal(toy_spec())).run()

    def test_every_outcome_is_a_measurement(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        found = {m.candidate.digest: m for m in desk.store.measurements.find()}
        for profiled in rehearsal.outcomes(StageName.PROFILE):
            assert found[profiled.candidate].outcome == profiled.outcome
        for confirmed in rehearsal.outcomes(StageName.CONFIRM):
            assert found[confirmed.candidate].confirmed == confirmed.outcome

    def test_a_measurement_knows_where_it_comes_from(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        found = {m.candidate: m for m in desk.store.measurements.find(run_id="run")}
        picks = [pick for selected in rehearsal.selections for pick in selected.picks]
        assert {pick.candidate for pick in picks} <= found.keys()
        for pick in picks:
            measurement = found[pick.candidate]
            assert (measurement.origin, measurement.features) == (pick.origin, pick.features)
            assert measurement.predicted == pick.predicted
            assert measurement.feature_version == (FEATURES if pick.features else "")
            assert (measurement.device_type, measurement.compiler) == (toy_spec().device_type.digest, COMPILER)

    def test_the_network_is_described(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        assert rehearsal.finished is not None
        prepared = ToyTools().prepare(toy_spec())
        counts = desk.store.counts()
        assert (counts.workloads, counts.sketches) == (len(prepared.subgraphs), len(prepared.sketches))
        run = desk.store.runs.get("run")
        assert run.model_digest == prepared.model_digest
        assert run.active_seconds == rehearsal.history[-1].at

    def test_models_are_kept_by_name_and_their_bytes_once(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        assert rehearsal.counts(StageName.UPDATE) > 0
        assert desk.store.counts().model_versions > 0

    def test_built_programs_are_not_kept(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        builds = [event for event in rehearsal.history if event.kind == StageName.BUILD]
        assert builds
        assert all(b"library" not in event.payload for event in builds)

    def test_records_are_whole(self, desk: ToyJournals, rehearsal: Rehearsal) -> None:
        assert rehearsal.finished is not None
        assert desk.store.check() == []


class TestFailures:
    """A process that is gone answers nothing; what that means for its candidate is said here."""

    @pytest.mark.parametrize(
        ("kind", "status", "expected"),
        [
            (StageName.BUILD, ItemStatus.CRASHED, Status.BUILD_FAILED),
            (StageName.BUILD, ItemStatus.FAILED, Status.BUILD_FAILED),
            (StageName.BUILD, ItemStatus.TIMED_OUT, Status.BUILD_TIMED_OUT),
            (StageName.PROFILE, ItemStatus.CRASHED, Status.RUN_FAILED),
            (StageName.PROFILE, ItemStatus.TIMED_OUT, Status.RUN_TIMED_OUT),
            (StageName.CONFIRM, ItemStatus.CRASHED, Status.RUN_FAILED),
        ],
    )
    def test_they_become_outcomes(self, desk: ToyJournals, kind: str, status: ItemStatus, expected: Status) -> None:
        journal = desk.journal(toy_spec())
        journal.commit("run", preparation())
        candidate = toy_space().rules("w0", 1)[0]
        journal.watch("run", work_of(StageName.BUILD, BuildItem(candidate)))
        journal.watch("run", work_of(kind, item_of(kind, candidate)))
        (event,) = journal.commit("run", JournalEntry(1.0, kind, 0, kind, 0, status, b"", cause="killed by SIGSEGV"))
        (measurement,) = desk.store.measurements.find()
        assert measurement.outcome == Outcome(expected, cause="killed by SIGSEGV")
        if kind == StageName.BUILD:
            assert msgspec.msgpack.decode(event.payload, type=Built).failure == measurement.outcome
        else:
            assert msgspec.msgpack.decode(event.payload, type=Profiled).outcome == measurement.outcome

    @pytest.mark.parametrize("kind", [StageName.PREPARE, StageName.SELECT, StageName.UPDATE, StageName.PACKAGE])
    def test_of_stages_of_the_job_leave_no_fact(self, desk: ToyJournals, kind: str) -> None:
        journal = desk.journal(toy_spec())
        (event,) = journal.commit("run", JournalEntry(1.0, kind, 0, kind, 0, ItemStatus.FAILED, b"", cause="no memory"))
        assert (event.status, event.cause, event.payload) == (ItemStatus.FAILED, "no memory", b"")
        assert desk.store.counts().measurements == 0

    def test_an_entry_whose_facts_cannot_be_kept_is_not_there(self, desk: ToyJournals) -> None:
        journal = desk.journal(toy_spec())
        strange = JournalEntry(1.0, "select-0", 0, StageName.SELECT, 0, ItemStatus.OK, b"\xc1")
        with pytest.raises(msgspec.MsgspecError):
            journal.commit("run", strange)
        assert journal.history("run") == []
        assert journal.commit("run", preparation())[0].seq == 0


def test_the_peak_of_a_device_is_measured_by_one_run_and_told_to_the_next(desk: ToyJournals) -> None:
    prospect = Options(trials=12, strategy=Strategy(round_size=6, foresee_size=3, budget="prospect"))
    first, second = (toy_spec(prospect, run_id=name) for name in ("first", "second"))
    measured = Rehearsal(ToyTools, first, journal=desk.journal(first)).run()
    assert measured.counts(StageName.PEAK) == 1
    assert desk.store.devices.peak(SPEC_DEVICE) == Cast().peak()
    fresh = Rehearsal(ToyTools, second, journal=desk.journal(second, use_known=False)).run()
    assert fresh.counts(StageName.PEAK) == 0
    assert ended(fresh).packaged is not None


class TestResuming:
    """The law of the job, once more through the records: cut anywhere, the run decides as if it had not been."""

    @pytest.mark.parametrize("cut", range(1, 60, 8))
    def test_nothing_is_lost_or_doubled(self, desk: ToyJournals, cut: int) -> None:
        options = Options(trials=15, strategy=Strategy(round_size=6, foresee_size=3))

        def kill(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) >= cut:
                rehearsal.kill()

        whole = Rehearsal(ToyTools, toy_spec(options)).run()
        first = Rehearsal(ToyTools, toy_spec(options), journal=desk.journal(toy_spec(options)), interfere=kill).run()
        again = Rehearsal(ToyTools, toy_spec(options), journal=desk.journal(toy_spec(options))).run()
        assert first.finished is None
        assert again.finished is not None
        assert again.picks == whole.picks
        assert max((first.timed + again.timed).values()) == 1
        assert [event.seq for event in again.history] == list(range(len(again.history)))

    def test_what_was_taught_is_not_forgotten(self, desk: ToyJournals, tmp_path: Path) -> None:
        """The same for a run that started from kin, cut in the middle."""
        options = Options(trials=20, strategy=Strategy(round_size=6, foresee_size=3))
        space = kin_space()
        whole: Rehearsal | None = None
        for cut in (None, 20, 50):
            with Store.open(tmp_path / f"{cut}.sqlite") as store:
                first = toy_spec(run_id="first")
                here = ToyJournals(store)
                Rehearsal(lambda: ToyTools(space=space), first, Cast(space), journal=here.journal(first)).run()

                def kill(rehearsal: Rehearsal, cut: int | None = cut) -> None:
                    if cut is not None and len(rehearsal.history) >= cut:
                        rehearsal.kill()

                again = Rehearsal(ToyTools, toy_spec(options), journal=here.journal(toy_spec(options)), interfere=kill)
                again.run()
                if cut is None:
                    whole = again
                    continue
                again = Rehearsal(ToyTools, toy_spec(options), journal=here.journal(toy_spec(options))).run()
                assert whole is not None
                assert again.picks == whole.picks
                assert ended(again).knowledge == ended(whole).knowledge


def test_a_cast_is_what_a_worker_answers() -> None:
    """The stand-in for workers keeps to what real ones say."""
    assert Cast().time(Candidate("w0", UNTUNED, ()), StageName.PROFILE).ok


class TestRoundsInFlight:
    SPEC = msgspec.structs.replace(toy_spec(), inflight=2)

    def test_what_was_picked_is_known_until_it_is_measured(self, desk: ToyJournals) -> None:
        rehearsal = Rehearsal(ToyTools, self.SPEC, journal=desk.journal(self.SPEC)).run()
        found = {m.candidate: m for m in desk.store.measurements.find(run_id="run")}
        for selected in rehearsal.selections:
            for pick in selected.picks:
                assert (found[pick.candidate].features, found[pick.candidate].origin) == (pick.features, pick.origin)

    def test_also_when_the_front_was_killed_in_between(self, desk: ToyJournals) -> None:
        def die(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) == 40:
                rehearsal.kill()

        Rehearsal(ToyTools, self.SPEC, journal=desk.journal(self.SPEC), interfere=die).run()
        rehearsal = Rehearsal(ToyTools, self.SPEC, journal=desk.journal(self.SPEC)).run()
        assert ended(rehearsal).trials == 40
        found = {m.candidate: m for m in desk.store.measurements.find(run_id="run")}
        picks = [pick for selected in rehearsal.selections for pick in selected.picks]
        assert all(found[pick.candidate].features == pick.features for pick in picks)


def test_a_candidate_may_be_timed_by_two_stages(desk: ToyJournals) -> None:
    """A job's process dies; the stage that it offered goes on, and its successor offers the rest of it once more."""
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    candidate = toy_space().rules("w0", 1)[0]
    item = msgspec.msgpack.encode(item_of(StageName.PROFILE, candidate))
    journal.watch("run", work_of(StageName.BUILD, BuildItem(candidate)))
    stages = ("profile-1", "profile-1.2")
    for stage in stages:
        work = Work(Stage(stage, "run", StageName.PROFILE, Demand()), "device", b"", (item,), 1.0)
        journal.watch("run", work)
    payload = msgspec.msgpack.encode(Outcome(Status.OK, (5.0,)))
    for at, stage in enumerate(stages):
        journal.commit("run", JournalEntry(float(at), stage, 0, StageName.PROFILE, 0, ItemStatus.OK, payload))
    (measurement,) = desk.store.measurements.find()
    assert measurement.believed_us == 5.0


@pytest.mark.parametrize("again", [True, False])
def test_a_finalist_is_known_however_many_were_built_since(
    desk: ToyJournals, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Whether it is built once more at the end, or was kept by the job."""
    monkeypatch.setattr(run_log, "_REMEMBERED", 2)
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    first, *others = toy_space().rules("w0", 4)

    def time(kind: str, at: float) -> None:
        item = msgspec.msgpack.encode(item_of(kind, first))
        journal.watch("run", Work(Stage(kind, "run", kind, Demand()), "device", b"", (item,), 1.0))
        payload = msgspec.msgpack.encode(Outcome(Status.OK, (5.0,)))
        journal.commit("run", JournalEntry(at, kind, 0, kind, 0, ItemStatus.OK, payload))

    journal.watch("run", work_of(StageName.BUILD, BuildItem(first)))
    time(StageName.PROFILE, 1.0)
    for other in others[:1] if again else others:
        journal.watch("run", work_of(StageName.BUILD, BuildItem(other)))
    if again:
        journal.watch("run", work_of(StageName.BUILD, BuildItem(first), *map(BuildItem, others[1:2])))
    time(StageName.CONFIRM, 2.0)
    (measurement,) = desk.store.measurements.find()
    assert measurement.candidate == first
    assert measurement.confirmed is not None


def test_what_was_compiled_for_the_check_is_known_when_it_is_timed_at_the_end(
    desk: ToyJournals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of a subgraph that is not searched was never timed before, and the job keeps it built."""
    monkeypatch.setattr(run_log, "_REMEMBERED", 2)
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    drafted, *others = toy_space().rules("w0", 4)
    journal.watch("run", work_of(StageName.BUILD, BuildItem(drafted)))
    select(journal, 0, *others)
    journal.watch("run", work_of(StageName.BUILD, *map(BuildItem, others)))
    journal.watch("run", work_of(StageName.CONFIRM, item_of(StageName.CONFIRM, drafted)))
    journal.commit("run", timing(StageName.CONFIRM))
    (measurement,) = desk.store.measurements.find()
    assert (measurement.candidate, measurement.believed_us) == (drafted, 5.0)


def test_a_damaged_measurement_does_not_end_the_run_that_confirms_it(desk: ToyJournals) -> None:
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    candidate = toy_space().rules("w0", 1)[0]
    journal.watch("run", work_of(StageName.BUILD, BuildItem(candidate)))
    for kind in (StageName.PROFILE, StageName.CONFIRM):
        journal.watch("run", work_of(kind, item_of(kind, candidate)))
        (event,) = journal.commit("run", timing(kind))
        assert msgspec.msgpack.decode(event.payload, type=Profiled).outcome.median_us == 5.0
        with desk.store.transaction() as connection:
            connection.execute(text("UPDATE measurements SET cause = 'x'"))
    (damage,) = desk.store.check()
    assert damage.table == "measurements"


def test_a_round_that_stays_open_while_others_end_is_known_after_a_restart(desk: ToyJournals) -> None:
    journal = desk.journal(toy_spec())
    journal.commit("run", preparation())
    oldest, *others = toy_space().rules("w0", 5)
    for number, candidate in enumerate((oldest, *others)):
        select(journal, number, candidate)
    again = desk.journal(toy_spec())
    again.history("run")
    again.watch("run", work_of(StageName.BUILD, BuildItem(oldest)))
    again.watch("run", work_of(StageName.PROFILE, item_of(StageName.PROFILE, oldest)))
    again.commit("run", timing(StageName.PROFILE))
    (measurement,) = desk.store.measurements.find()
    assert (measurement.features, measurement.origin) == (ONE_FEATURE, "evolved")


ONE_FEATURE = b"\x00\x00\x80?"


def select(journal: TuningJournal, number: int, *candidates: Candidate) -> None:
    """Commit that a round has selected these."""
    picks = tuple(Pick(candidate, "evolved", 0.5, ONE_FEATURE) for candidate in candidates)
    payload = msgspec.msgpack.encode(Selected(number, picks))
    stage = f"{StageName.SELECT}-{number}"
    journal.commit("run", JournalEntry(1.0, stage, 0, StageName.SELECT, 0, ItemStatus.OK, payload))


def timing(kind: str) -> JournalEntry:
    """The entry that the first program of a stage takes 5 us."""
    payload = msgspec.msgpack.encode(Outcome(Status.OK, (5.0,)))
    return JournalEntry(2.0, kind, 0, kind, 0, ItemStatus.OK, payload)


class TestModels:
    """A job that is opened again has the models that it had."""

    def history(self, desk: ToyJournals) -> list[Updated]:
        Rehearsal(ToyTools, toy_spec(), journal=desk.journal(toy_spec())).run()
        events = desk.journal(toy_spec()).history("run")
        return [msgspec.msgpack.decode(e.payload, type=Updated) for e in events if e.kind == StageName.UPDATE]

    def test_the_latest_of_each_family_is_handed_back(self, desk: ToyJournals) -> None:
        updates = self.history(desk)
        versions = [version for updated in updates for version in updated.versions]
        latest = {version.family: version.blob for version in versions}
        handed = {digest: blob for updated in updates for digest, blob in updated.blobs.items()}
        assert handed.keys() == set(latest.values())
        assert len(versions) > len(latest)

    def test_one_that_is_lost_is_left_out(self, desk: ToyJournals) -> None:
        lost = next(iter(self.history(desk)[-1].blobs))
        with desk.store.transaction() as connection:
            connection.execute(text("UPDATE blobs SET bytes = 'x' WHERE digest = :digest"), {"digest": lost})
        assert all(lost not in updated.blobs for updated in self.read_again(desk))

    def read_again(self, desk: ToyJournals) -> list[Updated]:
        events = desk.journal(toy_spec()).history("run")
        return [msgspec.msgpack.decode(e.payload, type=Updated) for e in events if e.kind == StageName.UPDATE]
