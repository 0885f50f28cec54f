"""What a tuning job does with facts: known outcomes, what is known of kin, the device's peak, what building took."""

from __future__ import annotations

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.device import Peak
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune.core.stage_results import KnowledgeUse, KnownCandidate, StageName
from kintune.core.workload import Subgraph
from kintune.testing.synthetic_space import MatMul
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import BUILD_FAILED, KNOWLEDGE, ended, profiled, with_limits
from tests.support.toy_tools import ToyTools, toy_space, toy_spec


class TestKnown:
    def facts(self, rehearsal: Rehearsal, *, suggestion: bool = False) -> list[KnownCandidate]:
        picks = {pick.candidate.digest: pick for selected in rehearsal.selections for pick in selected.picks}
        return [
            KnownCandidate(picks[p.candidate].candidate, p.outcome, picks[p.candidate].features, suggestion=suggestion)
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
        fact = KnownCandidate(candidate, Outcome(Status.OK, (0.1,)), confirmed=Outcome(Status.OK, (500.0,)))
        backend = ToyTools()
        ended(Rehearsal(lambda: backend, with_limits(trials=20), journal=PlainJournal(known=[fact])).run())
        assert backend.packaged[0]["w0"] != candidate


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
        assert kinds.index(StageName.BASELINE) + 1 == kinds.index(StageName.PEAK) == kinds.index(StageName.SELECT) - 1
        assert kinds.count(StageName.PEAK) == 1
        peak_us = {p.name: p.flops / (1e3 * toy_space().peak_gflops) for p in toy_space().products.values()}
        assert self.bounds(rehearsal) == {w: pytest.approx(peak_us[w]) for w in ("w0", "w1", "w2")}
        assert ended(rehearsal).trials <= 60

    def test_a_program_with_less_arithmetic_lowers_the_bounds(self) -> None:
        """No search may end since a time seems impossible."""

        class Saving(ToyTools):
            def _subgraph(self, product: MatMul) -> Subgraph:
                return msgspec.structs.replace(super()._subgraph(product), least_flops=product.flops / 4)

        plain, saving = self.bounds(Rehearsal(ToyTools, PROSPECT).run()), self.bounds(Rehearsal(Saving, PROSPECT).run())
        assert saving == {workload: pytest.approx(bound / 4) for workload, bound in plain.items()}

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
