"""How toy jobs are asked for, and what became of them."""

from __future__ import annotations

from collections import Counter

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec, Options, Strategy
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_results import StageName, Summary
from kintune.testing.synthetic_space import MatMul
from tests.support.rehearsal import Rehearsal
from tests.support.toy_knowledge import toy_knowledge
from tests.support.toy_tools import toy_space, toy_spec

__all__ = ["BUILD_FAILED", "KNOWLEDGE", "ended", "failed", "profiled", "time_us", "with_limits"]

KNOWLEDGE = toy_knowledge(MatMul("k0", 64, 320, 64, operator="dense0"), MatMul("k1", 128, 128, 64, operator="dense1"))
BUILD_FAILED = Outcome(Status.BUILD_FAILED, cause="linking failed: no linker")


def ended(rehearsal: Rehearsal) -> Summary:
    """The summary of a job that did not fail; raises AssertionError with the reason of one that did."""
    if rehearsal.finished is None or rehearsal.finished.failed:
        raise AssertionError(rehearsal.finished.reason if rehearsal.finished else "the job was killed")
    return msgspec.msgpack.decode(rehearsal.finished.summary, type=Summary)


def failed(rehearsal: Rehearsal) -> str:
    """Why a job failed; raises AssertionError when it did not."""
    if rehearsal.finished is None or not rehearsal.finished.failed:
        raise AssertionError("the job ended well" if rehearsal.finished else "the job was killed")
    return rehearsal.finished.reason


def with_limits(**limits: object) -> JobSpec:
    """A toy job in small rounds, within these limits; other options by their names."""
    return toy_spec(msgspec.convert({"strategy": Strategy(round_size=6, foresee_size=3), **limits}, Options))


def time_us(candidate: Candidate) -> float:
    """What a program of the toy network takes."""
    return toy_space().measure(candidate).median_us


def profiled(rehearsal: Rehearsal) -> Counter[str]:
    """How often each candidate was timed in the search, by what was committed."""
    return Counter(profiled.candidate for profiled in rehearsal.outcomes(StageName.PROFILE))
