"""What happened in a recorded schedule, and the jobs that it was of, for other policies to play."""

from __future__ import annotations

from dataclasses import dataclass, field

from kintune.scheduler.decisions import Cancel, GiveUp, Start
from kintune.scheduler.events import (
    JobAdded,
    JobCancelled,
    JobEnded,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
)
from kintune.scheduler.recording import Step
from kintune.scheduler.stage import Stage, StageKey
from kintune.simulate.plan import PlannedJob, PlannedStage
from kintune.simulate.recorded import Recorded
from kintune.simulate.span import Ending, JobStory, Span, Story

__all__ = ["Retraced", "retrace"]


@dataclass
class _Job:
    """A job on its way; `latest` is the stage that was done last, `asked` the stages with what they came after."""

    id: str
    priority: float
    deadline: float | None
    since: float
    latest: str = ""
    ending: Ending = Ending.DONE
    cause: str = ""
    asked: dict[str, tuple[Stage, tuple[str, ...]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def plan(self, began: float) -> PlannedJob:
        """Its stages that were done, with the times they took."""
        stages: list[PlannedStage] = []
        done: set[str] = set()
        for id, (stage, after) in self.asked.items():
            if id not in self.seconds:
                continue
            kept = tuple(dict.fromkeys(other for other in after if other in done))
            again = Stage(
                id, stage.job, stage.kind, stage.demand, stage.affinity, stage.duration_key, 0, kept, stage.then
            )
            stages.append(PlannedStage(again, self.seconds[id]))
            done.add(id)
        return PlannedJob(self.id, tuple(stages), self.since - began, self.priority, self.deadline)


@dataclass
class Retraced:
    """The story of a recorded schedule in seconds since it began, and its jobs.

    A stage is taken to have been asked for because of the stage of its job that was done last before it.
    """

    story: Story
    jobs: tuple[PlannedJob, ...]


def retrace(recorded: Recorded) -> Retraced:
    """Follow a recording from its first job on."""
    trace = _Trace()
    for step in recorded.steps:
        trace.follow(step)
    return trace.retraced()


class _Trace:
    def __init__(self) -> None:
        self._began: float | None = None
        self._jobs: dict[str, _Job] = {}
        self._over: list[tuple[_Job, float]] = []
        self._ready: dict[StageKey, float] = {}
        self._running: dict[StageKey, tuple[Start, float]] = {}
        self._cancelling: set[StageKey] = set()
        self._spans: list[Span] = []
        self._decisions = 0

    def follow(self, step: Step) -> None:
        """Take in the next step."""
        event = step.event
        self._decisions += len(step.decisions)
        match event:
            case JobAdded():
                self._began = event.now if self._began is None else self._began
                self._jobs[event.job] = _Job(event.job, event.priority, event.deadline, event.now)
            case StageReady(stage=stage):
                job = self._jobs[stage.job]
                latest = (job.latest,) if job.latest else ()
                job.asked[stage.id] = (stage, (*stage.after, *latest))
                self._ready[stage.key] = event.now
            case RetryDue():
                self._ready[event.job, event.stage] = event.now
            case StageDone() | StageFailed():
                self._end((event.job, event.stage), event.now, done=isinstance(event, StageDone))
            case StageDropped():
                self._ready.pop((event.job, event.stage), None)
            case JobCancelled():
                self._jobs[event.job].ending, self._jobs[event.job].cause = Ending.CANCELLED, event.reason
            case JobEnded():
                self._over.append((self._jobs.pop(event.job), event.now))
            case _:
                pass
        for decision in step.decisions:
            match decision:
                case Start():
                    self._running[decision.job, decision.stage] = (decision, event.now)
                case Cancel():
                    self._cancelling.add((decision.job, decision.stage))
                case GiveUp():
                    job = self._jobs[decision.job]
                    job.ending, job.cause = Ending.FAILED, f"{decision.stage}: {decision.cause}"

    def retraced(self) -> Retraced:
        """The whole."""
        began = self._began or 0.0
        plans = [(job.plan(began), job, end) for job, end in self._over]
        stories = tuple(
            JobStory(job.id, job.priority, plan.at, end - began, job.ending, plan.path_s(), job.cause)
            for plan, job, end in plans
        )
        return Retraced(Story(tuple(self._spans), stories, self._decisions), tuple(plan for plan, _, _ in plans))

    def _end(self, key: StageKey, now: float, *, done: bool) -> None:
        start, since = self._running.pop(key)
        job = next((j for j in (self._jobs.get(key[0]), *(j for j, _ in self._over)) if j and j.id == key[0]), None)
        if job is None:
            return
        ending = Ending.DONE if done else Ending.CANCELLED if key in self._cancelling else Ending.FAILED
        self._cancelling.discard(key)
        stage, _ = job.asked[key[1]]
        began = self._began or 0.0
        ready = self._ready.get(key, since)
        self._spans.append(
            Span(
                key[0], key[1], stage.kind, start.placement, ready - began, since - began, now - began, now - since,
                start.attempt, ending,
            )
        )  # fmt: skip
        if done:
            job.latest = key[1]
            job.seconds[key[1]] = now - since
        else:
            self._ready[key] = now
