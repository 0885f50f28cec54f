"""A recorded schedule: read, checked, and played to its decisions again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.errors import InputError, SchedulerError
from kintune.scheduler.events import (
    RECORDING_VERSION,
    RecordedStep,
    ResourceJoined,
    ScheduleHeader,
    ScheduleLine,
    decode_line,
)
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler

__all__ = ["Recorded", "read_recording"]


class Recorded(NamedTuple):
    """A schedule that was recorded in the file `path`."""

    path: str
    header: ScheduleHeader
    steps: tuple[RecordedStep, ...]

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that ever joined."""
        return tuple(step.event.resource for step in self.steps if isinstance(step.event, ResourceJoined))

    def play_again(self) -> None:
        """See that the same events lead to the same decisions.

        Raises:
            InputError: they do not; another version of the scheduler has made them.
        """
        machine = Scheduler(policy(self.header.policy), RetryLimits(bundling=self.header.bundling))
        for number, step in enumerate(self.steps, start=2):
            try:
                decisions = tuple(machine.handle(step.event))
            except SchedulerError as error:
                raise InputError(f"{self.path}:{number}: cannot have happened: {str(error).splitlines()[0]}") from error
            if decisions != step.decisions:
                raise InputError(
                    f"{self.path}:{number}: today's scheduler decides otherwise than was recorded; "
                    "another version of kintune has recorded it"
                )


def read_recording(path: str) -> Recorded:
    """Read what `kintune tune --schedule` has written; a last line that was cut off is left out.

    Raises:
        InputError: there is no such file, or it is no recording.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    read = [_read(path, number, text) for number, text in enumerate(lines[:-1], start=1)]
    if not read or not isinstance(read[0], ScheduleHeader):
        raise InputError(f"{path}: is no recorded schedule; its first line does not say so")
    header = read[0]
    if header.version != RECORDING_VERSION or header.policy not in POLICIES:
        raise InputError(f"{path}: was recorded by another version of kintune")
    steps: list[RecordedStep] = []
    for number, line in enumerate(read[1:], start=2):
        if not isinstance(line, RecordedStep):
            raise InputError(f"{path}:{number}: a second schedule begins here")
        steps.append(line)
    return Recorded(path, header, tuple(steps))


def _read(path: str, number: int, text: bytes) -> ScheduleLine:
    try:
        return decode_line(text)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}:{number}: is no line of a recorded schedule ({error})") from error
