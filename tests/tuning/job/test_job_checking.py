"""A tuning job whose network fails its check before tuning, or after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec
from kintune.core.stage_requests import Built
from kintune.core.stage_results import DraftResult, KnownCandidate, Packaged, Prepared, StageName, ValidationResult
from kintune.core.verdict import Verdict
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended, failed, time_us, with_limits
from tests.support.toy_tools import ToyTools, toy_space, toy_spec

WRONG = ValidationResult({}, 1.0, 1.0, Verdict.WRONG, ("onnxruntime",), {}, "output 'y': 1 of 1 values differ")
NOISY = ValidationResult(
    {"tuned": (1.0,)}, 1.0, 1.0, Verdict.RIGHT, ("onnxruntime",), {}, basis="near enough", alone=("net_w1", "net_w2"),
    not_alone={"net_w0": "takes long untuned"},
)  # fmt: skip
COMPILED = msgspec.structs.replace(toy_spec(), options=msgspec.structs.replace(toy_spec().options, search=False))


class TwoWays(ToyTools):
    """Knows how the network was lowered: conservatively or not, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.lowered: list[bool] = []

    def prepare(self, spec: JobSpec) -> Prepared:
        self.lowered.append(spec.conservative)
        return super().prepare(spec)


class Judge(Cast):
    """A check fails for drafts that `fails` says so of: (candidate digests by workload)."""

    def __init__(self, fails: Callable[[Mapping[str, str]], bool]) -> None:
        super().__init__()
        self.checks = 0
        self._fails = fails

    def check(self, draft: Mapping[str, str]) -> ValidationResult:
        self.checks += 1
        return WRONG if self._fails(draft) else super().check(draft)


def is_untuned(draft: Mapping[str, str], workload: str) -> bool:
    return draft[workload] == Candidate.untuned(workload).digest


class TestBeforeTuning:
    def test_a_network_that_is_right_is_looked_at_once(self) -> None:
        judge = Judge(lambda draft: False)
        assert not ended(Rehearsal(ToyTools, with_limits(trials=3), judge).run()).notes
        assert judge.checks == 1

    def test_a_subgraph_at_fault_ships_untuned_and_costs_no_trial(self) -> None:
        backend = ToyTools()
        judge = Judge(lambda draft: not is_untuned(draft, "w1"))
        summary = ended(Rehearsal(lambda: backend, with_limits(trials=20), judge).run())
        assert all(chosen["w1"].sketch == UNTUNED for chosen in backend.packaged)
        assert all(chosen["w0"].sketch != UNTUNED for chosen in backend.packaged)
        assert {end.workload: end.trials for end in summary.subgraphs}["w1"] == 0
        (note,) = summary.notes
        assert note == f"net_w1 keeps its untuned program: with another one, {WRONG.disagreement}"

    def test_where_only_rounding_excuses_the_outputs_subgraphs_are_compared_alone(self) -> None:
        class Noisy(Cast):
            def check(self, draft: Mapping[str, str]) -> ValidationResult:
                if len(backend.apart) and not is_untuned(draft, "w1"):
                    return msgspec.structs.replace(WRONG, wrong_alone={"w1": "wrong numbers"})
                return NOISY

            def prove(self) -> ValidationResult:
                return NOISY

        backend = ToyTools()
        summary = ended(Rehearsal(lambda: backend, with_limits(trials=6), Noisy()).run())
        assert [is_untuned({w: c.digest for w, c in chosen.items()}, "w1") for chosen in backend.apart] == [
            False, True, True,
        ]  # fmt: skip
        assert backend.packaged[0]["w1"].sketch == UNTUNED
        assert summary.packaged is not None
        assert summary.packaged.each_alone == ("toy.kt.alone",)
        assert summary.notes == (
            f"net_w1 keeps its untuned program: with another one, {WRONG.disagreement}",
            "the outputs are near enough; 2 subgraphs agree by themselves, 1 not compared by itself",
        )

    def test_what_is_compiled_without_a_search_says_so_too(self) -> None:
        class Noisy(Cast):
            def check(self, draft: Mapping[str, str]) -> ValidationResult:
                return NOISY

        backend = ToyTools()
        rehearsal = Rehearsal(lambda: backend, COMPILED, Noisy()).run()
        (note,) = ended(rehearsal).notes
        assert note.startswith("the outputs are near enough; 2 subgraphs agree by themselves")
        assert (len(backend.drafted), len(backend.apart)) == (2, 1)
        assert [item.only_alone for item in rehearsal.checks] == [False, True]  # the network as a whole once

    def test_a_proof_that_only_rounding_excuses_is_made_again_with_its_subgraphs(self) -> None:
        class Late(Cast):
            def prove(self) -> ValidationResult:
                return NOISY

        backend = ToyTools()
        rehearsal = Rehearsal(lambda: backend, with_limits(trials=6), Late()).run()
        assert ended(rehearsal).proof == NOISY
        assert (len(backend.packaged), len(backend.apart)) == (2, 1)

    def test_what_fails_however_it_is_lowered_is_refused_before_anything_is_measured(self) -> None:
        rehearsal = Rehearsal(ToyTools, with_limits(trials=3), Judge(lambda draft: True)).run()
        assert failed(rehearsal) == f"toy cannot be tuned from Toy 'node' on: {WRONG.disagreement}"
        assert rehearsal.finished is not None
        assert rehearsal.finished.refused
        assert rehearsal.counts(StageName.PROFILE) == 0
        assert rehearsal.counts(StageName.PREPARE) == 2

    def test_the_programs_of_the_first_draft_are_built_once(self) -> None:
        """By those who build for the search, which has them then; so compiling the network only links them."""
        linked: list[set[str]] = []

        class Linking(ToyTools):
            def draft(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> DraftResult:
                linked.append({c.digest for c in chosen.values()} - set(kernels))
                return super().draft(chosen, kernels, **options)

            def package(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> Packaged:
                linked.append({c.digest for c in chosen.values()} - set(kernels))
                return super().package(chosen, kernels, **options)

        class Kernels(Cast):
            def build(self, candidate: Candidate) -> Built:
                return msgspec.structs.replace(super().build(candidate), object_file=b"object")

        rehearsal = Rehearsal(Linking, with_limits(trials=9), Kernels()).run()
        assert ended(rehearsal).packaged is not None
        assert linked == [set(), set()]
        builds = [event.payload for event in rehearsal.history if event.kind == StageName.BUILD]
        built = [msgspec.msgpack.decode(payload, type=Built).candidate for payload in builds]
        assert len(built) == len(set(built))

    def test_a_network_that_is_only_compiled_starts_nobody_who_builds(self) -> None:
        rehearsal = Rehearsal(ToyTools, COMPILED).run()
        assert ended(rehearsal).packaged is not None
        assert rehearsal.counts(StageName.BUILD) == 0

    def test_another_lowering_may_be_right(self) -> None:
        two_ways = TwoWays()
        rehearsal = Rehearsal(
            lambda: two_ways, with_limits(trials=3), Judge(lambda draft: not two_ways.lowered[-1])
        ).run()
        assert ended(rehearsal).packaged is not None
        assert two_ways.lowered == [False, True]

    def test_what_the_records_know_counts_once_however_often_it_is_lowered(self) -> None:
        two_ways = TwoWays()
        known = [KnownCandidate(c, toy_space().measure(c)) for c in toy_space().rules("w0", 3)]
        judge = Judge(lambda draft: not two_ways.lowered[-1])
        summary = ended(
            Rehearsal(lambda: two_ways, with_limits(trials=3), judge, journal=PlainJournal(known=known)).run()
        )
        assert (two_ways.lowered, summary.reused) == ([False, True], 3)

    def test_the_curve_begins_with_the_lowering_of_the_result(self) -> None:
        two_ways = TwoWays()
        rules = [c for workload in ("w0", "w1", "w2") for c in toy_space().rules(workload, 3)]
        known = [KnownCandidate(c, toy_space().measure(c)) for c in rules]
        judge = Judge(lambda draft: not two_ways.lowered[-1])
        rehearsal = Rehearsal(lambda: two_ways, with_limits(trials=3), judge, journal=PlainJournal(known=known)).run()
        _, second = [event.at for event in rehearsal.history if event.kind == StageName.PREPARE]
        assert ended(rehearsal).curve[0][:2] == (second, 0)

    def test_a_draft_that_cannot_be_compiled_is_no_accident(self) -> None:
        class Picky(ToyTools):
            def draft(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> DraftResult:
                if chosen["w2"].sketch != UNTUNED:
                    return DraftResult(None, "no such instruction")
                return super().draft(chosen, kernels, **options)

        summary = ended(Rehearsal(Picky, with_limits(trials=3)).run())
        assert summary.notes == ("net_w2 keeps its untuned program: with another one, no such instruction",)

    def test_programs_that_the_compiler_refuses_are_replaced_at_once(self) -> None:
        """However many they are: all others stay as they are chosen, and nothing is searched for."""
        drafts: list[set[str]] = []

        class Picky(ToyTools):
            def draft(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> DraftResult:
                tuned = {workload for workload, candidate in chosen.items() if candidate.sketch != UNTUNED}
                drafts.append(tuned)
                if wrong := tuned - {"w1"}:
                    return DraftResult(None, "no such instruction", tuple(sorted(wrong)))
                return super().draft(chosen, kernels, **options)

        summary = ended(Rehearsal(Picky, COMPILED).run())
        assert len(drafts[0]) > 2
        assert drafts[1:] == [{"w1"}]
        assert len(summary.notes) == len(drafts[0]) - 1

    def test_a_network_that_does_not_run_is_no_accident_either(self) -> None:
        class Crash(Cast):
            def check(self, draft: Mapping[str, str]) -> ValidationResult:
                from kintune.errors import NumericsError

                raise NumericsError("the compiled network does not run: killed by SIGSEGV")

        rehearsal = Rehearsal(ToyTools, with_limits(trials=3), Crash()).run()
        assert (
            failed(rehearsal)
            == "toy cannot be tuned from Toy 'node' on: the compiled network does not run: killed by SIGSEGV"
        )

    def test_what_cannot_be_checked_for_another_reason_is_tried_again(self) -> None:
        class Away(Cast):
            def check(self, draft: Mapping[str, str]) -> ValidationResult:
                raise RuntimeError("the device is gone")

        rehearsal = Rehearsal(ToyTools, with_limits(trials=3), Away()).run()
        assert failed(rehearsal) == "check: RuntimeError: the device is gone (tried 3 times)"

    @pytest.mark.parametrize("at", range(3, 14))
    def test_a_process_that_dies_in_between_changes_nothing(self, at: int) -> None:
        def kill_once(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) == at:
                rehearsal.kill_process()

        judge = Judge(lambda draft: not is_untuned(draft, "w1"))
        spec = with_limits(trials=3)
        undisturbed = Rehearsal(ToyTools, spec, judge).run()
        disturbed = Rehearsal(ToyTools, spec, judge, interfere=kill_once).run()
        assert ended(disturbed).notes == ended(undisturbed).notes
        assert disturbed.picks == undisturbed.picks

    @pytest.mark.parametrize("at", range(3, 12))
    def test_a_session_that_is_killed_goes_on_with_the_check(self, at: int) -> None:
        def kill(rehearsal: Rehearsal) -> None:
            if len(rehearsal.history) == at:
                rehearsal.kill()

        judge = Judge(lambda draft: not is_untuned(draft, "w1"))
        spec = with_limits(trials=3)
        first = Rehearsal(ToyTools, spec, judge, interfere=kill).run()
        again = Rehearsal(lambda: ToyTools(keeps=False), spec, judge, journal=PlainJournal(first.history)).run()
        assert ended(again).notes == ended(Rehearsal(ToyTools, spec, judge).run()).notes


class TestAfterTuning:
    def test_a_winner_that_makes_the_network_wrong_is_found_and_replaced(self) -> None:
        backend, proofs = ToyTools(), iter([WRONG])

        class Late(Judge):
            def prove(self) -> ValidationResult:
                return next(proofs, super().prove())

        judge = Late(lambda draft: draft["w1"] != backend.drafted[0]["w1"].digest)
        summary = ended(Rehearsal(lambda: backend, with_limits(trials=60), judge).run())
        first, last = backend.packaged
        assert last == {**first, "w1": backend.drafted[0]["w1"]}
        assert first["w1"] != last["w1"]
        (note,) = summary.notes
        assert note.startswith("net_w1 keeps the program it had before the search: ")
        times_us = {end.workload: end.best_us for end in summary.subgraphs}
        assert (times_us["w0"], times_us["w1"]) == (time_us(last["w0"]), time_us(last["w1"]))
        assert summary.kernels_ms == sum(end.weight * (end.best_us or 0.0) for end in summary.subgraphs) / 1e3
        assert summary.proof is not None
        assert summary.proof.within_tolerance

    def test_it_is_repaired_once(self) -> None:
        class Never(Judge):
            def prove(self) -> ValidationResult:
                return WRONG

        rehearsal = Rehearsal(ToyTools, with_limits(trials=60), Never(lambda draft: False)).run()
        assert ended(rehearsal).proof == WRONG
        assert rehearsal.counts(StageName.PROVE) == 2


class TestCompiling:
    def test_nothing_is_measured(self) -> None:
        backend = ToyTools()
        rehearsal = Rehearsal(lambda: backend, COMPILED).run()
        summary = ended(rehearsal)
        assert summary.reason == "compiled"
        assert summary.packaged == Packaged("toy.kt.unproven", {w: c.digest for w, c in backend.drafted[0].items()})
        assert summary.proof is not None
        assert not summary.proof.latency_ms
        assert {event.kind for event in rehearsal.history} == {
            StageName.PREPARE, StageName.KNOWN, StageName.KIN, StageName.DRAFT, StageName.CHECK,
        }  # fmt: skip

    def test_what_ships_was_looked_at_as_it_is(self) -> None:
        backend = ToyTools()
        judge = Judge(lambda draft: not is_untuned(draft, "w0") or not is_untuned(draft, "w2"))
        summary = ended(Rehearsal(lambda: backend, COMPILED, judge).run())
        assert summary.packaged is not None
        assert summary.packaged.chosen == {w: c.digest for w, c in backend.drafted[-1].items()}
        assert is_untuned(summary.packaged.chosen, "w0")
        assert not is_untuned(summary.packaged.chosen, "w1")
