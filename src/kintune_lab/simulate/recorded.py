"""Recorded schedules: read, checked by replaying their decisions, and converted to a history and planned jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.stage import Stage, StageKey
from kintune.errors import InputError, SchedulerError
from kintune.scheduler.events import (
    RECORDING_VERSION,
    Cancel,
    Decision,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    RecordedStep,
    ResourceJoined,
    RetryDue,
    ScheduleHeader,
    ScheduleLine,
    StageDone,
    StageFailed,
    StageReady,
    Start,
    decode_line,
)
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.resources import Resource
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.wire.channel import UNREADABLE
from kintune_lab.simulate.history import Ending, ScheduleHistory, SimulatedJob, Span
from kintune_lab.simulate.plan import PlannedJob, PlannedStage

__all__ = ["Recorded", "Retraced", "read_recording", "retrace"]


class Recorded(NamedTuple):
    """A schedule that was recorded in the file `path`."""

    path: str
    header: ScheduleHeader
    steps: tuple[RecordedStep, ...]

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that ever joined, as they were last."""
        joined = (step.event.resource for step in self.steps if isinstance(step.event, ResourceJoined))
        return tuple({resource.id: resource for resource in joined}.values())

    def play_again(self) -> None:
        """Check that the same events lead to the same decisions.

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
    except UNREADABLE as error:
        raise InputError(f"{path}:{number}: is no line of a recorded schedule ({error})") from error


class Retraced(NamedTuple):
    """The history of a recorded schedule in seconds since its first job came, and its jobs.

    A stage is taken to have been asked for because of the stage of its job that was done last before it.  Jobs that are
    not over are only `under_way`, by their names; the history has their stages.
    """

    history: ScheduleHistory
    jobs: tuple[PlannedJob, ...]
    under_way: tuple[str, ...]


def retrace(recorded: Recorded) -> Retraced:
    """Follow a recording; jobs are called as its header says, with a number where two are called alike."""
    trace = _Trace(recorded.header.names)
    for step in recorded.steps:
        trace.follow(step)
    return trace.retraced()


@dataclass
class _Job:
    """A job on its way; `latest` is the stage that was done last, `asked` the stages and what they came after.

    `foretold` is what it said first of how long stages would take.
    """

    name: str
    priority: float
    deadline: float | None
    since: float
    end: float | None = None
    latest: str = ""
    ending: Ending = Ending.DONE
    cause: str = ""
    asked: dict[str, tuple[Stage, tuple[str, ...]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    foretold: dict[str, float] = field(default_factory=dict)

    def plan(self) -> PlannedJob:
        """Returns the job with its stages that were done, and the times they took."""
        stages: list[PlannedStage] = []
        done: set[str] = set()
        for id, (stage, after) in self.asked.items():
            if id in self.seconds:
                kept = tuple(dict.fromkeys(other for other in after if other in done))
                own = None if stage.affinity is None else self.name
                again = msgspec.structs.replace(stage, job=self.name, affinity=own, attempt=0, after=kept)
                stages.append(PlannedStage(again, self.seconds[id]))
                done.add(id)
        return PlannedJob(
            self.name, tuple(stages), self.since, self.priority, self.deadline, foretold=dict(self.foretold)
        )


class _Trace:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._called: Counter[str] = Counter()
        self._began: float | None = None
        self._jobs: dict[str, _Job] = {}
        self._ready: dict[StageKey, float] = {}
        self._running: dict[StageKey, tuple[Start, float]] = {}
        self._cancelling: set[StageKey] = set()
        self._spans: list[Span] = []
        self._decisions = 0

    def follow(self, step: RecordedStep) -> None:
        """Take in the next step."""
        event = step.event
        self._began = event.now if self._began is None and isinstance(event, JobAdded) else self._began
        now = event.now - (self._began or 0.0)
        match event:
            case JobAdded():
                self._jobs[event.job] = _Job(self._name(event.job), event.priority, event.deadline, now)
            case JobExpects():
                job = self._jobs[event.job]
                job.foretold = {**event.seconds, **job.foretold}
            case StageReady(stage=stage):
                job = self._jobs[stage.job]
                job.asked[stage.id] = (stage, (*stage.after, job.latest))
                self._ready[stage.key] = now
            case RetryDue():
                self._ready[event.job, event.stage] = now
            case StageDone() | StageFailed():
                self._end((event.job, event.stage), now, done=isinstance(event, StageDone))
            case JobCancelled():
                self._jobs[event.job].ending, self._jobs[event.job].cause = Ending.CANCELLED, event.reason
            case JobEnded():
                self._jobs[event.job].end = now
            case _:
                pass
        self._decisions += len(step.decisions)
        for decision in step.decisions:
            self._decided(decision, now)

    def retraced(self) -> Retraced:
        """The whole, of jobs that are over."""
        over = [(job, job.plan(), job.end) for job in self._jobs.values() if job.end is not None]
        jobs = tuple(
            SimulatedJob(job.name, job.priority, job.since, end, job.ending, plan.path_s(), job.cause)
            for job, plan, end in over
        )
        return Retraced(
            ScheduleHistory(tuple(self._spans), jobs, self._decisions),
            tuple(plan for _, plan, _ in over),
            tuple(job.name for job in self._jobs.values() if job.end is None),
        )

    def _name(self, job: str) -> str:
        name = self._names.get(job, job)
        self._called[name] += 1
        return name if self._called[name] == 1 else f"{name} ({self._called[name]})"

    def _decided(self, decision: Decision, now: float) -> None:
        match decision:
            case Start():
                self._running[decision.job, decision.stage] = (decision, now)
            case Cancel():
                self._cancelling.add((decision.job, decision.stage))
            case GiveUp():
                job = self._jobs[decision.job]
                job.ending, job.cause = Ending.FAILED, f"{decision.stage}: {decision.cause}"
            case _:
                pass

    def _end(self, key: StageKey, now: float, *, done: bool) -> None:
        start, since = self._running.pop(key)
        job = self._jobs[key[0]]
        ending = Ending.DONE if done else Ending.CANCELLED if key in self._cancelling else Ending.FAILED
        self._cancelling.discard(key)
        stage, _ = job.asked[key[1]]
        ready = self._ready.get(key, since)
        self._spans.append(
            Span(job.name, stage.id, stage.kind, start.placement, ready, since, now, now - since, start.attempt, ending)
        )
        if done:
            job.latest = key[1]
            job.seconds[key[1]] = now - since
        else:
            self._ready[key] = now
