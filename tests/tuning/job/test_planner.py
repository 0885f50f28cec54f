"""The stages that are offered if the untuned program of a workload does not build."""

from __future__ import annotations

import math

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Options, Strategy
from kintune.core.messages import Work
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.core.stage_results import StageName
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_tools import ToyTools, toy_spec

SPEC = toy_spec(Options(trials=24, strategy=Strategy(round_size=6, foresee_size=3)))


class Watching(PlainJournal):
    """Keeps what the stages that time candidates of "w0" are given as its reference."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[Built | None] = []

    def watch(self, job: str, work: Work) -> None:
        super().watch(job, work)
        if work.stage.kind == StageName.PROFILE:
            context = msgspec.msgpack.decode(work.context, type=ProfileContext)
            if any(msgspec.msgpack.decode(item, type=ProfileItem).workload == "w0" for item in work.items):
                self.references.append(context.references.get("w0"))


class Flaky(Cast):
    """The untuned program of "w0" does not build for the first so many times."""

    def __init__(self, failures: float) -> None:
        super().__init__()
        self._failures = failures

    def build(self, candidate: Candidate) -> Built:
        if candidate.sketch == UNTUNED and candidate.workload == "w0" and self._failures:
            self._failures -= 1
            return Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause="killed by SIGKILL"))
        return super().build(candidate)


@pytest.mark.parametrize(("failures", "vouched"), [(1, True), (math.inf, False)])
def test_no_candidate_is_timed_without_a_reference_to_compare_it_with(failures: float, vouched: bool) -> None:
    journal = Watching()
    Rehearsal(ToyTools, SPEC, Flaky(failures), journal=journal).run()
    assert journal.references
    assert {built is not None and built.failure is None for built in journal.references} == {vouched}
    assert None not in journal.references
