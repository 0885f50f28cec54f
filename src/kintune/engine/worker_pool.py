"""The workers of the engine: started when needed, kept while they live, replaced when they die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kintune.engine.command import AnyCommand
from kintune.engine.desk import Desk
from kintune.engine.errand import Errand
from kintune.engine.launcher import Launcher
from kintune.engine.reactor import Reactor
from kintune.engine.run_log import RunLog
from kintune.engine.settings import EngineSettings
from kintune.errors import EngineError, InputError, WireError
from kintune.wire.messages import FromJob, Hello, ItemDone, ItemFailed, ItemStatus, Shutdown

__all__ = ["Slot", "WorkerPool"]


class Slot(NamedTuple):
    """What workers are interchangeable: those of a kind, at a place (a device, or a host that is not this one).

    A device has one worker, unless it may be crowded.
    """

    kind: str
    place: str | None = None
    single: bool = False

    @classmethod
    def on_device(cls, kind: str, device: str | None) -> Slot:
        """The slot of a device; without one, that of this host."""
        return cls(kind, device, single=device is not None)


class WorkerPool:
    """Does errands on workers.

    A worker that dies with an errand ends it as crashed, one that is too late as timed out; neither is asked again.
    One that dies before it is up costs its errand nothing: another is started, until that has failed too often.
    """

    def __init__(
        self,
        reactor: Reactor,
        launcher: Launcher,
        commands: Mapping[str, AnyCommand],
        log: RunLog,
        settings: EngineSettings,
        clock: Callable[[], float],
        *,
        crowded: bool = False,
        elsewhere: Collection[str] = (),
        lost: Callable[[str, str], bool] = lambda _device, _cause: False,
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
            lost: told of a device whose worker cannot be started, and why; whether the run can do without it.
        """
        self._lost = lost
        self._reactor = reactor
        self._launcher = launcher
        self._commands = dict(commands)
        self._log = log
        self._settings = settings
        self._clock = clock
        self._crowded = crowded
        self._elsewhere = frozenset(elsewhere)
        self._workers: dict[Slot, list[_Worker]] = {}
        self._failures: dict[Slot, int] = {}
        self._started = 0
        self.stale_answers = 0

    def learn(self, commands: Mapping[str, AnyCommand]) -> None:
        """Workers can be started so, too, from now on."""
        self._commands.update(commands)

    def has_own(self, kind: str, place: str | None) -> bool:
        """Whether workers of this kind are started otherwise at this place."""
        return f"{kind}@{place}" in self._commands

    def knows(self, kind: str) -> bool:
        """Whether there is a command for workers of this kind, or may be one."""
        return (
            kind in self._commands
            or kind in self._elsewhere
            or any(name.startswith(f"{kind}@") for name in self._commands)
        )

    def submit(self, slot: Slot, errand: Errand) -> bool:
        """Have an idle worker of `slot` do the errand, a new one if all are busy; False if the device's is busy.

        Raises:
            EngineError: no worker can be started.
        """
        workers = self._workers.setdefault(slot, [])
        idle = next((worker for worker in workers if worker.desk.errand is None), None)
        if idle is None:
            if slot.single and workers and not self._crowded:
                return False
            idle = self._start(slot)
        idle.do(errand)
        return True

    def about(self, slot: Slot) -> Hello | None:
        """What a worker of `slot` has said of itself; None, and one is started, until it has.

        Raises:
            EngineError: no worker can be started.
        """
        workers = self._workers.setdefault(slot, []) or [self._start(slot)]
        return next((worker.desk.hello for worker in workers if worker.desk.hello is not None), None)

    def kill_errands(self, ours: Callable[[Errand], bool]) -> None:
        """Kill the workers that are busy with such errands, and tell nobody."""
        for worker in [worker for workers in self._workers.values() for worker in workers]:
            errand = worker.desk.errand
            if errand is not None and ours(errand):
                self._remove(worker)
                worker.desk.withdraw()
                worker.desk.child.kill("killed: its stage was cancelled")

    def dismiss(self) -> None:
        """Ask all idle workers to leave."""
        for workers in self._workers.values():
            for worker in workers:
                if worker.desk.errand is None:
                    self._reactor.send(worker.desk.child, Shutdown())

    def _start(self, slot: Slot) -> _Worker:
        kind, place, _ = slot
        command = self._commands.get(f"{kind}@{place}") or self._commands.get(kind)
        if command is None:
            raise EngineError(f"no command is known that starts a {kind!r} worker")
        self._started += 1
        name = f"{kind}@{place}" if slot.single else f"{kind}{f'@{place}' if place else ''}.{self._started}"
        child = self._launcher.start(name, command, "worker")
        worker = _Worker(self, slot, Desk(child, self._reactor, self._clock))
        self._workers.setdefault(slot, []).append(worker)
        self._reactor.attach(child, worker)
        self._reactor.set_alarm(
            (child, "hello"), self._clock() + self._settings.start_timeout_s, worker.did_not_come_up
        )
        return worker

    def _remove(self, worker: _Worker) -> None:
        child = worker.desk.child
        self._reactor.detach(child)
        self._reactor.clear_alarm((child, "hello"))
        self._workers[worker.slot].remove(worker)
        self.stale_answers += worker.desk.stale_answers

    def _came_up(self, worker: _Worker) -> None:
        self._failures.pop(worker.slot, None)
        self._reactor.clear_alarm((worker.desk.child, "hello"))

    def _failed_to_start(self, worker: _Worker, how: str) -> None:
        errand = worker.desk.withdraw()
        failures = self._failures[worker.slot] = self._failures.get(worker.slot, 0) + 1
        if failures >= self._settings.start_failures:
            child, device = worker.desk.child, worker.slot.place if worker.slot.single else None
            cause = f"{child.name}: {how} before it was up, {failures} times in a row"
            if device is not None and self._lost(device, cause):
                self._log.write("engine", f"{device} is given up; {cause}")
                return
            raise EngineError(f"{cause}:\n{child.tail}")
        if errand is not None:
            self.submit(worker.slot, errand)


class _Worker:
    """One worker; the reactor's listener for its process."""

    def __init__(self, pool: WorkerPool, slot: Slot, desk: Desk) -> None:
        self.slot = slot
        self.desk = desk
        self._pool = pool

    def do(self, errand: Errand) -> None:
        self.desk.give(errand)
        if self.desk.hello is not None:
            self.desk.send(self._is_late)

    def heard(self, message: FromJob) -> None:
        match message:
            case Hello():
                self.desk.greet(message, self.slot.kind)
                self._pool._came_up(self)
                if self.desk.errand is not None:
                    self.desk.send(self._is_late)
            case ItemFailed(stage="", refused=True):
                raise InputError(message.cause)
            case ItemDone() | ItemFailed():
                self.desk.answer(message)
            case _:
                raise WireError(f"{self.desk.child.name} said {type(message).__name__}, which is for job processes")

    def ended(self, how: str) -> None:
        self._pool._remove(self)
        if self.desk.hello is None:
            self._pool._failed_to_start(self, how)
        else:
            self.desk.death(ItemStatus.CRASHED, how)

    def did_not_come_up(self) -> None:
        self._pool._remove(self)
        self._pool._failed_to_start(self, self.desk.child.kill("said nothing"))

    def _is_late(self) -> None:
        errand = self.desk.errand
        assert errand is not None
        self._pool._remove(self)
        how = self.desk.child.kill(f"exceeded {errand.timeout_s:g} s")
        self.desk.death(ItemStatus.TIMED_OUT, how)
