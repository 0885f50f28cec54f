"""Plays jobs with real processes in real time, which sleep instead of tuning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.errors import InputError
from kintune.scheduler.events import Decision, Event, RecordedStep, ScheduleHeader
from kintune.scheduler.policies import POLICIES
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.journal import MemoryJournal
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from kintune_lab.simulate.faults import NO_FAULTS
from kintune_lab.simulate.history import Ending, ScheduleHistory
from kintune_lab.simulate.metrics import Played, Simulated, SimulationOutcome, metrics_of, outcome_of
from kintune_lab.simulate.mock_process import MOCK_WORKER, STOPPED
from kintune_lab.simulate.plan import PlannedJob
from kintune_lab.simulate.recorded import Recorded, retrace
from kintune_lab.simulate.simulation import play
from kintune_lab.simulate.spec import Scenario, ScheduleSpec, Setup

__all__ = ["play_live", "simulate_live"]


def play_live(scenario: Scenario, setup: Setup, *, speed: float = 1.0, log: Path | None = None) -> ScheduleHistory:
    """Play jobs with a process each, `speed` times as fast as they are; the history is in their own seconds.

    Raises:
        InputError: jobs arrive later than at the beginning, or are to be disturbed: neither can be played live.
        KeyboardInterrupt: it was interrupted.
    """
    if late := [job.id for job in scenario.jobs if job.at > 0]:
        raise InputError(f"job {late[0]} arrives later; only jobs that are there from the beginning can be played live")
    if setup.interference:
        raise InputError(f"setup {setup.name}: interference is simulated; leave it away to play live")
    steps: list[RecordedStep] = []

    def observe(event: Event, decisions: Sequence[Decision]) -> None:
        steps.append(RecordedStep(event, tuple(decisions)))

    launches = [
        JobLaunch(
            job.id,
            _python("mock_process"),
            msgspec.msgpack.encode(_faster(job, speed)),
            job.priority,
            None if job.deadline is None else job.deadline / speed,
        )
        for job in scenario.jobs
    ]
    with LocalEngine(
        setup.machine(),
        MemoryJournal(),
        {MOCK_WORKER: _python("mock_worker")},
        scenario.resources,
        log=log,
        observe=observe,
        crowded=POLICIES[setup.policy].overbooks,
    ) as engine:
        ends = engine.run(launches)
    history = retrace(Recorded("", ScheduleHeader(setup.policy, setup.bundling), tuple(steps))).history
    return _slower(_with_failures(history, ends), speed)


def simulate_live(
    spec: ScheduleSpec,
    *,
    speed: float,
    log: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_history: Callable[[str, Scenario, ScheduleHistory], None] | None = None,
) -> Simulated:
    """Play every setup with the first seed, in virtual time and live, side by side.

    Raises:
        InputError: something in the spec can be simulated only.
    """
    if spec.faults != NO_FAULTS:
        raise InputError(f"{spec.name}: faults are simulated; leave [faults] away to play live")
    played: list[Played] = []
    outcomes: list[SimulationOutcome] = []
    seed = spec.seeds[0]
    for number, setup in enumerate(spec.setups, start=1):
        scenario, simulated = play(spec, setup, seed, audit=False)
        live = play_live(scenario, setup, speed=speed, log=log)
        for way, history in ((setup, simulated), (msgspec.structs.replace(setup, label=f"{setup.name}, live"), live)):
            metrics = metrics_of(history, scenario.jobs, scenario.resources)
            played.append(Played(way.name, seed, metrics))
            outcomes.append(outcome_of(way, [metrics]))
            if on_history is not None:
                on_history(way.name, scenario, history)
        if on_progress is not None:
            on_progress(number, len(spec.setups))
    return Simulated(spec.name, spec.description, 1, tuple(outcomes), tuple(played))


def _python(module: str) -> Command:
    return Command((sys.executable, "-m", f"kintune_lab.simulate.{module}"), {})


def _faster(job: PlannedJob, speed: float) -> PlannedJob:
    stages = tuple(msgspec.structs.replace(planned, seconds=planned.seconds / speed) for planned in job.stages)
    return msgspec.structs.replace(job, stages=stages)


def _with_failures(history: ScheduleHistory, ends: Mapping[str, JobEnd]) -> ScheduleHistory:
    """The history with the jobs marked as failed that the engine ended without a result.

    The scheduler is not told why a job has ended.

    Raises:
        KeyboardInterrupt: a job was asked to stop.
    """
    if any(end.finished is not None and end.finished.reason == STOPPED for end in ends.values()):
        raise KeyboardInterrupt
    failed = {job for job, end in ends.items() if end.ending is not JobEnding.FINISHED}
    jobs = tuple(
        msgspec.structs.replace(job, ending=Ending.FAILED, cause=job.cause or ends[job.job].cause)
        if job.job in failed
        else job
        for job in history.jobs
    )
    return msgspec.structs.replace(history, jobs=jobs)


def _slower(history: ScheduleHistory, speed: float) -> ScheduleHistory:
    spans = tuple(
        msgspec.structs.replace(
            span,
            ready=span.ready * speed,
            start=span.start * speed,
            end=span.end * speed,
            alone_s=span.alone_s * speed,
        )
        for span in history.spans
    )
    jobs = tuple(
        msgspec.structs.replace(job, since=job.since * speed, end=job.end * speed, path_s=job.path_s * speed)
        for job in history.jobs
    )
    return ScheduleHistory(spans, jobs, history.decisions)
