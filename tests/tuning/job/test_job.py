"""The tuning job from its first stage to its summary, without a process."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.messages import Committed, ItemStatus, Work
from kintune.core.outcome import Outcome, Status
from kintune.core.report import StopReason
from kintune.core.stage_requests import Built
from kintune.core.stage_results import Profiled, StageName
from kintune.testing.synthetic_space import MatMul, SyntheticSpace, tiny_product
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended, profiled, time_us, with_limits
from tests.support.toy_tools import ToyTools, toy_space, toy_spec


class TestAWholeRun:
    def test_it_ends_with_a_proven_result(self) -> None:
        rehearsal = Rehearsal(ToyTools, toy_spec()).run()
        summary = ended(rehearsal)
        assert (summary.reason, summary.trials, summary.reused) == ("trials", 40, 0)
        assert summary.proof is not None
        assert summary.packaged is not None
        assert sum(end.trials for end in summary.subgraphs) == 40
        assert summary.kernels_ms == pytest.approx(
            sum(end.weight * (end.best_us or 0) for end in summary.subgraphs) / 1e3
        )

    def test_stages_come_in_their_order(self) -> None:
        kinds = [event.kind for event in Rehearsal(ToyTools, with_limits(trials=3)).run().history]
        assert list(dict.fromkeys(kinds)) == [
            StageName.PREPARE, StageName.KNOWN, StageName.KIN, StageName.BUILD, StageName.DRAFT, StageName.CHECK,
            StageName.BASELINE, StageName.SELECT, StageName.PROFILE, StageName.UPDATE, StageName.CONFIRM,
            StageName.PACKAGE, StageName.PROVE,
        ]  # fmt: skip

    def test_the_curve_falls_and_ends_at_the_estimate(self) -> None:
        curve = ended(Rehearsal(ToyTools, toy_spec()).run()).curve
        assert len(curve) > 3
        assert all(later[2] < sooner[2] for sooner, later in itertools.pairwise(curve))
        assert all(later[:2] >= sooner[:2] for sooner, later in itertools.pairwise(curve))

    def test_the_best_program_known_is_packaged(self) -> None:
        backend = ToyTools()
        rehearsal = Rehearsal(lambda: backend, toy_spec()).run()
        (chosen,) = backend.packaged
        measured = [candidate for picks in rehearsal.picks.values() for candidate in picks]
        for workload in ("w0", "w1", "w2"):
            assert time_us(chosen[workload]) == min(time_us(c) for c in measured if c.workload == workload)

    @pytest.mark.parametrize("killed", [False, True])
    def test_finalists_are_built_again_by_who_takes_over_only(self, killed: bool) -> None:
        """What is confirmed is what was timed in the search; a job's process that is gone takes that with it."""

        def kill_once(rehearsal: Rehearsal) -> None:
            if killed and rehearsal.counts(StageName.CONFIRM) == 1:
                rehearsal.kill()

        rehearsal = Rehearsal(ToyTools, toy_spec(), interfere=kill_once).run()
        if killed:
            assert rehearsal.finished is None
            rehearsal = Rehearsal(ToyTools, toy_spec(), journal=PlainJournal(rehearsal.history)).run()
        builds = Counter(
            msgspec.msgpack.decode(event.payload, type=Built).candidate
            for event in rehearsal.history
            if event.kind == StageName.BUILD
        )
        picked = {c.digest for picks in rehearsal.picks.values() for c in picks if c.sketch != UNTUNED}
        confirmed = {profiled.candidate for profiled in rehearsal.outcomes(StageName.CONFIRM)}
        assert confirmed & picked
        assert {builds[digest] for digest in picked - confirmed} == {1}
        assert (max(builds[digest] for digest in picked & confirmed) > 1) == killed

    def test_trivial_subgraphs_get_a_program_and_no_trials(self) -> None:
        backend = ToyTools(tunable=1, trivial=3)
        rehearsal = Rehearsal(lambda: backend, toy_spec()).run()
        assert {c.workload for picks in rehearsal.picks.values() for c in picks} == {"w0"}
        ends = {end.workload: end for end in ended(rehearsal).subgraphs}
        assert [ends[f"trivial{i}"].trials for i in range(3)] == [0, 0, 0]
        finalists = [toy_space().rules("trivial0", 1)[0], Candidate.untuned("trivial0")]
        assert backend.packaged[0]["trivial0"] == min(finalists, key=time_us)
        assert ends["trivial0"].best_us == min(map(time_us, finalists))

    def test_a_network_without_anything_to_tune_is_packaged_at_once(self) -> None:
        summary = ended(Rehearsal(lambda: ToyTools(tunable=0, trivial=2), toy_spec()).run())
        assert (summary.reason, summary.trials, summary.curve) == ("converged", 0, ())
        assert summary.packaged is not None

    def test_a_network_whose_untuned_programs_are_the_fastest_is_a_result(self) -> None:
        class Slow(Cast):
            def time(self, candidate: Candidate, kind: str) -> Outcome:
                del kind
                return Outcome(Status.OK, (0.01 if candidate.sketch == UNTUNED else time_us(candidate),))

        backend = ToyTools()
        ended(Rehearsal(lambda: backend, toy_spec(), Slow()).run())
        assert all(candidate.sketch == UNTUNED for candidate in backend.packaged[0].values())


class TestLimits:
    @pytest.mark.parametrize("trials", [1, 2, 7, 25])
    def test_trials_are_never_exceeded(self, trials: int) -> None:
        summary = ended(Rehearsal(ToyTools, with_limits(trials=trials)).run())
        assert (summary.trials, summary.reason) == (trials, "trials")

    def test_minutes_count_active_time_and_leave_some_for_the_end(self) -> None:
        rehearsal = Rehearsal(ToyTools, with_limits(minutes=4), pace=1.0).run()
        assert ended(rehearsal).reason == "time"
        assert rehearsal.history[-1].at <= 4 * 60
        first_confirm = next(event.at for event in rehearsal.history if event.stage == "build-end")
        assert first_confirm > 2 * 60

    def test_the_end_is_foretold_after_a_minute_of_search(self) -> None:
        rehearsal = Rehearsal(ToyTools, with_limits(minutes=4), pace=1.0).run()
        foretold = [report for report in rehearsal.progress if report.forecast is not None]
        assert foretold
        assert all(report.elapsed_s >= 60 for report in foretold)
        assert not {StageName.CONFIRM, StageName.PACKAGE, StageName.PROVE} & {report.stage for report in foretold}

    def test_the_time_left_counts_the_proof(self) -> None:
        rehearsal = Rehearsal(ToyTools, with_limits(trials=25)).run()
        left = [report.time_left_s for report in rehearsal.progress if report.stage == StageName.PROVE]
        assert left
        assert all(each is not None and each > 15.0 for each in left)  # packaging alone takes so long

    def test_a_long_check_does_not_make_trials_look_slow(self) -> None:
        """What came before the search is no part of what a trial takes."""

        class Heavy(Rehearsal):
            def _now(self) -> float:
                drafted = any(event.kind == StageName.DRAFT for event in self.history)
                return super()._now() + (100.0 if drafted else 0.0)

        rehearsal = Heavy(ToyTools, with_limits(minutes=2.5), pace=0.1).run()
        summary = ended(rehearsal)
        first_confirm = next(event.at for event in rehearsal.history if event.stage == "build-end")
        assert summary.reason == "time"
        assert first_confirm > 2 * 60

    def test_a_target_ends_the_search(self) -> None:
        summary = ended(Rehearsal(ToyTools, with_limits(until="0.15")).run())
        assert summary.reason == "target met"
        assert summary.curve[-1][2] <= 0.15
        assert summary.curve[-2][2] > 0.15

    def test_whichever_limit_comes_first_counts(self) -> None:
        assert ended(Rehearsal(ToyTools, with_limits(trials=9, minutes=600, until="0.001")).run()).reason == "trials"

    def test_a_space_that_is_exhausted_has_converged(self) -> None:
        class Tiny(ToyTools):
            """A network of which every program can be measured."""

            def space(self) -> SyntheticSpace:
                return self.tiny

            tiny = SyntheticSpace([tiny_product("w0"), MatMul("trivial0", 2, 4, 1)])

        summary = ended(Rehearsal(lambda: Tiny(tunable=1), with_limits(trials=10_000)).run())
        assert summary.reason == "converged"
        assert 10 < summary.trials < 10_000


class TestStopping:
    @pytest.mark.parametrize("at", range(3, 60, 4))
    def test_it_finishes_with_what_there_is(self, at: int) -> None:
        def stop(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) >= at:
                rehearsal.stop()

        rehearsal = Rehearsal(ToyTools, toy_spec(), interfere=stop).run()
        assert rehearsal.finished is not None
        if any(p.outcome.ok and p.candidate not in _untuned(rehearsal) for p in rehearsal.outcomes(StageName.PROFILE)):
            summary = ended(rehearsal)
            assert summary.reason == "interrupted"
            assert summary.trials == sum(
                count for c, count in profiled(rehearsal).items() if c not in _untuned(rehearsal)
            )
            assert summary.proof is not None
        else:  # the network of its check is the result
            summary = ended(rehearsal)
            assert (summary.reason, summary.trials) == ("interrupted", 0)
            assert summary.packaged is not None
            assert summary.proof is not None
            assert summary.notes[-1].startswith("The search ended before it had timed a program")

    def test_whoever_asks_for_it_the_report_knows_the_reason(self) -> None:
        """A service has words of its own for a user who wants the best result so far."""

        def stop(rehearsal: Rehearsal) -> None:
            if rehearsal.counts(StageName.PROFILE):
                rehearsal.stop("asked to finish")

        summary = ended(Rehearsal(ToyTools, toy_spec(), interfere=stop).run())
        assert StopReason(summary.reason) is StopReason.INTERRUPTED

    def test_too_late_to_be_the_reason(self) -> None:
        def stop(rehearsal: Rehearsal) -> None:
            if rehearsal.counts(StageName.CONFIRM):
                rehearsal.stop()

        assert ended(Rehearsal(ToyTools, toy_spec(), interfere=stop).run()).reason == "trials"


def _untuned(rehearsal: Rehearsal) -> set[str]:
    return {c.digest for picks in rehearsal.picks.values() for c in picks if c.sketch == UNTUNED}


class TestEventsThatMeanNothing:
    def test_they_change_nothing(self) -> None:
        def disturb(rehearsal: Rehearsal) -> None:
            last = rehearsal.history[-1]
            if last.kind == StageName.PROFILE:
                rehearsal.job.accept(last, more=False)  # a second outcome of the same candidate
                stranger = Profiled("0" * 32, Outcome(Status.OK, (0.001,)))
                rehearsal.job.accept(_event(last, StageName.PROFILE, msgspec.msgpack.encode(stranger)), more=False)
                rehearsal.job.accept(_event(last, StageName.CONFIRM, last.payload), more=False)
                rehearsal.job.accept(_event(last, "weather", b"rain"), more=False)

        undisturbed = Rehearsal(ToyTools, toy_spec()).run()
        disturbed = Rehearsal(ToyTools, toy_spec(), interfere=disturb).run()
        assert disturbed.finished == undisturbed.finished


def _event(like: Committed, kind: str, payload: bytes) -> Committed:
    return msgspec.structs.replace(like, kind=kind, payload=payload, status=ItemStatus.OK)


class TestRoundsInFlight:
    """While a round of one subgraph is measured, the next one of another is chosen and built."""

    SPEC = msgspec.structs.replace(toy_spec(), inflight=2)

    def test_it_ends_like_any_other(self) -> None:
        rehearsal = Rehearsal(ToyTools, self.SPEC).run()
        summary = ended(rehearsal)
        assert (summary.reason, summary.trials) == ("trials", 40)
        assert max(profiled(rehearsal).values()) == 1

    def test_a_round_is_chosen_before_the_last_one_is_measured(self) -> None:
        history = Rehearsal(ToyTools, self.SPEC).run().history
        order = [event.kind for event in history if event.kind in (StageName.SELECT, StageName.PROFILE)]
        runs = [kind for kind, _ in itertools.groupby(order)]
        selections = [len(list(group)) for kind, group in itertools.groupby(order) if kind == StageName.SELECT]
        assert len(runs) > 4
        assert max(selections) == 2

    @pytest.mark.parametrize("at", [4, 9, 17, 30, 44, 61, 75])
    def test_a_job_killed_at_any_moment_measures_nothing_twice(self, at: int) -> None:
        def die(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) == at:
                rehearsal.kill_process()

        rehearsal = Rehearsal(ToyTools, self.SPEC, interfere=die).run()
        assert ended(rehearsal).trials == 40
        assert max(profiled(rehearsal).values()) == 1

    def test_several_devices_share_a_round(self) -> None:
        options = msgspec.structs.replace(
            self.SPEC.options, trials=80, strategy=Strategy(round_size=24, foresee_size=6, survey=(), again=0)
        )
        spec = msgspec.structs.replace(self.SPEC, options=options, devices=3, inflight=1)
        offered: list[tuple[str, int]] = []

        class Watched(PlainJournal):
            def watch(self, job: str, work: Work) -> None:
                if work.stage.kind == StageName.PROFILE:
                    offered.append((work.stage.id, len(work.items)))
                super().watch(job, work)

        rehearsal = Rehearsal(ToyTools, spec, journal=Watched()).run()
        assert ended(rehearsal).trials == 80
        (first, many), (second, others) = offered[:2]
        assert (first, second) == ("profile-0-part0", "profile-0-part1")
        assert abs(many - others) <= 1
        assert many >= 8
        assert max(profiled(rehearsal).values()) == 1
