"""The workers of the engine: started when needed, kept while they live, replaced when they die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from kintune.core.messages import FromJob, Hello, ItemDone, ItemFailed, ItemStatus, Shutdown
from kintune.errors import EngineError, InputError, WireError
from kintune.wire.channel import tidy
from kintune.wire.confinement import Confinement
from kintune.workers.engine.launcher import Launcher
from kintune.workers.engine.process import AnyCommand, Command, RemoteCommand
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.worker_connection import ItemEnd, WorkerConnection, WorkItem

__all__ = ["Slot", "WorkerPool"]


class Slot(NamedTuple):
    """A set of interchangeable workers: those of a kind, at a place (a device, or a host that is not this one).

    A device has one worker at work, unless it may be crowded.  Workers with an `owner` do items of that job alone, and
    see its files alone.
    """

    kind: str
    place: str | None = None
    single: bool = False
    owner: str = ""

    @classmethod
    def on_device(cls, kind: str, device: str | None) -> Slot:
        """Returns the slot of a device or, without one, that of this host."""
        return cls(kind, device, single=device is not None)


class WorkerPool:
    """Has items done by workers.

    A worker that dies with an item ends it as crashed, one that is too late as timed out; neither is asked again.
    One that dies before it is up costs its item nothing: another is started, until that has failed too often.
    """

    def __init__(
        self,
        reactor: Reactor,
        launcher: Launcher,
        commands: Mapping[str, AnyCommand],
        log: ProcessLog,
        settings: EngineSettings,
        clock: Callable[[], float],
        *,
        crowded: bool = False,
        elsewhere: Collection[str] = (),
        useless: Callable[[str, str], bool] = lambda _place, _cause: False,
        served: Callable[[str | None, ItemStatus, str], None] = lambda _place, _status, _cause: None,
    ) -> None:
        """Make a pool without workers.

        Args:
            reactor: where their messages are awaited.
            launcher: starts them.
            commands: how workers are started, by kind, or by "kind@place" for a device or a host.
            log: takes their output.
            settings: how long they may take, and how often fail to start.
            clock: seconds, never going back.
            crowded: whether a device may have more than one worker.
            elsewhere: the kinds of workers that places which join later may bring.
            useless: called with a place whose workers cannot be started or whose device is unwell, and why; returns
                whether the run can do without it.
            served: called with a place, how an item ended there, and the cause.
        """
        self._useless = useless
        self._served = served
        self._reactor = reactor
        self._launcher = launcher
        self._commands = dict(commands)
        self._log = log
        self._settings = settings
        self._clock = clock
        self._crowded = crowded
        self._elsewhere = frozenset(elsewhere)
        self._workers: dict[Slot, list[_Worker]] = {}
        self._failures: dict[Slot, int] = {}  # to start, in a row
        self._started = 0
        self._confinements: dict[str, Confinement] = {}
        self.stale_answers = 0

    def confine(self, job: str, confinement: Confinement) -> None:
        """Give a job workers of its own on this machine, which can do no more than the confinement says."""
        self._confinements[job] = confinement

    def release(self, job: str) -> None:
        """End the workers that a job has for itself; it is over."""
        if self._confinements.pop(job, None) is None:
            return
        for slot in [slot for slot in self._workers if slot.owner == job]:
            for worker in list(self._workers[slot]):
                self._remove(worker)
                worker.connection.withdraw()
                worker.connection.child.kill("ended: its job is over")
            del self._workers[slot]
            self._failures.pop(slot, None)

    def owned(self, slot: Slot, job: str) -> Slot:
        """Returns the slot of the job's own workers of this kind, if it has such; else the slot of all jobs."""
        command = self._command(slot)
        alone = job in self._confinements and isinstance(command, Command) and not command.outside
        return slot._replace(owner=job) if alone else slot

    def learn(self, commands: Mapping[str, AnyCommand]) -> None:
        """Add commands that start workers."""
        self._commands.update(commands)

    def has_own(self, kind: str, place: str | None) -> bool:
        """Whether this place has its own command for workers of this kind."""
        return f"{kind}@{place}" in self._commands

    def knows(self, kind: str) -> bool:
        """Whether there is a command for workers of this kind, or may be one."""
        return (
            kind in self._commands
            or kind in self._elsewhere
            or any(name.startswith(f"{kind}@") for name in self._commands)
        )

    def submit(self, slot: Slot, work_item: WorkItem) -> bool:
        """Have an idle worker of `slot` do the item, a new one if all are busy.

        Returns False, and does nothing, if the slot is that of a device whose only worker is busy.

        Raises:
            EngineError: no worker can be started.
        """
        workers = self._workers.setdefault(slot, [])
        if slot.single and not self._crowded and self._is_busy(slot):
            return False
        idle = next((worker for worker in workers if worker.connection.work_item is None), None)
        if idle is None:
            idle = self._start(slot)
        idle.do(work_item)
        return True

    def _is_busy(self, slot: Slot) -> bool:
        """Whether a worker of the slot's kind is at work at its place, for whichever job."""
        return any(
            worker.connection.work_item is not None
            for other, workers in self._workers.items()
            if other[:2] == slot[:2]
            for worker in workers
        )

    def about(self, slot: Slot) -> Hello | None:
        """What a worker of `slot` has said of itself; None, and one is started, until it has.

        Raises:
            EngineError: no worker can be started.
        """
        workers = self._workers.setdefault(slot, []) or [self._start(slot)]
        return next((worker.connection.hello for worker in workers if worker.connection.hello is not None), None)

    def kill_items(self, ours: Callable[[WorkItem], bool]) -> None:
        """Kill the workers whose item `ours` accepts; the items are not ended."""
        for worker in [worker for workers in self._workers.values() for worker in workers]:
            work_item = worker.connection.work_item
            if work_item is not None and ours(work_item):
                self._remove(worker)
                worker.connection.withdraw()
                worker.connection.child.kill("killed: its stage was cancelled")

    def dismiss(self) -> None:
        """Ask all idle workers to leave."""
        for workers in self._workers.values():
            for worker in workers:
                if worker.connection.work_item is None:
                    self._reactor.send(worker.connection.child, Shutdown())

    def _start(self, slot: Slot) -> _Worker:
        kind, place, _, owner = slot
        command = self._command(slot)
        if command is None:
            raise EngineError(f"no command is known that starts a {kind!r} worker")
        if owner and isinstance(command, Command):
            command = command.confined_to(self._confinements[owner].reading_only())
        self._started += 1
        name = f"{kind}@{place}" if slot.single else f"{kind}{f'@{place}' if place else ''}.{self._started}"
        child = self._launcher.start(name, command, "worker")
        worker = _Worker(self, slot, WorkerConnection(child, self._reactor, self._clock), self._failures.get(slot, 0))
        self._workers.setdefault(slot, []).append(worker)
        self._reactor.attach(child, worker)
        self._reactor.set_deadline(
            (child, "hello"), self._clock() + self._settings.start_timeout_s, worker.did_not_come_up
        )
        return worker

    def _remove(self, worker: _Worker) -> None:
        child = worker.connection.child
        self._reactor.detach(child)
        self._reactor.clear_alarm((child, "hello"))
        self._workers[worker.slot].remove(worker)
        self.stale_answers += worker.connection.stale_answers

    def _came_up(self, worker: _Worker) -> None:
        self._failures.pop(worker.slot, None)
        self._reactor.clear_alarm((worker.connection.child, "hello"))

    def _failed_to_start(self, worker: _Worker, how: str) -> None:
        work_item = worker.connection.withdraw()
        failures = self._failures.get(worker.slot, 0)
        if failures == worker.failures_before:  # else it was started side by side with one that is counted
            failures = self._failures[worker.slot] = failures + 1
        if failures >= self._settings.start_failures:
            self._failures.pop(worker.slot)
            child = worker.connection.child
            cause = f"{child.name}: {how} before it was up, {failures} times in a row"
            if worker.slot.owner:
                worker.refuse(work_item, cause)
            elif not self._does_without(worker.slot, cause):
                raise EngineError(f"{cause}:\n{child.tail}")
        elif work_item is not None:
            self.submit(worker.slot, work_item)

    def _is_useless(self, worker: _Worker, cause: str) -> bool:
        """A worker says that it is of no use at its place: kill it and return True if the run can do without that."""
        if not self._does_without(worker.slot, tidy(cause)):
            return False
        if worker in self._workers[worker.slot]:  # else it was killed when its place was taken out of use
            self._remove(worker)
            worker.connection.withdraw()
            worker.connection.child.kill("killed: it is of no use")
        return True

    def _believed(self, slot: Slot, answer: ItemDone | ItemFailed) -> ItemDone | ItemFailed:
        """Returns the answer without its marks `refused` and `unwritten` if the worker is remote.

        The item has then merely failed: other workers may do it, and the job does not end.
        """
        elsewhere = isinstance(self._command(slot), RemoteCommand)
        if elsewhere and isinstance(answer, ItemFailed):
            return msgspec.structs.replace(answer, refused=False, unwritten=False)
        return answer

    def _command(self, slot: Slot) -> AnyCommand | None:
        return self._commands.get(f"{slot.kind}@{slot.place}") or self._commands.get(slot.kind)

    def _does_without(self, slot: Slot, cause: str) -> bool:
        return slot.place is not None and self._useless(slot.place, cause)

    def _ended(self, worker: _Worker, status: ItemStatus, cause: str = "") -> None:
        self._served(worker.slot.place, status, cause)


class _Worker:
    """One worker; the reactor's listener for its process."""

    def __init__(self, pool: WorkerPool, slot: Slot, connection: WorkerConnection, failures_before: int) -> None:
        self.slot = slot
        self.connection = connection
        self.failures_before = failures_before
        self._pool = pool

    def do(self, work_item: WorkItem) -> None:
        self.connection.give(work_item)
        if self.connection.hello is not None:
            self.connection.send(self._is_late)

    def heard(self, message: FromJob) -> None:
        """Pass on what it says.  What a job's own worker should not say ends that job, and concerns no other."""
        try:
            self._heard(message)
        except (InputError, WireError) as error:
            if not self.slot.owner:
                raise
            work_item = self.connection.withdraw()
            self._pool._remove(self)
            self.connection.child.kill("killed: it refuses its work")
            self.refuse(work_item, str(error))

    def refuse(self, work_item: WorkItem | None, cause: str) -> None:
        """End an item, and with it its job, since no retry can help."""
        if work_item is not None:
            work_item.done(ItemEnd(ItemStatus.FAILED, cause=tidy(cause), refused=True))

    def _heard(self, message: FromJob) -> None:
        match message:
            case Hello():
                self._greet(message)
            case ItemFailed(stage="", refused=True):
                if not self._pool._is_useless(self, message.cause):
                    raise InputError(message.cause)
            case ItemFailed(unwell=True) if self._pool._is_useless(self, message.cause):
                pass
            case ItemDone() | ItemFailed():
                if self.connection.answer(self._pool._believed(self.slot, message)) and isinstance(message, ItemDone):
                    self._pool._ended(self, ItemStatus.OK)

    def ended(self, how: str) -> None:
        self._pool._remove(self)
        if self.connection.hello is None:
            self._pool._failed_to_start(self, how)
        else:
            self._die(ItemStatus.CRASHED, how)

    def did_not_come_up(self) -> None:
        self._pool._remove(self)
        self._pool._failed_to_start(self, self.connection.child.kill("said nothing"))

    def _is_late(self) -> None:
        work_item = self.connection.work_item
        assert work_item is not None
        self._pool._remove(self)
        how = self.connection.child.kill(f"exceeded {work_item.timeout_s:g} s")
        self._die(ItemStatus.TIMED_OUT, how)

    def _greet(self, hello: Hello) -> None:
        try:
            self.connection.greet(hello, self.slot.kind)
        except WireError as error:
            if self._pool._is_useless(self, str(error)):
                return
            raise
        self._pool._came_up(self)
        if self.connection.work_item is not None:
            self.connection.send(self._is_late)

    def _die(self, status: ItemStatus, how: str) -> None:
        if self.connection.work_item is not None:
            self._pool._ended(self, status, how)
        self.connection.death(status, how)
