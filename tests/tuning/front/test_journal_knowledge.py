"""What the journal tells a job of what was measured before."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from sqlalchemy import text, update

from kintune.core.candidate import UNTUNED
from kintune.core.config import JobSpec, Options, Strategy
from kintune.core.knowledge import Knowledge
from kintune.core.messages import ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_results import KnownCandidate, Prepared, StageName, Summary, Taught
from kintune.records import RunState, Store
from kintune.records.schema import runs
from kintune.tuning.front.journal import TuningJournal
from kintune.workers.engine.journal import JournalEntry
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_journals import (
    COMPILER,
    SPEC_DEVICE,
    ToyJournals,
    commit_timing,
    item_of,
    kin_space,
    known_to,
    preparation,
    work_of,
)
from tests.support.toy_runs import ended
from tests.support.toy_tools import ToyTools, toy_space, toy_spec

_MEASURED = (StageName.PROFILE, StageName.CONFIRM)


FIRST = toy_spec(run_id="first")


def run_first(desk: ToyJournals) -> Rehearsal:
    return Rehearsal(ToyTools, FIRST, journal=desk.journal(FIRST)).run()


def run_kin(desk: ToyJournals) -> Rehearsal:
    """A run of another network."""
    space = kin_space()
    return Rehearsal(lambda: ToyTools(space=space), FIRST, Cast(space), journal=desk.journal(FIRST)).run()


class Recorded(NamedTuple):
    """A run, and the records after it, of which each test has a copy."""

    run: Rehearsal
    records: Path

    @classmethod
    def of(cls, run: Callable[[ToyJournals], Rehearsal], folder: Path) -> Recorded:
        with Store.open(folder / "records.sqlite") as store:
            return cls(run(ToyJournals(store)), folder / "records.sqlite")

    def desk(self, folder: Path) -> Iterator[ToyJournals]:
        with Store.open(Path(shutil.copy(self.records, folder))) as store:
            yield ToyJournals(store)


@pytest.fixture(scope="module")
def after_first(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded.of(run_first, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def after_kin(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded.of(run_kin, tmp_path_factory.mktemp("kin"))


def test_what_is_measured_after_a_run_was_entered_may_be_hidden_from_it(desk: ToyJournals) -> None:
    hidden: set[str] = set()
    journal = desk.journal(toy_spec(), hidden=lambda: hidden)
    run_first(desk)
    hidden.add("first")
    assert known_to(journal) == ()


class TestKnown:
    """What the first run measured."""

    @pytest.fixture
    def first(self, after_first: Recorded) -> Rehearsal:
        return after_first.run

    @pytest.fixture
    def desk(self, after_first: Recorded, tmp_path: Path) -> Iterator[ToyJournals]:
        yield from after_first.desk(tmp_path)

    def test_the_next_run_is_told_what_the_first_measured(self, desk: ToyJournals, first: Rehearsal) -> None:
        known = known_to(desk.journal(toy_spec()))
        told = {fact.candidate.digest: fact for fact in known}
        assert told.keys() == {p.candidate for kind in _MEASURED for p in first.outcomes(kind)}
        assert not any(fact.suggestion for fact in known)
        confirmed = {p.candidate: p.outcome for p in first.outcomes(StageName.CONFIRM)}
        assert {digest: fact.confirmed for digest, fact in told.items() if fact.confirmed} == confirmed

    def test_it_measures_nothing_twice(self, desk: ToyJournals, first: Rehearsal) -> None:
        spec = toy_spec(run_id="second")
        second = Rehearsal(ToyTools, spec, journal=desk.journal(spec)).run()
        assert second.finished is not None
        summary = msgspec.msgpack.decode(second.finished.summary, type=Summary)
        assert summary.reused == len({digest for _, digest in first.timed})
        assert not {d for kind, d in second.timed if kind == "profile"} & {d for _, d in first.timed}
        timed = {digest for _, digest in [*first.timed, *second.timed]}
        unbuilt = [f.count for f in desk.store.measurements.failures() if f.status is Status.BUILD_TIMED_OUT]
        assert desk.store.counts().measurements == len(timed) + sum(unbuilt)

    def test_fresh_is_told_nothing(self, desk: ToyJournals) -> None:
        assert known_to(desk.journal(toy_spec(), use_known=False)) == ()

    def test_of_another_compiler_it_is_told_the_best_few_as_suggestions(
        self, desk: ToyJournals, first: Rehearsal
    ) -> None:
        known = known_to(desk.journal(toy_spec(), compiler="tvm 1"))
        assert known
        assert all(fact.suggestion for fact in known)
        assert all(fact.candidate.sketch != UNTUNED for fact in known)
        assert len(known) < len(first.timed)

    def test_of_other_operands_it_is_told_suggestions_and_measures_for_itself(self, desk: ToyJournals) -> None:
        """A network whose weights stay in the last cache is timed with them there."""
        spec = msgspec.structs.replace(toy_spec(run_id="small"), cool_bytes=1 << 20)
        journal = desk.journal(spec)
        known = known_to(journal, spec.run_id)
        assert known
        assert all(fact.suggestion for fact in known)
        spec = msgspec.structs.replace(spec, run_id="smaller")
        again = Rehearsal(ToyTools, spec, journal=desk.journal(spec)).run()
        cool = spec.device_type.with_operands("cool").digest
        assert {m.device_type for m in desk.store.measurements.find(run_id="smaller")} == {cool}
        assert desk.store.models.find(cool)
        assert ended(again).trials == 40

    def test_features_of_another_version_are_left_out(self, desk: ToyJournals) -> None:
        spec = toy_spec()
        desk.journal(spec)
        journal = TuningJournal(desk.store, "another version")
        journal.enter(spec, COMPILER, use_known=True)
        assert not any(fact.features for fact in known_to(journal))

    def test_a_run_that_goes_on_is_told_what_it_was_told_at_first(self, desk: ToyJournals, first: Rehearsal) -> None:
        told = known_to(desk.journal(toy_spec()))
        fact = next(fact for fact in told if fact.confirmed is None and fact.outcome.ok)
        device = toy_spec().device_type.digest
        desk.store.measurements.confirm(device, COMPILER, fact.candidate, Outcome(Status.OK, (1e6,)))
        assert first.finished is not None
        event = desk.journal(toy_spec()).history("run")[1]
        assert event.kind == StageName.KNOWN
        assert msgspec.msgpack.decode(event.payload, type=tuple[KnownCandidate, ...]) == told

    def test_what_was_told_of_a_network_is_told_alike_after_another_lowering(self, desk: ToyJournals) -> None:
        """Lowered without layout conversion, it has other subgraphs."""
        journal, entry = desk.journal(toy_spec()), preparation()
        told = journal.commit("run", entry)[1]
        prepared = msgspec.msgpack.decode(entry.payload, type=Prepared)
        lowered = msgspec.structs.replace(prepared, subgraphs=prepared.subgraphs[1:])
        journal.commit("run", msgspec.structs.replace(entry, payload=msgspec.msgpack.encode(lowered)))
        assert desk.journal(toy_spec()).history("run")[1] == told

    def test_no_look_up_follows_a_preparation_that_failed(self, desk: ToyJournals) -> None:
        journal = desk.journal(toy_spec())
        failed = JournalEntry(1.0, "prepare", 0, StageName.PREPARE, 0, ItemStatus.FAILED, b"", cause="no")
        assert len(journal.commit("run", failed)) == 1


class TestKin:
    """What the records know of other workloads with the same core operators, told once, and told alike ever after."""

    SPEC = toy_spec(run_id="kin")

    @pytest.fixture
    def desk(self, after_kin: Recorded, tmp_path: Path) -> Iterator[ToyJournals]:
        yield from after_kin.desk(tmp_path)

    def taught(self, desk: ToyJournals, spec: JobSpec = SPEC, *, use_known: bool = True) -> Taught:
        kin = desk.journal(spec, use_known=use_known).commit(spec.run_id, preparation())[2]
        assert kin.kind == StageName.KIN
        return msgspec.msgpack.decode(kin.payload, type=Taught)

    def test_the_next_run_is_told_of_kin(self, desk: ToyJournals) -> None:
        taught = self.taught(desk)
        assert {program.subject.workload for program in taught.knowledge.programs} == {"k0", "k1"}
        assert {model.version.family for model in taught.knowledge.models} == {"op:dense0", "op:dense1"}
        assert taught.lost == 0

    def test_where_others_were_timed_with_other_operands_they_still_teach(self, desk: ToyJournals) -> None:
        small = msgspec.structs.replace(self.SPEC, run_id="small", cool_bytes=1 << 20)
        assert self.taught(desk, small).knowledge == self.taught(desk).knowledge

    def test_a_run_that_wants_none_is_told_nothing(self, desk: ToyJournals) -> None:
        assert self.taught(desk, use_known=False) == Taught(Knowledge())
        without = msgspec.structs.replace(self.SPEC.options, kin=False)
        assert self.taught(desk, toy_spec(without, run_id="none")) == Taught(Knowledge())

    def test_history_tells_it_again(self, desk: ToyJournals) -> None:
        """Also after its programs were timed again, and better ones were found."""
        taught = self.taught(desk)
        best = taught.knowledge.programs[0].candidate
        desk.store.measurements.confirm(SPEC_DEVICE, COMPILER, best, Outcome(Status.OK, (1e6,)))
        event = desk.journal(self.SPEC).history("kin")[2]
        assert msgspec.msgpack.decode(event.payload, type=Taught) == taught

    def test_what_is_gone_meanwhile_is_counted(self, desk: ToyJournals) -> None:
        taught = self.taught(desk)
        version = taught.knowledge.models[0].version
        with desk.store.transaction() as connection:
            connection.execute(text("UPDATE blobs SET bytes = 'x' WHERE digest = :d"), {"d": version.blob})
        again = msgspec.msgpack.decode(desk.journal(self.SPEC).history("kin")[2].payload, type=Taught)
        assert again.lost == 1
        assert again.knowledge == msgspec.structs.replace(taught.knowledge, models=taught.knowledge.models[1:])

    def test_a_kin_run_starts_where_the_first_one_ended(self, desk: ToyJournals) -> None:
        """Few trials bring no less than without."""
        options = Options(trials=9, strategy=Strategy(round_size=6, foresee_size=3))
        spec = toy_spec(options, run_id="warm")
        warm = ended(Rehearsal(ToyTools, spec, journal=desk.journal(spec)).run())
        cold = ended(Rehearsal(ToyTools, toy_spec(options)).run())
        assert warm.knowledge.programs == 6
        assert warm.knowledge.models == 2
        assert warm.knowledge.measured > 0
        assert warm.reused == 0
        assert warm.kernels_ms <= cold.kernels_ms * 1.02


class TestDoubt:
    """Failures that say nothing of a candidate are tried again; what runs then is believed."""

    @pytest.mark.parametrize(
        ("cause", "state", "believed"),
        [
            ("killed by SIGSEGV", RunState.FINISHED, True),
            ("killed by SIGSEGV", RunState.FAILED, False),
            ("killed by SIGKILL", RunState.FINISHED, False),
            ("killed by SIGTERM", RunState.FINISHED, False),
            ("killed by SIGHUP", RunState.FINISHED, False),
            ("killed by SIGINT", RunState.FINISHED, False),
            ("BuildError: cannot link: final link failed: No space left on device", RunState.FINISHED, False),
            ("OSError: [Errno 24] Too many open files", RunState.FINISHED, False),
            ("BlockingIOError: [Errno 11] Resource temporarily unavailable", RunState.FINISHED, False),
            ("no reference: the untuned program could not be built", RunState.FINISHED, False),
        ],
    )
    def test_what_is_told(self, desk: ToyJournals, cause: str, state: RunState, believed: bool) -> None:
        commit_timing(desk.journal(toy_spec(run_id="first")), "first", ItemStatus.CRASHED, b"", cause)
        desk.store.runs.update("first", state=state)
        assert len(known_to(desk.journal(toy_spec()))) == believed

    @pytest.mark.parametrize(
        ("status", "cause"),
        [
            (ItemStatus.CRASHED, "killed by SIGKILL"),
            (ItemStatus.CRASHED, "killed by SIGSEGV"),
            (ItemStatus.FAILED, "OSError: [Errno 24] Too many open files"),
        ],
    )
    def test_a_worker_that_dies_while_it_confirms_condemns_nobody(
        self, desk: ToyJournals, status: ItemStatus, cause: str
    ) -> None:
        fast = msgspec.msgpack.encode(Outcome(Status.OK, (5.0,)))
        journal = desk.journal(toy_spec(run_id="first"))
        commit_timing(journal, "first", ItemStatus.OK, fast, "")
        candidate = toy_space().rules("w0", 1)[0]
        journal.watch("first", work_of(StageName.CONFIRM, item_of(StageName.CONFIRM, candidate)))
        died = JournalEntry(2.0, StageName.CONFIRM, 0, StageName.CONFIRM, 0, status, b"", cause=cause)
        journal.commit("first", died)
        desk.store.runs.update("first", state=RunState.FINISHED)
        (known,) = known_to(desk.journal(toy_spec()))
        assert (known.outcome.median_us, known.confirmed) == (5.0, None)
        (measurement,) = desk.store.measurements.find()
        assert measurement.believed_us == 5.0

    def test_what_does_not_run_when_it_is_confirmed_is_not_believed(self, desk: ToyJournals) -> None:
        fast = msgspec.msgpack.encode(Outcome(Status.OK, (5.0,)))
        journal = desk.journal(toy_spec(run_id="first"))
        commit_timing(journal, "first", ItemStatus.OK, fast, "")
        candidate = toy_space().rules("w0", 1)[0]
        journal.watch("first", work_of(StageName.CONFIRM, item_of(StageName.CONFIRM, candidate)))
        wrong = msgspec.msgpack.encode(Outcome(Status.WRONG_RESULT, cause="not finite"))
        journal.commit("first", JournalEntry(2.0, StageName.CONFIRM, 0, StageName.CONFIRM, 0, ItemStatus.OK, wrong))
        (measurement,) = desk.store.measurements.find()
        assert measurement.believed_us == float("inf")

    def test_a_damaged_run_is_not_asked(self, desk: ToyJournals) -> None:
        commit_timing(desk.journal(toy_spec(run_id="first")), "first", ItemStatus.CRASHED, b"", "killed by SIGSEGV")
        journal = desk.journal(toy_spec())
        with desk.store.transaction() as connection:
            connection.execute(update(runs).where(runs.c.run_id == "first").values(key="torn"))
        assert known_to(journal) == ()

    def test_a_later_success_counts(self, desk: ToyJournals) -> None:
        commit_timing(desk.journal(toy_spec(run_id="first")), "first", ItemStatus.CRASHED, b"", "killed by SIGKILL")
        timed = Outcome(Status.OK, (7.0,))
        commit_timing(desk.journal(toy_spec()), "run", ItemStatus.OK, msgspec.msgpack.encode(timed), "")
        (measurement,) = desk.store.measurements.find()
        assert measurement.believed_us == 7.0
        (known,) = known_to(desk.journal(toy_spec(run_id="third")), "third")
        assert known.confirmed == timed
