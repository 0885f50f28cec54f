"""The live driver of the scheduler: processes of this machine, real time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from kintune.engine.command import Command
from kintune.engine.interrupts import Interrupts
from kintune.engine.job_driver import JobDriver, Shop
from kintune.engine.job_run import JobEnd, JobLaunch
from kintune.engine.journal import Journal
from kintune.engine.reactor import Reactor
from kintune.engine.run_log import RunLog
from kintune.engine.settings import EngineSettings
from kintune.engine.worker_pool import WorkerPool
from kintune.errors import EngineError
from kintune.scheduler.decisions import Cancel, Decision, GiveUp, RetryAt, Start
from kintune.scheduler.events import Event, ResourceJoined
from kintune.scheduler.machine import Machine
from kintune.scheduler.resources import Resource
from kintune.wire.messages import Work

__all__ = ["LocalEngine", "Observe"]

Observe: TypeAlias = Callable[[Event, Sequence[Decision]], None]


class LocalEngine:
    """Runs jobs in processes of this machine, as the scheduler decides.

    It sleeps until a process says something, a deadline comes, or it is asked to stop; it uses one thread.  Used as a
    context manager, it leaves no process behind.  It belongs to the thread that made it; only `stop` may be called from
    others.
    """

    def __init__(
        self,
        machine: Machine,
        journal: Journal,
        commands: Mapping[str, Command],
        resources: Sequence[Resource],
        *,
        log: Path | None = None,
        settings: EngineSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        observe: Observe | None = None,
        crowded: bool = False,
    ) -> None:
        """Make an engine; no process is started yet.

        Args:
            machine: a scheduler that no events were given to.
            journal: commits results before anybody is told of them.
            commands: how workers are started, by kind ("build"), or by kind and device ("device@gpu0").
            resources: the hosts, and after them the devices, of this machine.
            log: the file to which the output of all processes is appended.
            settings: how patient it is.
            clock: seconds, never going back.
            observe: gets every event of the scheduler, with the decisions it led to.
            crowded: whether a device may have more than one worker at once, as a policy that waives its limits needs.
        """
        self._machine = machine
        self._journal = journal
        self._settings = settings or EngineSettings()
        self._clock = clock
        self._observe = observe or _ignore
        self._log = RunLog(log)
        self._reactor = Reactor(clock)
        self._pool = WorkerPool(self._reactor, commands, self._log, self._settings, clock, crowded=crowded)
        self._drivers: dict[str, JobDriver] = {}
        self._present: set[str] = set()
        self._events: deque[Event] = deque()
        self._telling = False
        self._stop_reason: str | None = None
        self._closed = False
        for resource in resources:
            self._tell(ResourceJoined(clock(), resource))

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    @property
    def stale_answers(self) -> int:
        """How many answers of workers belonged to no item that was under way; they were refused."""
        return self._pool.stale_answers

    def about(self, worker: str, device: str | None = None) -> bytes:
        """What a worker of this kind says of itself (`Hello.about`); it is started if need be, and kept.

        Raises:
            EngineError: it cannot be started.
            InputError: it refuses its arguments.
        """
        self._check_open()
        try:
            while (hello := self._pool.about((worker, device))) is None:
                self._reactor.turn()
        except BaseException:
            self.close(at_once=True)
            raise
        return hello.about

    def run(
        self,
        jobs: Sequence[JobLaunch],
        *,
        on_progress: Callable[[str, bytes], None] | None = None,
        on_stage: Callable[[str, Work], None] | None = None,
    ) -> dict[str, JobEnd]:
        """Run `jobs` to their ends.

        Ctrl-C asks them once to stop and is then raised as `KeyboardInterrupt`.  Any exception, be it from the journal
        or a callback, kills all processes and closes the engine before it is let through: nothing that was acknowledged
        is lost.

        Args:
            jobs: what to run; the ids are distinct.
            on_progress: called with a job's id and whatever it says is to be shown.
            on_stage: called with a job's id and the work whose stage begins.

        Returns:
            How each job ended, by its id.

        Raises:
            EngineError: a kind of worker cannot be started.
            InputError: a worker refuses its arguments.
        """
        self._check_open()
        shop = Shop(
            self._reactor,
            self._pool,
            self._journal,
            self._log,
            self._settings,
            self._clock,
            tell=self._tell,
            progressed=on_progress or _ignore,
            stage_began=on_stage or _ignore,
            left=self._present.discard,
            stalled=[],
        )
        try:
            with Interrupts(lambda: self.stop("interrupted")):
                self._drivers = {launch.job: JobDriver(launch, shop) for launch in jobs}
                self._present.update(self._drivers)
                for driver in self._drivers.values():
                    driver.begin()
                while self._present:
                    self._stop_jobs_if_asked()
                    self._reactor.turn()
        except BaseException:
            self.close(at_once=True)
            raise
        return {job: driver.job.end for job, driver in self._drivers.items() if driver.job.end is not None}

    def stop(self, reason: str) -> None:
        """Ask all jobs to finish with what there is; may be called from any thread and from signal handlers.

        Items that run are completed; those of droppable works that have not begun are left out.
        """
        self._stop_reason = reason
        self._reactor.wake()

    def close(self, at_once: bool = False) -> None:
        """End all processes: idle workers are asked to leave first, unless it must be `at_once`."""
        if self._closed:
            return
        self._closed = True
        try:
            if not at_once:
                self._let_workers_leave()
        finally:
            self._reactor.close()
            self._log.close()

    def _let_workers_leave(self) -> None:
        self._pool.dismiss()
        patient = [True]
        self._reactor.set_alarm("leave", self._clock() + self._settings.leave_timeout_s, patient.clear)
        while patient and self._reactor.children:
            self._reactor.turn()

    def _stop_jobs_if_asked(self) -> None:
        reason, self._stop_reason = self._stop_reason, None
        if reason is not None:
            for driver in self._drivers.values():
                driver.stop(reason)

    def _tell(self, event: Event) -> None:
        """Hand an event to the scheduler; events that its decisions bring about come after them."""
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                event = self._events.popleft()
                decisions = self._machine.handle(event)
                self._observe(event, decisions)
                for decision in decisions:
                    self._carry_out(decision)
        finally:
            self._telling = False

    def _carry_out(self, decision: Decision) -> None:
        driver = self._drivers[decision.job]
        match decision:
            case Start():
                driver.start(decision)
            case RetryAt():
                driver.retry_at(decision)
            case GiveUp():
                driver.give_up(decision)
            case Cancel():
                driver.cancel(decision)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed; make another one")


def _ignore(*_: object) -> None:
    pass
