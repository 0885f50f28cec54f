"""Turns the results of items, as the engine received them, into typed outcomes."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec

from kintune.core.device import Peak
from kintune.core.messages import ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built
from kintune.core.stage_results import BaselineLatencies, Profiled, StageName, ValidationResult
from kintune.errors import WireError
from kintune.wire.channel import UNREADABLE

__all__ = ["MEASURING", "NEEDED", "REPEATED", "VERDICTS", "built_of", "check_answer", "profiled_of", "rounding_note"]

Answer = TypeVar("Answer")

NEEDED = frozenset(
    {
        StageName.PREPARE,
        StageName.DRAFT,
        StageName.CHECK,
        StageName.SELECT,
        StageName.UPDATE,
        StageName.PACKAGE,
        StageName.PROVE,
    }
)
"""The stages that a result needs: they are tried again, and the job fails if they fail."""

REPEATED = (StageName.PREPARE,)
"""The stages that a job's process does again when it is opened with their results."""

VERDICTS = ("BuildError: ", "NumericsError: ")
"""Beginnings of the causes of failures that come from the programs, so that another try would fail as well."""

_BUILD = {ItemStatus.TIMED_OUT: Status.BUILD_TIMED_OUT}
_RUN = {ItemStatus.TIMED_OUT: Status.RUN_TIMED_OUT}


def built_of(candidate: str, status: ItemStatus, payload: bytes, cause: str) -> Built:
    """Return the result of BUILD for one candidate (digest): the worker's answer, or an outcome for its failure.

    Raises:
        WireError: the answer is not a result, or that of another candidate.
    """
    if status is ItemStatus.OK:
        built = _read(payload, Built)
        if built.candidate != candidate:
            raise WireError(f"{candidate} was to be built, and {built.candidate[:64]!r} was")
        return built
    return Built(candidate, failure=Outcome(_BUILD.get(status, Status.BUILD_FAILED), cause=cause))


def profiled_of(candidate: str, status: ItemStatus, payload: bytes, cause: str) -> Profiled:
    """Return the result of PROFILE or CONFIRM for one candidate.

    Raises:
        WireError: the answer is not an outcome.
    """
    if status is ItemStatus.OK:
        outcome = _read(payload, Outcome)
        if not all(math.isfinite(us) and us > 0 for us in outcome.times_us):
            raise WireError(f"no program takes {outcome.times_us} us")
        return Profiled(candidate, outcome)
    return Profiled(candidate, Outcome(_RUN.get(status, Status.RUN_FAILED), cause=cause))


def check_answer(kind: str, payload: bytes) -> None:
    """Check the answer of a device worker in a stage that does not time candidates.

    Raises:
        WireError: it is not a valid answer.
    """
    if kind in (StageName.PROVE, StageName.CHECK, StageName.ERROR):
        _read(payload, ValidationResult)
    elif kind == StageName.BASELINE:
        latencies = _read(payload, BaselineLatencies)
        for times in (times for one in latencies.each for times in one.values()):
            if not all(math.isfinite(ms) and ms > 0 for ms in times):
                raise WireError(f"no runtime takes {times} ms")
    elif kind == StageName.PEAK:
        _read(payload, Peak)


def _read(payload: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except UNREADABLE as error:
        raise WireError(f"{len(payload)} bytes that are no {kind.__name__}: {error}") from error


MEASURING = frozenset({StageName.PROFILE, StageName.CONFIRM})
"""The stages whose events are `Profiled`."""


def rounding_note(proof: ValidationResult) -> str:
    """Return the note on outputs that are accepted only because of rounding, or that it keeps from being compared."""
    alone = f"; {len(proof.alone)} subgraphs agree by themselves" if proof.alone else ""
    if len(proof.alone) == 1:
        alone = "; 1 subgraph agrees by itself"
    left = f", {len(proof.not_alone)} not compared by {'itself' if len(proof.not_alone) == 1 else 'themselves'}"
    left = left if proof.not_alone else ""
    judged = f"the outputs are {proof.basis}" if proof.basis else "rounding keeps outputs from being compared"
    return f"{judged}{alone}{left}"
