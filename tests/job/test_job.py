"""The tuning job, played from its first stage to its last word without a process."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from kintune.errors import BuildError, InputError, OrderError
from kintune.job.job import TuningJob
from kintune.job.payloads import (
    JobSpec,
    KnowledgeUse,
    Known,
    Options,
    Packaged,
    Prepared,
    Profiled,
    Proof,
    StageName,
    Summary,
    Updated,
)
from kintune.measure.about import Peak
from kintune.measure.outcome import Outcome, Status
from kintune.measure.requests import Built
from kintune.search import session
from kintune.search.family import Samples
from kintune.search.knowledge import Knowledge
from kintune.search.strategy import Strategy
from kintune.space.candidate import UNTUNED, Candidate
from kintune.testing.rehearsal import Cast, PlainJournal, Rehearsal
from kintune.testing.synthetic_space import Product, SyntheticSpace, tiny_product
from kintune.testing.toy_knowledge import toy_knowledge
from kintune.testing.toy_tools import ToyTools, toy_space, toy_spec
from kintune.wire.messages import Committed, ItemStatus, Offer, Work

KNOWLEDGE = toy_knowledge(Product("k0", 64, 320, 64, operator="dense0"), Product("k1", 128, 128, 64, operator="dense1"))
BUILD_FAILED = Outcome(Status.BUILD_FAILED, cause="linking failed: no linker")


def ended(rehearsal: Rehearsal) -> Summary:
    """The summary of a job that did not fail."""
    assert rehearsal.finished is not None
    assert not rehearsal.finished.failed, rehearsal.finished.reason
    return msgspec.msgpack.decode(rehearsal.finished.summary, type=Summary)


def failed(rehearsal: Rehearsal) -> str:
    """Why a job failed."""
    assert rehearsal.finished is not None
    assert rehearsal.finished.failed
    return rehearsal.finished.reason


def with_limits(**limits: object) -> JobSpec:
    return toy_spec(msgspec.convert({"strategy": Strategy(round_size=6, foresee_size=3), **limits}, Options))


SHORT = with_limits(trials=24)


def time_us(candidate: Candidate) -> float:
    return toy_space().measure(candidate).median_us


def profiled(rehearsal: Rehearsal) -> Counter[str]:
    """How often each candidate was timed in the search, by what was committed."""
    return Counter(profiled.candidate for profiled in rehearsal.outcomes(StageName.PROFILE))


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
            StageName.PREPARE, StageName.KNOWN, StageName.KIN, StageName.SELECT, StageName.BUILD, StageName.PROFILE,
            StageName.UPDATE, StageName.CONFIRM, StageName.PACKAGE, StageName.PROVE,
        ]  # fmt: skip

    def test_the_curve_falls_and_ends_at_the_estimate(self) -> None:
        curve = ended(Rehearsal(ToyTools, toy_spec()).run()).curve
        assert len(curve) > 3
        assert all(later[2] < sooner[2] for sooner, later in itertools.pairwise(curve))
        assert all(later[:2] >= sooner[:2] for sooner, later in itertools.pairwise(curve))

    def test_the_best_program_known_is_packaged(self) -> None:
        tools = ToyTools()
        rehearsal = Rehearsal(lambda: tools, toy_spec()).run()
        (chosen,) = tools.packaged
        measured = [candidate for picks in rehearsal.picks.values() for candidate in picks]
        for workload in ("w0", "w1", "w2"):
            assert time_us(chosen[workload]) == min(time_us(c) for c in measured if c.workload == workload)

    def test_trivial_subgraphs_get_a_program_and_no_trials(self) -> None:
        tools = ToyTools(tunable=1, trivial=3)
        rehearsal = Rehearsal(lambda: tools, toy_spec()).run()
        assert {c.workload for picks in rehearsal.picks.values() for c in picks} == {"w0"}
        ends = {end.workload: end for end in ended(rehearsal).subgraphs}
        assert [ends[f"trivial{i}"].trials for i in range(3)] == [0, 0, 0]
        finalists = [toy_space().rules("trivial0", 1)[0], Candidate.untuned("trivial0")]
        assert tools.packaged[0]["trivial0"] == min(finalists, key=time_us)
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

        tools = ToyTools()
        ended(Rehearsal(lambda: tools, toy_spec(), Slow()).run())
        assert all(candidate.sketch == UNTUNED for candidate in tools.packaged[0].values())


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

    def test_a_target_ends_the_search(self) -> None:
        summary = ended(Rehearsal(ToyTools, with_limits(until_ms=0.15)).run())
        assert summary.reason == "target met"
        assert summary.curve[-1][2] <= 0.15
        assert summary.curve[-2][2] > 0.15

    def test_whichever_limit_comes_first_counts(self) -> None:
        assert ended(Rehearsal(ToyTools, with_limits(trials=9, minutes=600, until_ms=0.001)).run()).reason == "trials"

    def test_a_space_that_is_exhausted_has_converged(self) -> None:
        class Tiny(ToyTools):
            """A network of which every program can be measured."""

            def space(self) -> SyntheticSpace:
                return self.tiny

            tiny = SyntheticSpace([tiny_product("w0"), Product("trivial0", 2, 4, 1)])

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
        else:
            assert failed(rehearsal) == "nothing could be measured: interrupted"

    def test_too_late_to_be_the_reason(self) -> None:
        def stop(rehearsal: Rehearsal) -> None:
            if rehearsal.counts(StageName.CONFIRM):
                rehearsal.stop()

        assert ended(Rehearsal(ToyTools, toy_spec(), interfere=stop).run()).reason == "trials"


def _untuned(rehearsal: Rehearsal) -> set[str]:
    return {c.digest for picks in rehearsal.picks.values() for c in picks if c.sketch == UNTUNED}


class TestFailures:
    def test_a_job_in_which_nothing_builds_has_failed_with_counts_and_samples(self) -> None:
        class NoLinker(Cast):
            def build(self, candidate: Candidate) -> Built:
                return Built(candidate.digest, failure=BUILD_FAILED)

        rehearsal = Rehearsal(ToyTools, with_limits(trials=10), NoLinker()).run()
        pattern = r"nothing could be measured: build_failed x\d+ \(linking failed: no linker\)"
        assert re.fullmatch(pattern, failed(rehearsal))
        assert rehearsal.counts(StageName.PACKAGE) == 0

    def test_causes_are_counted_apart(self) -> None:
        class Poisoned(Cast):
            def build(self, candidate: Candidate) -> Built:
                if candidate.workload == "w0":
                    return Built(candidate.digest, failure=BUILD_FAILED)
                return super().build(candidate)

            def time(self, candidate: Candidate, kind: str) -> Outcome:
                if candidate.workload == "w1" and candidate.sketch != UNTUNED:
                    raise RuntimeError("poisoned")
                return super().time(candidate, kind)

        summary = ended(Rehearsal(ToyTools, with_limits(trials=12), Poisoned()).run())
        failures = {end.workload: end.failures for end in summary.subgraphs}
        trials = {end.workload: end.trials for end in summary.subgraphs}
        assert failures["w0"] == {"build_failed": trials["w0"]}
        assert failures["w1"] == {"run_failed": trials["w1"]}
        assert failures["w2"] == {}

    @pytest.mark.parametrize("stage", ["prepare", "package"])
    def test_a_stage_of_its_own_is_tried_three_times(self, stage: str) -> None:
        class Broken(ToyTools):
            def prepare(self, spec: JobSpec) -> Prepared:
                if stage == "prepare":
                    raise BuildError("out of luck")
                return super().prepare(spec)

            def package(self, chosen: object) -> Packaged:
                raise BuildError("out of luck")

        rehearsal = Rehearsal(Broken, with_limits(trials=3)).run()
        assert failed(rehearsal) == f"{stage}: BuildError: out of luck (tried 3 times)"
        assert [e.stage for e in rehearsal.history if e.kind == stage] == [stage, f"{stage}.2", f"{stage}.3"]

    def test_one_setback_is_forgotten(self) -> None:
        class Shaky(ToyTools):
            failures = 0

            def package(self, chosen: dict[str, Candidate]) -> Packaged:  # type: ignore[override]
                Shaky.failures += 1
                if Shaky.failures < 3:
                    raise BuildError("not yet")
                return super().package(chosen)

        assert ended(Rehearsal(Shaky, with_limits(trials=3)).run()).packaged is not None

    def test_a_proof_that_is_lost_is_made_again_and_at_last_missed(self) -> None:
        class Unproven(Cast):
            def prove(self) -> Proof:
                raise RuntimeError("the device is gone")

        rehearsal = Rehearsal(ToyTools, with_limits(trials=3), Unproven()).run()
        assert failed(rehearsal) == "prove: RuntimeError: the device is gone (tried 3 times)"

    def test_stages_of_others_are_refused(self) -> None:
        job = TuningJob(ToyTools(), "toy")
        list(job.open("run", msgspec.msgpack.encode(toy_spec()), ()))
        job.begin("build", b"")
        with pytest.raises(OrderError, match="does not run build stages"):
            job.item(b"")

    def test_input_that_is_wrong_passes_through(self) -> None:
        class Picky(ToyTools):
            def prepare(self, spec: JobSpec) -> Prepared:
                raise InputError("no such operator")

        job = TuningJob(Picky(), "toy")
        (offer, _) = job.open("run", msgspec.msgpack.encode(toy_spec()), ())
        assert isinstance(offer, Offer)
        job.begin("prepare", b"")
        with pytest.raises(InputError, match="no such operator"):
            job.item(offer.works[0].items[0])


class TestConfirming:
    def test_a_lucky_measurement_does_not_win(self) -> None:
        lucky = toy_space().rules("w0", 1)[0]

        class Lucky(Cast):
            def time(self, candidate: Candidate, kind: str) -> Outcome:
                if candidate == lucky and kind == StageName.PROFILE:
                    return Outcome(Status.OK, (1.0,))
                return super().time(candidate, kind)

        tools = ToyTools()
        summary = ended(Rehearsal(lambda: tools, toy_spec(), Lucky()).run())
        assert tools.packaged[0]["w0"] != lucky
        assert next(end.best_us for end in summary.subgraphs if end.workload == "w0") == time_us(
            tools.packaged[0]["w0"]
        )

    def test_what_computes_something_else_the_second_time_is_replaced_and_not_shipped(self) -> None:
        wrong: set[Candidate] = set()

        class Liars(Cast):
            """The first four to be confirmed of w2 turn out to be wrong."""

            def time(self, candidate: Candidate, kind: str) -> Outcome:
                if kind == StageName.CONFIRM and candidate.workload == "w2" and (candidate in wrong or len(wrong) < 4):
                    wrong.add(candidate)
                    return Outcome(Status.WRONG_RESULT, cause="wrong")
                return super().time(candidate, kind)

        tools = ToyTools()
        ended(Rehearsal(lambda: tools, toy_spec(), Liars()).run())
        assert len(wrong) == 4
        assert tools.packaged[0]["w2"] not in wrong
        assert tools.packaged[0]["w2"].sketch != UNTUNED

    def test_when_nothing_can_be_confirmed_the_untuned_programs_ship(self) -> None:
        class Nothing(Cast):
            def time(self, candidate: Candidate, kind: str) -> Outcome:
                if kind == StageName.CONFIRM:
                    return Outcome(Status.RUN_FAILED, cause="gone")
                return super().time(candidate, kind)

        tools = ToyTools()
        rehearsal = Rehearsal(lambda: tools, toy_spec(), Nothing()).run()
        assert all(candidate.sketch == UNTUNED for candidate in tools.packaged[0].values())
        assert all(end.best_us is None for end in ended(rehearsal).subgraphs)
        assert rehearsal.counts(StageName.CONFIRM) <= 3 * 9 + 2

    def test_who_does_not_build_for_it_is_not_awaited(self) -> None:
        class Once(Cast):
            confirming = False

            def time(self, candidate: Candidate, kind: str) -> Outcome:
                return super().time(candidate, kind)

            def build(self, candidate: Candidate) -> Built:
                if candidate.workload == "trivial0":
                    return Built(candidate.digest, failure=BUILD_FAILED)
                return super().build(candidate)

        tools = ToyTools()
        ended(Rehearsal(lambda: tools, toy_spec(), Once()).run())
        assert tools.packaged[0]["trivial0"].sketch == UNTUNED


class TestKnown:
    def facts(self, rehearsal: Rehearsal, *, suggestion: bool = False) -> list[Known]:
        picks = {pick.candidate.digest: pick for selected in rehearsal.selections for pick in selected.picks}
        return [
            Known(picks[p.candidate].candidate, p.outcome, picks[p.candidate].features, suggestion=suggestion)
            for p in rehearsal.outcomes(StageName.PROFILE)
        ]

    def test_what_is_known_is_not_measured_again(self) -> None:
        facts = self.facts(Rehearsal(ToyTools, toy_spec()).run())
        again = Rehearsal(ToyTools, with_limits(trials=20), journal=PlainJournal(known=facts)).run()
        summary = ended(again)
        assert (summary.reused, summary.trials) == (len(facts), 20)
        assert not profiled(again).keys() & {fact.candidate.digest for fact in facts}

    def test_it_starts_from_the_best_that_is_known(self) -> None:
        facts = self.facts(Rehearsal(ToyTools, toy_spec()).run())
        summary = ended(Rehearsal(ToyTools, with_limits(trials=1), journal=PlainJournal(known=facts)).run())
        seconds, trials, latency_ms = summary.curve[0]
        best = [min(f.outcome.median_us for f in facts if f.candidate.workload == w) for w in ("w0", "w1", "w2")]
        assert trials == 0
        assert latency_ms == pytest.approx(sum((i + 1) * us for i, us in enumerate(best)) / 1e3)
        assert seconds <= 2

    def test_suggestions_are_not_believed(self) -> None:
        facts = self.facts(Rehearsal(ToyTools, toy_spec()).run(), suggestion=True)
        assert ended(Rehearsal(ToyTools, with_limits(trials=5), journal=PlainJournal(known=facts)).run()).reused == 0

    def test_a_confirmed_time_counts_in_place_of_the_first_one(self) -> None:
        candidate = toy_space().rules("w0", 1)[0]
        fact = Known(candidate, Outcome(Status.OK, (0.1,)), confirmed=Outcome(Status.OK, (500.0,)))
        tools = ToyTools()
        ended(Rehearsal(lambda: tools, with_limits(trials=20), journal=PlainJournal(known=[fact])).run())
        assert tools.packaged[0]["w0"] != candidate


class TestKin:
    """What was good for other workloads is carried over and measured first; it changes what is tried, never facts."""

    def test_programs_of_kin_are_measured_first(self) -> None:
        rehearsal = Rehearsal(ToyTools, toy_spec(), journal=PlainJournal(knowledge=KNOWLEDGE)).run()
        summary = ended(rehearsal)
        of_kin = [pick for selected in rehearsal.selections for pick in selected.picks if pick.origin == "kin"]
        assert of_kin
        assert {pick.candidate.workload for pick in of_kin} <= {"w0", "w1", "w2"}
        assert {pick.origin for pick in rehearsal.selections[0].picks} >= {"kin", "untuned"}
        assert summary.knowledge == KnowledgeUse(len(KNOWLEDGE.programs), len(KNOWLEDGE.models), len(of_kin))
        assert summary.reused == 0

    def test_few_trials_bring_no_less_than_without(self) -> None:
        cold = ended(Rehearsal(ToyTools, with_limits(trials=9)).run())
        warm = ended(Rehearsal(ToyTools, with_limits(trials=9), journal=PlainJournal(knowledge=KNOWLEDGE)).run())
        assert warm.kernels_ms <= cold.kernels_ms * 1.02

    def test_a_model_that_cannot_be_read_is_left_out_and_counted(self) -> None:
        model = msgspec.structs.replace(KNOWLEDGE.models[0], blob=b"no model")
        knowledge = msgspec.structs.replace(KNOWLEDGE, models=(model, *KNOWLEDGE.models[1:]))
        whole = Rehearsal(ToyTools, toy_spec(), journal=PlainJournal(knowledge=knowledge)).run()
        use = ended(whole).knowledge
        assert (use.models, use.lost) == (len(KNOWLEDGE.models) - 1, 1)


PROSPECT = with_limits(trials=60, strategy=Strategy(round_size=12, foresee_size=3, budget="prospect"))


class TestPeak:
    """Of the device, which says what is left to gain."""

    def bounds(self, rehearsal: Rehearsal) -> dict[str, float]:
        return {workload: s.bound_us for workload, s in rehearsal.job._state.session.states.items()}

    def test_it_is_measured_once_before_the_search(self) -> None:
        rehearsal = Rehearsal(ToyTools, PROSPECT).run()
        kinds = [event.kind for event in rehearsal.history]
        assert kinds[3] == StageName.PEAK
        assert kinds.count(StageName.PEAK) == 1
        peak_us = {p.name: p.flops / (1e3 * toy_space().peak_gflops) for p in toy_space().products.values()}
        assert self.bounds(rehearsal) == {w: pytest.approx(peak_us[w]) for w in ("w0", "w1", "w2")}
        assert ended(rehearsal).trials <= 60

    def test_what_is_known_is_not_measured(self) -> None:
        journal = PlainJournal(peak=Peak(1e3 * toy_space().peak_gflops, 1.0, 1))
        rehearsal = Rehearsal(ToyTools, PROSPECT, journal=journal).run()
        assert rehearsal.counts(StageName.PEAK) == 0
        assert all(bound > 0 for bound in self.bounds(rehearsal).values())

    def test_whoever_does_not_ask_for_it_is_not_bound_by_it(self) -> None:
        """Whether the records happen to know it or not."""
        without = Rehearsal(ToyTools, toy_spec()).run()
        assert without.counts(StageName.PEAK) == 0
        journal = PlainJournal(peak=Peak(1e-3 * toy_space().peak_gflops, 1.0, 1))
        told = Rehearsal(ToyTools, toy_spec(), journal=journal).run()
        assert set(self.bounds(told).values()) == {0.0}
        assert told.picks == without.picks

    def test_a_device_that_cannot_tell_is_not_asked_again(self) -> None:
        class Mute(Cast):
            def peak(self) -> Peak:
                raise RuntimeError("no answer")

        rehearsal = Rehearsal(ToyTools, PROSPECT, Mute()).run()
        assert rehearsal.counts(StageName.PEAK) == 1
        assert ended(rehearsal).packaged is not None
        assert set(self.bounds(rehearsal).values()) == {0.0}

    def test_a_search_that_is_at_its_peak_ends(self) -> None:
        journal = PlainJournal(peak=Peak(1e-3 * toy_space().peak_gflops, 1.0, 1))
        summary = ended(Rehearsal(ToyTools, PROSPECT, journal=journal).run())
        assert summary.reason == "converged"
        assert summary.trials < 60

    @pytest.mark.parametrize("at", [3, 4, 5, 9])  # the first three events are one commit
    def test_a_run_that_is_cut_decides_as_if_it_had_not_been(self, at: int) -> None:
        whole = Rehearsal(ToyTools, PROSPECT).run()
        again = Rehearsal(ToyTools, PROSPECT, journal=PlainJournal(whole.history[:at])).run()
        assert again.picks == whole.picks


class TestThrift:
    """What building took is a fact that the search learns from."""

    class Slow(Cast):
        def seconds(self, kind: str) -> float:
            return 0.5 if kind == StageName.BUILD else 7.0

    def costs(self, rehearsal: Rehearsal) -> list[float]:
        states = rehearsal.job._state.session.states.values()
        return [seconds for state in states for seconds in state.build_s.values()]

    def test_every_candidate_of_the_search_has_its_seconds(self) -> None:
        rehearsal = Rehearsal(ToyTools, toy_spec(), self.Slow()).run()
        assert self.costs(rehearsal) == [0.5] * 40

    def test_a_run_that_goes_on_remembers_them(self) -> None:
        whole = Rehearsal(ToyTools, toy_spec(), self.Slow()).run()
        again = Rehearsal(ToyTools, toy_spec(), self.Slow(), journal=PlainJournal(whole.history[:-2])).run()
        assert self.costs(again) == [0.5] * 40

    def test_what_could_not_be_built_took_no_time(self) -> None:
        class Broken(self.Slow):  # type: ignore[name-defined,misc]
            def build(self, candidate: Candidate) -> Built:
                failure = None if candidate.sketch == UNTUNED or candidate.workload != "w1" else BUILD_FAILED
                return Built(candidate.digest, artifact=b"library", failure=failure)

        rehearsal = Rehearsal(ToyTools, toy_spec(), Broken()).run()
        assert rehearsal.job._state.session.states["w1"].build_s == {}
        assert len(self.costs(rehearsal)) == ended(rehearsal).trials - rehearsal.job._state.session.states["w1"].trials


class TestEventsThatMeanNothing:
    def test_they_change_nothing(self) -> None:
        def disturb(rehearsal: Rehearsal) -> None:
            last = rehearsal.history[-1]
            if last.kind == StageName.PROFILE:
                rehearsal.job.accept(last)  # a second outcome of the same candidate
                stranger = Profiled("0" * 32, Outcome(Status.OK, (0.001,)))
                rehearsal.job.accept(_event(last, StageName.PROFILE, msgspec.msgpack.encode(stranger)))
                rehearsal.job.accept(_event(last, StageName.CONFIRM, last.payload))
                rehearsal.job.accept(_event(last, "weather", b"rain"))

        undisturbed = Rehearsal(ToyTools, toy_spec()).run()
        disturbed = Rehearsal(ToyTools, toy_spec(), interfere=disturb).run()
        assert disturbed.finished == undisturbed.finished


def _event(like: Committed, kind: str, payload: bytes) -> Committed:
    return msgspec.structs.replace(like, kind=kind, payload=payload, status=ItemStatus.OK)


@pytest.fixture(scope="module")
def uninterrupted() -> Rehearsal:
    return Rehearsal(ToyTools, SHORT, _Rough(), journal=PlainJournal(knowledge=KNOWLEDGE)).run()


class TestResuming:
    """The same events, the same decisions, wherever the history was cut."""

    def test_a_run_that_is_cut_anywhere_decides_as_if_it_had_not_been(self, uninterrupted: Rehearsal) -> None:
        expected = ended(uninterrupted)
        for cut in (0, *range(3, len(uninterrupted.history))):  # the first three events are one commit
            journal = PlainJournal(uninterrupted.history[:cut], knowledge=KNOWLEDGE)
            again = Rehearsal(ToyTools, SHORT, _Rough(), journal=journal).run()
            assert again.picks == uninterrupted.picks, f"cut after {cut} events"
            assert _decided(ended(again)) == _decided(expected), f"cut after {cut} events"
            assert max(profiled(again).values()) == 1, f"cut after {cut} events"

    def test_a_process_that_is_lost_anywhere_changes_no_decision(self, uninterrupted: Rehearsal) -> None:
        expected = ended(uninterrupted)
        for lost_at in range(1, len(uninterrupted.history)):

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
            self.SPEC.options, trials=80, strategy=Strategy(round_size=24, foresee_size=6, survey=())
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
