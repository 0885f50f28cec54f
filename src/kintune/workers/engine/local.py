"""The live driver of the scheduler: runs jobs in real time, in processes here and on nodes that join."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from kintune.core.messages import ItemStatus, Work
from kintune.errors import EngineError
from kintune.scheduler.events import PriorityChanged
from kintune.scheduler.resources import Resource
from kintune.scheduler.scheduler import Scheduler
from kintune.workers.engine.dispatch import Dispatch, Observe
from kintune.workers.engine.engine_context import EngineContext
from kintune.workers.engine.interrupts import Interrupts
from kintune.workers.engine.inventory import Inventory
from kintune.workers.engine.job_driver import JobDriver
from kintune.workers.engine.job_run import JobEnd, JobLaunch
from kintune.workers.engine.journal import Journal
from kintune.workers.engine.launcher import Launcher
from kintune.workers.engine.process import AnyCommand
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.quarantine import Quarantine
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.remote_nodes import RemoteNode, RemoteNodes
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.worker_pool import Slot, WorkerPool

__all__ = ["LocalEngine", "Observe"]


def _ignore(*_: object) -> None:
    pass


class LocalEngine:
    """Runs jobs as the scheduler decides, in processes of this machine and of nodes that join.

    It sleeps until a process says something, a deadline comes, or it is asked to stop; it uses one thread.  Used as a
    context manager, it leaves no process behind.  It belongs to the thread that made it.  Others may call `stop`,
    `add`, `call_off`, `finish`, `prioritize`, `leave`, `post`, `join`, `lose`, `heard`, `printed` and `ended`, all of
    which return at once: the engine's own thread does what they ask for soon.
    """

    def __init__(
        self,
        machine: Scheduler,
        journal: Journal,
        commands: Mapping[str, AnyCommand],
        resources: Sequence[Resource],
        *,
        log: Path | ProcessLog | None = None,
        settings: EngineSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        observe: Observe | None = None,
        crowded: bool = False,
        elsewhere: Collection[str] = (),
    ) -> None:
        """Make an engine; no process is started yet.

        Args:
            machine: a scheduler that no events were given to.
            journal: commits results before anybody is told of them.
            commands: how workers are started, by kind ("build"), or by kind and device ("device@gpu0").
            resources: the hosts, and after them the devices, of this machine.
            log: what the output of all processes is appended to, or its path.
            settings: its time-outs, and how many failures it tolerates.
            clock: seconds, never going back.
            observe: gets every event of the scheduler, with the decisions it led to.
            crowded: whether a device may have more than one worker at once, as a policy that waives its limits needs.
            elsewhere: the kinds of workers that nodes may bring; stages of these wait until one does.
        """
        self._journal = journal
        self._settings = settings or EngineSettings()
        self._clock = clock
        self._log = log if isinstance(log, ProcessLog) else ProcessLog(log)
        self._reactor = Reactor(clock)
        self._launcher = Launcher(self._reactor, self._log, clock)
        self._drivers: dict[str, JobDriver] = {}
        self._dispatch = Dispatch(machine, observe or _ignore, self._drivers)
        self._inventory = Inventory(self._dispatch.tell, clock)
        self._pool = WorkerPool(
            self._reactor,
            self._launcher,
            commands,
            self._log,
            self._settings,
            clock,
            crowded=crowded,
            elsewhere=elsewhere,
            useless=self._does_without,
            served=self._served,
        )
        self._quarantine = Quarantine(
            self._inventory,
            self._reactor,
            self._log,
            self._settings,
            clock,
            taken=lambda cause: self._nodes.move_jobs(cause),
            given_back=lambda: self._nodes.place_waiting(),
        )
        self._nodes = RemoteNodes(self._launcher, self._pool, self._inventory, self._quarantine)
        self._posted: deque[Callable[[], None]] = deque()
        self._leaving = False
        self._begin: Callable[[JobLaunch], None] = _refuse
        self._closed = False
        for resource in resources:
            self._inventory.join(resource)

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
            while (hello := self._pool.about(Slot.on_device(worker, device))) is None:
                self._turn()
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
        ends: dict[str, JobEnd] = {}
        context = self._open_context(on_progress, on_stage, ends.__setitem__)
        with self._closing_on_error(), Interrupts(lambda: self.stop("interrupted")):
            self._drivers.update({launch.job: JobDriver(launch, context) for launch in jobs})
            for driver in list(self._drivers.values()):
                driver.begin()
            while self._drivers:
                self._turn()
        return ends

    def serve(
        self,
        *,
        on_progress: Callable[[str, bytes], None] | None = None,
        on_stage: Callable[[str, Work], None] | None = None,
        on_end: Callable[[str, JobEnd], None] | None = None,
    ) -> None:
        """Run jobs as they are added (`add`), until somebody calls `leave`; those under way then are not ended.

        `on_end` is called with a job's id and how it ended.  Exceptions are as in `run`.
        """
        context = self._open_context(on_progress, on_stage, on_end or _ignore)
        self._leaving = False

        def begin(launch: JobLaunch) -> None:
            driver = self._drivers[launch.job] = JobDriver(launch, context)
            driver.begin()

        self._begin = begin
        with self._closing_on_error():
            while not self._leaving:
                self._turn()
            for driver in self._drivers.values():
                driver.settle()

    def add(self, launch: JobLaunch) -> None:
        """Have `serve` run a job; one that is added after `leave` is not begun."""
        self.post(lambda: self._begin(launch))

    def call_off(self, job: str, reason: str) -> None:
        """End a job at once, without a result; an unknown job is ignored."""
        self.post(lambda: self._drivers[job].call_off(reason) if job in self._drivers else None)

    def finish(self, job: str, reason: str) -> None:
        """Ask a job to finish with what there is."""
        self.post(lambda: self._drivers[job].stop(reason) if job in self._drivers else None)

    def prioritize(self, job: str, priority: float) -> None:
        """Change a job's priority."""
        self.post(lambda: self._prioritize(job, priority))

    # what is elsewhere ----------------------------------------------------------------------------------------------

    def join(self, node: RemoteNode, answered: Callable[[str | None], None] = _ignore) -> None:
        """Let stages run on a node.  `answered` is called in the engine's thread, with None or why it cannot join."""

        def joining() -> None:
            try:
                self._nodes.join(node, lambda: answered(None))
            except EngineError as error:
                answered(str(error))

        self.post(joining)

    def lose(self, node: str, cause: str, host: ProcessHost | None = None) -> None:
        """Run nothing on a node for now, and count what runs there as lost; only if it is that of `host`, if given."""
        self.post(lambda: self._nodes.lose(node, cause, host))

    def devices(self, type: str) -> int:
        """Returns how many devices of a type can be used; to be called in the engine's thread."""
        return self._inventory.count(type)

    def why_no_device(self, type: str) -> str:
        """Returns why no device of a type can be used, "" if one can; to be called in the engine's thread."""
        return self._inventory.why_none(type)

    def heard(self, node: str, process: int, data: bytes) -> None:
        """A process on a node has sent these bytes."""
        self.post(lambda: self._launcher.heard(node, process, data))

    def printed(self, node: str, process: int, data: bytes) -> None:
        """A process on a node has printed this."""
        self.post(lambda: self._launcher.printed(node, process, data))

    def ended(self, node: str, process: int, how: str) -> None:
        """A process on a node is gone; `how` says how it ended."""
        self.post(lambda: self._launcher.ended(node, process, how))

    # ----------------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Make `serve` return at once; what is committed stays, and the jobs can be resumed."""

        def leaving() -> None:
            self._leaving = True

        self.post(leaving)

    def post(self, act: Callable[[], None]) -> None:
        """Have the engine's thread do something soon; its exceptions end the run."""
        self._posted.append(act)
        self._reactor.wake()

    def stop(self, reason: str) -> None:
        """Ask all jobs to finish with what there is; may be called from any thread and from signal handlers.

        Items that run are completed; those of droppable works that have not begun are left out.
        """
        self.post(lambda: self._stop(reason))

    def close(self, at_once: bool = False) -> None:
        """End all processes, and take no more jobs.

        Where no job is under way, idle workers are asked to leave first, unless it must be `at_once`.
        """
        if self._closed:
            return
        self._closed = True
        self._begin = _ignore
        try:
            if not at_once and not self._drivers:
                self._let_workers_leave()
        finally:
            self._reactor.close()
            self._log.close()

    def _let_workers_leave(self) -> None:
        self._pool.dismiss()
        patient = [True]
        self._reactor.set_alarm("leave", self._clock() + self._settings.leave_timeout_s, patient.clear)
        while patient and self._reactor.children:
            self._turn()

    def _open_context(
        self,
        on_progress: Callable[[str, bytes], None] | None,
        on_stage: Callable[[str, Work], None] | None,
        on_end: Callable[[str, JobEnd], None],
    ) -> EngineContext:
        self._check_open()

        def leave(job: str) -> None:
            end = self._drivers.pop(job).job.end
            assert end is not None
            on_end(job, end)

        def left(job: str) -> None:
            self._dispatch.afterwards(lambda: leave(job))  # more may have been decided about it

        return EngineContext(
            self._reactor,
            self._launcher,
            self._nodes,
            self._pool,
            self._journal,
            self._log,
            self._settings,
            self._clock,
            tell=self._dispatch.tell,
            progressed=on_progress or _ignore,
            stage_began=on_stage or _ignore,
            left=left,
            stalled=[],
        )

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close(at_once=True)
            raise

    def _turn(self) -> None:
        self._reactor.turn(sleeping=not self._posted, between=self._do_what_is_posted)

    def _do_what_is_posted(self) -> None:
        for _ in range(len(self._posted)):  # what is posted meanwhile must wait: processes and deadlines come first
            self._posted.popleft()()

    def _stop(self, reason: str) -> None:
        for driver in list(self._drivers.values()):
            driver.stop(reason)

    def _prioritize(self, job: str, priority: float) -> None:
        driver = self._drivers.get(job)
        if driver is not None and driver.job.end is None:
            self._dispatch.tell(PriorityChanged(self._clock(), job, priority))

    def _does_without(self, place: str, cause: str) -> bool:
        """Take a place out of use if the run can go on without it; returns whether it can.

        It can without a place that a node brought, and without a device if another one of its type is left.
        """
        if self._quarantine.guards(place):
            self._quarantine.isolate(place, cause)
            return True
        if not self._inventory.can_do_without(place):
            return False
        self._log.write("engine", f"{place} is given up; {cause}")
        self._inventory.lose(place, cause)
        return True

    def _served(self, place: str | None, status: ItemStatus, cause: str) -> None:
        """An item has ended at a place."""
        if status is ItemStatus.OK:
            self._quarantine.did_well(place)
        else:
            self._quarantine.lost_an_item(place, cause)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed; make another one")


def _refuse(_: JobLaunch) -> None:
    raise EngineError("jobs are added to an engine that serves")
