"""A tuning job with failing stages and candidates, and with finalists that fail when timed again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec
from kintune.core.messages import OfferStages
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune.core.stage_results import DraftResult, Packaged, Prepared, StageName, ValidationResult
from kintune.errors import BuildError, InputError, OrderError
from kintune.tuning.job.job import TuningJob
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_runs import BUILD_FAILED, ended, failed, time_us, with_limits
from tests.support.toy_tools import ToyTools, toy_space, toy_spec


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

    @pytest.mark.parametrize("stage", ["prepare", "draft", "package"])
    @pytest.mark.parametrize(("error", "tries"), [(MemoryError, 3), (BuildError, 1)])
    def test_a_stage_of_its_own_is_tried_again_where_that_may_help(
        self, stage: str, error: type[Exception], tries: int
    ) -> None:
        class Broken(ToyTools):
            def prepare(self, spec: JobSpec) -> Prepared:
                if stage == "prepare":
                    raise error("out of luck")
                return super().prepare(spec)

            def draft(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> DraftResult:
                if stage == "draft":
                    raise error("out of luck")
                return super().draft(chosen, kernels, **options)

            def package(self, chosen: object, kernels: object, **options: Any) -> Packaged:
                raise error("out of luck")

        rehearsal = Rehearsal(Broken, with_limits(trials=3)).run()
        said = "MemoryError: out of luck (tried 3 times)" if tries == 3 else "out of luck"
        assert failed(rehearsal) == f"{stage}: {said}"
        names = [stage, f"{stage}.2", f"{stage}.3"]
        repaired = stage == "package" and tries == 1  # once more, with programs that are known to be good
        assert [e.stage for e in rehearsal.history if e.kind == stage] == names[: 2 if repaired else tries]

    def test_one_setback_is_forgotten(self) -> None:
        class Shaky(ToyTools):
            failures = 0

            def package(self, chosen: dict[str, Candidate], kernels: dict[str, Built], **options: Any) -> Packaged:  # type: ignore[override]
                Shaky.failures += 1
                if Shaky.failures < 3:
                    raise MemoryError("not yet")
                return super().package(chosen, kernels, **options)

        assert ended(Rehearsal(Shaky, with_limits(trials=3)).run()).packaged is not None

    def test_a_proof_that_is_lost_is_made_again_and_at_last_missed(self) -> None:
        class Unproven(Cast):
            def prove(self) -> ValidationResult:
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
        assert isinstance(offer, OfferStages)
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

        backend = ToyTools()
        summary = ended(Rehearsal(lambda: backend, toy_spec(), Lucky()).run())
        assert backend.packaged[0]["w0"] != lucky
        assert next(end.best_us for end in summary.subgraphs if end.workload == "w0") == time_us(
            backend.packaged[0]["w0"]
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

        backend = ToyTools()
        ended(Rehearsal(lambda: backend, toy_spec(), Liars()).run())
        assert len(wrong) == 4
        assert backend.packaged[0]["w2"] not in wrong
        assert backend.packaged[0]["w2"].sketch != UNTUNED

    def test_when_nothing_can_be_confirmed_the_untuned_programs_ship(self) -> None:
        class Nothing(Cast):
            def time(self, candidate: Candidate, kind: str) -> Outcome:
                if kind == StageName.CONFIRM:
                    return Outcome(Status.RUN_FAILED, cause="gone")
                return super().time(candidate, kind)

        backend = ToyTools()
        rehearsal = Rehearsal(lambda: backend, toy_spec(), Nothing()).run()
        assert all(candidate.sketch == UNTUNED for candidate in backend.packaged[0].values())
        assert all(end.best_us is None for end in ended(rehearsal).subgraphs)
        assert rehearsal.counts(StageName.CONFIRM) <= 3 * (8 + 6) + 2

    def test_who_does_not_build_for_it_is_not_awaited(self) -> None:
        class Once(Cast):
            confirming = False

            def time(self, candidate: Candidate, kind: str) -> Outcome:
                return super().time(candidate, kind)

            def build(self, candidate: Candidate) -> Built:
                if candidate.workload == "trivial0":
                    return Built(candidate.digest, failure=BUILD_FAILED)
                return super().build(candidate)

        backend = ToyTools()
        ended(Rehearsal(lambda: backend, toy_spec(), Once()).run())
        assert backend.packaged[0]["trivial0"].sketch == UNTUNED
