"""A job times other runtimes once, before its search, and goes on without them where that fails."""

from __future__ import annotations

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome
from kintune.core.stage_results import BaselineLatencies, StageName
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended, with_limits
from tests.support.toy_tools import ToyTools, toy_spec


class Without(Cast):
    """onnxruntime cannot be timed."""

    def baselines(self) -> BaselineLatencies:
        return BaselineLatencies(({},), {"onnxruntime": "it ran out of memory"})


class Broken(Cast):
    """The stage fails."""

    def baselines(self) -> BaselineLatencies:
        raise RuntimeError("no answer")


def test_they_are_timed_once_and_the_summary_has_them() -> None:
    rehearsal = Rehearsal(ToyTools, toy_spec()).run()
    assert rehearsal.counts(StageName.BASELINE) == 1
    assert ended(rehearsal).baselines == Cast().baselines()
    assert ended(rehearsal).notes == ()


def test_nothing_is_timed_where_there_is_no_other_runtime() -> None:
    rehearsal = Rehearsal(lambda: ToyTools(alone=True), toy_spec()).run()
    assert rehearsal.counts(StageName.BASELINE) == 0
    assert ended(rehearsal).notes == ()


def test_a_compilation_times_nothing() -> None:
    rehearsal = Rehearsal(ToyTools, with_limits(search=False)).run()
    assert rehearsal.counts(StageName.BASELINE) == 0


def test_a_job_that_is_stopped_does_not_begin_with_them() -> None:
    def stop(rehearsal: Rehearsal) -> None:
        if rehearsal.counts(StageName.CHECK) == 1 and rehearsal.counts(StageName.BASELINE) == 0:
            rehearsal.stop()

    assert Rehearsal(ToyTools, toy_spec(), interfere=stop).run().counts(StageName.BASELINE) == 0


class SlowUntuned(Cast):
    """Untuned programs take a second each."""

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        found = super().time(candidate, kind)
        return found if candidate.sketch != UNTUNED else msgspec.structs.replace(found, times_us=(1e6,) * 3)


class SlowUntunedAlone(SlowUntuned, Without):
    """And nothing else runs the model."""


@pytest.mark.parametrize(("cast", "compiled"), [(Cast, True), (SlowUntuned, False), (SlowUntunedAlone, True)])
def test_the_untuned_network_is_compiled_where_it_is_fast_or_nothing_else_runs_the_model(
    cast: type[Cast], compiled: bool
) -> None:
    packaged = ended(Rehearsal(ToyTools, toy_spec(), cast()).run()).packaged
    assert packaged is not None
    assert (packaged.untuned is not None) == compiled


def test_a_share_of_a_baseline_ends_the_search() -> None:
    """onnxruntime takes 0.2 ms."""
    summary = ended(Rehearsal(ToyTools, with_limits(until="onnxruntime*0.75")).run())
    assert summary.reason == "target met"
    assert summary.curve[-1][2] <= 0.15
    assert summary.curve[-2][2] > 0.15


def test_a_share_of_the_untuned_network_ends_the_search() -> None:
    summary = ended(Rehearsal(ToyTools, with_limits(until="untuned*0.1", trials=10_000)).run())
    assert summary.reason == "target met"
    untuned_ms = sum(end.weight * (end.untuned_us or 0.0) for end in summary.subgraphs) / 1e3
    assert summary.curve[-1][2] <= 0.1 * untuned_ms


@pytest.mark.parametrize("cast", [Without, Broken])
def test_a_failure_is_a_line_and_ends_nothing(cast: type[Cast]) -> None:
    rehearsal = Rehearsal(ToyTools, with_limits(trials=12), cast()).run()
    summary = ended(rehearsal)
    assert (summary.reason, rehearsal.counts(StageName.BASELINE)) == ("trials", 1)
    assert len(summary.notes) == 1
    assert "before tuning" in summary.notes[0]


@pytest.mark.parametrize("tools", [ToyTools, lambda: ToyTools(alone=True)])
def test_a_target_that_is_never_known_leaves_the_usual_number_of_trials(tools: type[ToyTools]) -> None:
    summary = ended(Rehearsal(tools, with_limits(until="onnxruntime*0.5"), Without()).run())
    assert summary.reason in ("trials", "converged")
    assert summary.notes[-1].startswith("the search could not end at 0.5 of onnxruntime: that is not known")


@pytest.mark.parametrize("until", ["onnxruntime*0.75", pytest.param("untuned*0.1", marks=pytest.mark.slow)])
def test_a_run_with_a_share_that_is_cut_anywhere_ends_as_if_it_had_not_been(until: str) -> None:
    spec = with_limits(until=until, trials=60)
    whole = Rehearsal(ToyTools, spec).run()
    for cut in (0, *range(3, len(whole.history), 3)):
        again = Rehearsal(ToyTools, spec, journal=PlainJournal(whole.history[:cut])).run()
        assert again.picks == whole.picks, f"cut after {cut} events"
        assert ended(again).reason == ended(whole).reason
        assert ended(again).baselines == ended(whole).baselines
        assert again.counts(StageName.BASELINE) == 1


def test_the_time_of_the_baselines_does_not_make_trials_look_slow() -> None:
    class Heavy(Rehearsal):
        def _now(self) -> float:
            checked = any(event.kind == StageName.CHECK for event in self.history)
            return super()._now() + (100.0 if checked else 0.0)

    rehearsal = Heavy(ToyTools, with_limits(minutes=2.5), pace=0.1).run()
    first_confirm = next(event.at for event in rehearsal.history if event.stage == "build-end")
    assert first_confirm > 2 * 60
