"""From what the engine saw of an item to a typed outcome."""

from __future__ import annotations

import msgspec

from kintune.job.payloads import Profiled, StageName
from kintune.measure.outcome import Outcome, Status
from kintune.measure.requests import Built
from kintune.wire.messages import ItemStatus

__all__ = ["built_of", "profiled_of"]

_BUILD = {ItemStatus.TIMED_OUT: Status.BUILD_TIMED_OUT}
_RUN = {ItemStatus.TIMED_OUT: Status.RUN_TIMED_OUT}


def built_of(candidate: str, status: ItemStatus, payload: bytes, cause: str) -> Built:
    """BUILD's result for one candidate (digest): what the worker answered, or the outcome for how it failed to."""
    if status is ItemStatus.OK:
        return msgspec.msgpack.decode(payload, type=Built)
    return Built(candidate, failure=Outcome(_BUILD.get(status, Status.BUILD_FAILED), cause=cause))


def profiled_of(candidate: str, status: ItemStatus, payload: bytes, cause: str) -> Profiled:
    """The same for PROFILE and CONFIRM."""
    if status is ItemStatus.OK:
        return Profiled(candidate, msgspec.msgpack.decode(payload, type=Outcome))
    return Profiled(candidate, Outcome(_RUN.get(status, Status.RUN_FAILED), cause=cause))


MEASURING = frozenset({StageName.PROFILE, StageName.CONFIRM})
"""The stages whose events are `Profiled`."""
