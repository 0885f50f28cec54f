"""A job's own process: opened from its events, listened to, and replaced when it dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from kintune.core.messages import (
    Finished,
    FromJob,
    Hello,
    ItemDone,
    ItemFailed,
    ItemStatus,
    OfferStages,
    Open,
    Progress,
    Shutdown,
    Stop,
)
from kintune.errors import WireError
from kintune.wire.job_loop import JOB_WORKER
from kintune.workers.engine.launcher import Launcher
from kintune.workers.engine.process import AnyCommand, Child
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.settings import EngineSettings
from kintune.workers.engine.worker_connection import WorkerConnection, WorkItem

__all__ = ["JobListener", "JobProcess"]


class JobListener(Protocol):
    """Callbacks for what a job's process says.

    `repeated_s` are the seconds that those stages took which the process repeats when it is opened.
    """

    repeated_s: float

    def opening(self) -> Iterable[Open | Stop]:
        """Returns the messages that the process is sent first, now that it is up."""

    def offered(self, offer: OfferStages) -> None:
        """The job offers stages that are to be done next."""

    def progressed(self, payload: bytes) -> None:
        """The job reports progress; `payload` is to be shown."""

    def finished(self, finished: Finished) -> None:
        """The job is over."""

    def refused(self, cause: str) -> None:
        """What the job was given is wrong."""

    def unwritten(self, cause: str) -> None:
        """A file that the job needs cannot be written for now."""

    def not_begun(self, work_item: WorkItem) -> None:
        """The process dies before it was sent this item; the next one can do it."""

    def died(self, how: str) -> None:
        """The process is gone, with its item if it had one."""

    def left(self) -> None:
        """The process that was asked to leave is gone."""


class JobProcess:
    """One process of a job; another one takes its place when it dies."""

    def __init__(
        self,
        job: str,
        command: AnyCommand,
        listener: JobListener,
        reactor: Reactor,
        launcher: Launcher,
        settings: EngineSettings,
        clock: Callable[[], float],
        files: Sequence[str] = (),
    ) -> None:
        """Start it.  It is opened once it is up and, if it runs elsewhere, has the `files` of the front.

        Raises:
            EngineError: the program cannot be started.
        """
        child = launcher.start(f"job {job}", command, "job")
        self._connection = WorkerConnection(child, reactor, clock)
        self._listener = listener
        self._reactor = reactor
        self._settings = settings
        self._clock = clock
        self._opened = False
        self._leaving = False
        self._dead = False
        reactor.attach(child, self)
        if files:
            child.bring(files)
        self._expect("to say hello", settings.start_timeout_s)

    @property
    def tail(self) -> str:
        """The last lines of its output."""
        return self._connection.child.tail

    @property
    def stale_answers(self) -> int:
        """How many of its answers belonged to no item that was under way."""
        return self._connection.stale_answers

    @property
    def free(self) -> bool:
        """Whether it can take an item."""
        return self._connection.work_item is None and not self._dead

    def do(self, work_item: WorkItem) -> None:
        """Have it do one item of the job's own stages; the item waits until the job is open."""
        self._connection.give(work_item)
        if self._opened:
            self._connection.send(self._is_late)

    def tell(self, message: msgspec.Struct) -> None:
        """Send a message, if the process is up.  Before, none is needed: its opening tells all that is committed."""
        if self._connection.hello is not None and not self._leaving and not self._dead:
            self._reactor.send(self._connection.child, message)

    def expect_a_reply(self, expected: bool) -> None:
        """Set, or clear, the deadline by which the process must say what is to be done next."""
        if not self._opened or self._leaving or self._dead:
            return
        if expected:
            self._expect("to say what is to be done next", self._settings.reply_timeout_s)
        else:
            self._reactor.clear_alarm(self._alarm)

    def abort(self, why: str) -> None:
        """Kill it; the item that it is doing has crashed, and the listener hears that it died."""
        if not self._dead and not self._leaving:
            self._kill(ItemStatus.CRASHED, why)

    def leave(self) -> None:
        """Ask it to exit, and kill it when it takes too long; the listener hears when it is gone."""
        if self._dead:
            self._listener.left()
            return
        self.tell(Shutdown())
        self._leaving = True
        self._connection.withdraw()
        self._reactor.set_alarm(self._alarm, self._clock() + self._settings.leave_timeout_s, self._kill_leaving)

    def heard(self, message: FromJob) -> None:
        """Pass on what it says.  One that says what cannot be read has died: other jobs go on."""
        try:
            self._heard(message)
        except msgspec.MsgspecError as error:
            self._kill(ItemStatus.CRASHED, f"said what cannot be read: {error}")

    def _heard(self, message: FromJob) -> None:
        if self._leaving:
            return
        match message:
            case Hello():
                try:
                    self._connection.greet(message, JOB_WORKER)
                except WireError as error:
                    self._kill(ItemStatus.CRASHED, str(error))
                    return
                for opening in self._listener.opening():
                    self.tell(opening)
                if not self._leaving:
                    again = self._settings.repeat_factor * self._listener.repeated_s
                    self._expect("to open the job", self._settings.reply_timeout_s + again)
            case ItemFailed(stage="", refused=True):
                self._listener.refused(message.cause)
            case ItemFailed(stage="", unwritten=True):
                self._listener.unwritten(message.cause)
            case ItemDone() | ItemFailed():
                self._connection.answer(message)
            case OfferStages():
                self._open()
                self._listener.offered(message)
            case Progress():
                self._listener.progressed(message.payload)
            case Finished():
                self._open()
                self._listener.finished(message)

    def ended(self, how: str) -> None:
        """The process has ended; the listener hears that it left, if it was asked to, or else that it died."""
        self._dead = True
        self._reactor.clear_alarm(self._alarm)
        if self._leaving:
            self._listener.left()
            return
        self._die(ItemStatus.CRASHED, how)

    @property
    def _alarm(self) -> tuple[Child, str]:
        return (self._connection.child, "reply")

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._reactor.clear_alarm(self._alarm)
            if self._connection.work_item is not None:
                self._connection.send(self._is_late)

    def _expect(self, what: str, timeout_s: float) -> None:
        def silent() -> None:
            self._kill(ItemStatus.CRASHED, f"took more than {timeout_s:g} s {what}")

        self._reactor.set_deadline(self._alarm, self._clock() + timeout_s, silent)

    def _is_late(self) -> None:
        work_item = self._connection.work_item
        assert work_item is not None
        self._kill(ItemStatus.TIMED_OUT, f"exceeded {work_item.timeout_s:g} s")

    def _kill(self, status: ItemStatus, why: str) -> None:
        self._dead = True
        self._reactor.clear_alarm(self._alarm)
        self._reactor.detach(self._connection.child)
        self._connection.child.kill(why)
        self._die(status, why)

    def _die(self, status: ItemStatus, why: str) -> None:
        work_item = self._connection.work_item
        if work_item is not None and work_item.sent_at is None:
            self._connection.withdraw()
            self._listener.not_begun(work_item)
        self._connection.death(status, why)
        self._listener.died(why)

    def _kill_leaving(self) -> None:
        self._reactor.detach(self._connection.child)
        self._connection.child.kill("killed: it was asked to leave and did not")
        self._listener.left()
