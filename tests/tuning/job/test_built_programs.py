"""The programs that a job's process has built."""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune.tuning.job.built_programs import BuiltPrograms

UNTUNED = Candidate.untuned("w")
TUNED = msgspec.structs.replace(UNTUNED, sketch="other")


def built(candidate: Candidate, *, failed: bool = False) -> Built:
    failure = Outcome(Status.BUILD_FAILED, cause="no compiler") if failed else None
    return Built(candidate.digest, object_file=b"" if failed else b"kernel", failure=failure)


def test_of_failures_only_those_of_references_are_counted() -> None:
    programs = BuiltPrograms()
    for candidate in (UNTUNED, TUNED, UNTUNED):
        programs.observe(candidate, built(candidate, failed=True))
    assert dict(programs.unreferenced) == {"w": 2}
    assert (programs.timeable, programs.references, programs.kernels) == ({}, {}, {})


def test_a_reference_stays_when_it_need_not_be_timed_any_more() -> None:
    programs = BuiltPrograms()
    other = Candidate.untuned("v")
    for candidate in (UNTUNED, TUNED, other):
        programs.observe(candidate, built(candidate))
    programs.keep_only([TUNED], "w")
    assert set(programs.timeable) == {TUNED, other}
    assert set(programs.references) == {"w", "v"}
    assert set(programs.kernels) == {UNTUNED.digest, TUNED.digest, other.digest}
    programs.keep_only([], "w")
    assert set(programs.kernels) == {UNTUNED.digest, other.digest}
