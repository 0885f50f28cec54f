"""A tuning job that is cut or loses its process decides as if it had not.

The fast tests cut it at every fifth place and near its end, the slow ones everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec, Options
from kintune.core.knowledge import Knowledge
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import Built
from kintune.core.stage_results import Prepared, StageName, Summary, Updated
from kintune.search import session
from kintune.search.family import Samples
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import BUILD_FAILED, KNOWLEDGE, ended, profiled, with_limits
from tests.support.toy_tools import ToyTools, toy_spec

SHORT = with_limits(trials=24)

everywhere = pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
"""At every so many places of a run."""

_NEAR_THE_END = 6  # events: the network is confirmed, packaged and compared


@pytest.fixture(scope="module")
def uninterrupted() -> Rehearsal:
    return Rehearsal(ToyTools, SHORT, _Rough(), journal=PlainJournal(knowledge=KNOWLEDGE)).run()


class TestResuming:
    """The same events, the same decisions, wherever the history was cut."""

    @everywhere
    def test_a_run_that_is_cut_anywhere_decides_as_if_it_had_not_been(
        self, uninterrupted: Rehearsal, every: int
    ) -> None:
        expected = ended(uninterrupted)
        for cut in (0, *_places(3, uninterrupted, every)):  # the first three events are one commit
            journal = PlainJournal(uninterrupted.history[:cut], knowledge=KNOWLEDGE)
            again = Rehearsal(ToyTools, SHORT, _Rough(), journal=journal).run()
            assert again.picks == uninterrupted.picks, f"cut after {cut} events"
            assert _decided(ended(again)) == _decided(expected), f"cut after {cut} events"
            assert max(profiled(again).values()) == 1, f"cut after {cut} events"

    @everywhere
    def test_a_process_that_is_lost_anywhere_changes_no_decision(self, uninterrupted: Rehearsal, every: int) -> None:
        expected = ended(uninterrupted)
        for lost_at in _places(1, uninterrupted, every):

            def lose(rehearsal: Rehearsal, lost_at: int = lost_at) -> None:
                if len(rehearsal.history) == lost_at:
                    rehearsal.kill_process()

            journal = PlainJournal(knowledge=KNOWLEDGE)
            again = Rehearsal(ToyTools, SHORT, _Rough(), journal=journal, interfere=lose).run()
            assert again.picks == uninterrupted.picks, f"lost after {lost_at} events"
            assert _decided(ended(again)) == _decided(expected), f"lost after {lost_at} events"
            assert max(profiled(again).values()) == max(again.timed.values()) == 1, f"lost after {lost_at} events"
            assert again.counts(StageName.SELECT) == uninterrupted.counts(StageName.SELECT)
            assert again.counts(StageName.PROVE) == 1

    def test_files_that_are_gone_are_written_again(self, uninterrupted: Rehearsal) -> None:
        packaged = next(i for i, e in enumerate(uninterrupted.history) if e.kind == StageName.PACKAGE)
        for cut in (packaged + 1, packaged + 2):
            history = uninterrupted.history[:cut]
            kept = Rehearsal(ToyTools, SHORT, _Rough(), journal=PlainJournal(history)).run()
            lost = Rehearsal(lambda: ToyTools(keeps=False), SHORT, _Rough(), journal=PlainJournal(history)).run()
            assert kept.counts(StageName.PACKAGE) == 1
            assert lost.counts(StageName.PACKAGE) == 2
            assert lost.history[-1].kind == StageName.PROVE

    def test_a_run_does_not_go_on_with_another_network(self, uninterrupted: Rehearsal) -> None:
        for change in ({"model_digest": "another"}, {"sketches": ()}, {"subgraphs": ()}):
            journal = PlainJournal(uninterrupted.history[:40], knowledge=KNOWLEDGE)
            again = Rehearsal(lambda change=change: _Changed(change), SHORT, _Rough(), journal=journal).run()
            assert len(again.history) == 40
            assert again.finished is not None
            assert again.finished.failed
            assert "another network than when this run began" in again.finished.reason

    def test_what_was_only_compiled_is_compiled_again_where_it_is_gone(self) -> None:
        def interrupt(rehearsal: Rehearsal) -> None:
            if rehearsal.history[-1].kind == StageName.CHECK:
                rehearsal.kill()

        wanted = toy_spec(Options(trials=None, search=False))
        first = Rehearsal(ToyTools, wanted, interfere=interrupt).run()
        for keeps, drafts in ((True, 1), (False, 2)):
            journal = PlainJournal(first.history)
            again = Rehearsal(lambda keeps=keeps: ToyTools(keeps=keeps), wanted, journal=journal).run()
            assert again.counts(StageName.DRAFT) == drafts
            assert again.counts(StageName.CHECK) == 1
            assert ended(again).packaged is not None

    def test_a_run_interrupted_while_confirming_goes_on_searching(self) -> None:
        """A second Ctrl-C near the end: what was confirmed stays so, and the budget that is left is used."""

        def stop_then_kill(rehearsal: Rehearsal) -> None:
            if rehearsal.counts(StageName.PROFILE) == 10:
                rehearsal.stop()
            if rehearsal.counts(StageName.CONFIRM) == 2:
                rehearsal.kill()

        first = Rehearsal(ToyTools, toy_spec(), interfere=stop_then_kill).run()
        assert first.finished is None
        again = Rehearsal(ToyTools, toy_spec(), journal=PlainJournal(first.history)).run()
        summary = ended(again)
        assert (summary.reason, summary.trials) == ("trials", 40)
        assert max(profiled(again).values()) == 1


class TestFamiliesThatChange:
    """An update may move subgraphs to other families; that is an event like any other."""

    @pytest.fixture(autouse=True)
    def _found_from_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session, "families", lambda *_, **__: _BySamples())

    def test_the_summary_names_the_last_ones(self) -> None:
        rehearsal = Rehearsal(ToyTools, SHORT).run()
        updates = [e for e in rehearsal.history if e.kind == StageName.UPDATE]
        moves = [msgspec.msgpack.decode(e.payload, type=Updated).families for e in updates]
        assert sum(map(bool, moves)) > 1
        last = {workload: key for moved in moves for workload, key in moved.items()}
        assert {end.workload: end.family for end in ended(rehearsal).subgraphs if end.workload in last} == last

    @pytest.mark.parametrize("knowledge", [None, KNOWLEDGE])
    def test_a_run_that_is_cut_decides_as_if_it_had_not_been(self, knowledge: Knowledge | None) -> None:
        whole = Rehearsal(ToyTools, SHORT, _Rough(), journal=PlainJournal(knowledge=knowledge)).run()
        updates = [i + 1 for i, e in enumerate(whole.history) if e.kind == StageName.UPDATE]
        for cut in (*updates, updates[0] - 1, updates[-1] + 2):
            journal = PlainJournal(whole.history[:cut], knowledge=knowledge)
            again = Rehearsal(ToyTools, SHORT, _Rough(), journal=journal).run()
            assert again.picks == whole.picks, f"cut after {cut} events"
            assert _decided(ended(again)) == _decided(ended(whole)), f"cut after {cut} events"


class _Changed(ToyTools):
    """Prepares another network than before."""

    def __init__(self, change: Mapping[str, object]) -> None:
        super().__init__()
        self._change = change

    def prepare(self, spec: JobSpec) -> Prepared:
        return msgspec.structs.replace(super().prepare(spec), **self._change)


class _BySamples:
    """Two families: subgraphs with an even number of samples, and those with an odd one."""

    dynamic = True

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        del previous
        return {of_one.subject.workload: f"measured:{len(of_one.labels) % 2}" for of_one in evidence}


class _Rough(Cast):
    """Some programs do not build, and some do not run."""

    def build(self, candidate: Candidate) -> Built:
        if candidate.sketch != UNTUNED and candidate.digest[0] in "01":
            return Built(candidate.digest, failure=BUILD_FAILED)
        return super().build(candidate)

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        if candidate.sketch != UNTUNED and candidate.digest[0] == "2":
            raise RuntimeError("crashed")
        return super().time(candidate, kind)


def _places(first: int, run: Rehearsal, every: int) -> list[int]:
    """Numbers of events from `first` on, every so many, and all near the end."""
    count = len(run.history)
    return sorted({*range(first, count, every), *range(count - _NEAR_THE_END, count)})


def _decided(summary: Summary) -> object:
    """What must not depend on where a run was cut; times of day may."""
    return (
        summary.reason,
        summary.trials,
        summary.subgraphs,
        summary.packaged,
        summary.knowledge,
        [(trials, latency_ms) for _, trials, latency_ms in summary.curve],
        math.isfinite(summary.kernels_ms),
    )
