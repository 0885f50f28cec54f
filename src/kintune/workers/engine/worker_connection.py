"""The connection to one process, a worker or a job's own process, which does one item at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import msgspec

from kintune.core.messages import Begin, Hello, Item, ItemDone, ItemFailed, ItemStatus
from kintune.errors import WireError
from kintune.wire.channel import tidy
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.process import Child
from kintune.workers.engine.reactor import Reactor

__all__ = ["ItemEnd", "WorkItem", "WorkerConnection"]


class WorkerConnection:
    """Sends items to one process, sends each stage's context once, and keeps the deadline of what is running."""

    def __init__(self, child: Child, reactor: Reactor, clock: Callable[[], float]) -> None:
        self.child = child
        self.hello: Hello | None = None
        self.stale_answers = 0
        self._reactor = reactor
        self._clock = clock
        self._work_item: WorkItem | None = None
        self._begun: tuple[str, int] | None = None
        self._brought = False

    @property
    def work_item(self) -> WorkItem | None:
        """The item that the process was given, whether it was sent or waits for the process to be up."""
        return self._work_item

    def greet(self, hello: Hello, kind: str) -> None:
        """The process is up.

        Raises:
            WireError: it is another kind of process, or of another version.
        """
        if (hello.worker, hello.version) != (kind, WIRE_VERSION):
            raise WireError(
                f"{self.child.name}: expected a {kind!r} worker of version {WIRE_VERSION}, got {hello.worker!r} of "
                f"version {hello.version}; are two versions of kintune installed?"
            )
        if self.hello is not None:
            raise WireError(f"{self.child.name} says hello again")
        self.hello = hello

    def give(self, work_item: WorkItem) -> None:
        """Take this item; `send` sets it on its way."""
        assert self._work_item is None
        self._work_item = work_item

    def send(self, late: Callable[[], None]) -> None:
        """Set the item on its way; `late` is called once its time is over."""
        work_item = self._work_item
        assert work_item is not None
        assert work_item.sent_at is None
        work_item.sent_at = now = self._clock()
        self._reactor.set_deadline(self._alarm, now + work_item.timeout_s, late)
        try:
            if self._begun != work_item.stage:
                if work_item.files or self._brought:
                    self.child.bring(work_item.files)
                    self._brought = bool(work_item.files)
                self._reactor.send(self.child, work_item.begin)
                self._begun = work_item.stage
            self._reactor.send(self.child, work_item.item)
        except WireError as error:
            answer = ItemFailed(work_item.item.stage, work_item.item.attempt, work_item.item.index, str(error))

            def over_the_limit() -> None:
                self.answer(answer)

            self._reactor.set_alarm(self._alarm, now, over_the_limit)

    def answer(self, answer: ItemDone | ItemFailed) -> bool:
        """The process answers: end the item, or count a stale answer; returns whether it was the item's."""
        work_item = self._work_item
        if work_item is None or not work_item.is_answered_by(answer):
            self.stale_answers += 1
            return False
        self._clear()
        work_item.done(work_item.end(answer, self._clock()))
        return True

    def death(self, status: ItemStatus, cause: str) -> None:
        """The process is gone: end the item with this status, if it was sent."""
        work_item = self._clear()
        if work_item is not None and work_item.sent_at is not None:
            work_item.done(work_item.died(status, cause, self._clock()))

    def withdraw(self) -> WorkItem | None:
        """Forget the item without ending it; returns it."""
        return self._clear()

    @property
    def _alarm(self) -> Hashable:
        return (self.child, "item")

    def _clear(self) -> WorkItem | None:
        self._reactor.clear_alarm(self._alarm)
        work_item, self._work_item = self._work_item, None
        return work_item


class ItemEnd(msgspec.Struct, frozen=True):
    """How one item ended, `seconds` after it was sent.

    `refused` means that no retry can help, `unwritten` that a file could not be written for now.
    """

    status: ItemStatus
    payload: bytes = b""
    cause: str = ""
    seconds: float = 0.0
    refused: bool = False
    unwritten: bool = False

    @property
    def lost(self) -> bool:
        """Whether the process ended with the item, by its own fault or for taking too long."""
        return self.status in (ItemStatus.CRASHED, ItemStatus.TIMED_OUT)


@dataclass
class WorkItem:
    """An item for a process; `done` is called with how it ended.  `sent_at` is None until it is sent.

    `files` are paths of the front that the stage's items name.  By `owner`, whoever made the item recognises it.
    """

    owner: object
    begin: Begin
    item: Item
    timeout_s: float
    done: Callable[[ItemEnd], None]
    files: tuple[str, ...] = ()
    sent_at: float | None = None

    @property
    def stage(self) -> tuple[str, int]:
        """The stage and attempt that the process must have begun."""
        return (self.begin.stage, self.begin.attempt)

    def is_answered_by(self, answer: ItemDone | ItemFailed) -> bool:
        """Whether `answer` is to this item, not to one of an earlier attempt."""
        asked = (self.item.stage, self.item.attempt, self.item.index)
        return self.sent_at is not None and asked == (answer.stage, answer.attempt, answer.index)

    def end(self, answer: ItemDone | ItemFailed, now: float) -> ItemEnd:
        """Returns how the item ended, as the answer says."""
        seconds = now - (self.sent_at or now)
        if isinstance(answer, ItemDone):
            return ItemEnd(ItemStatus.OK, answer.payload, seconds=seconds)
        return ItemEnd(
            ItemStatus.FAILED,
            cause=tidy(answer.cause),
            seconds=seconds,
            refused=answer.refused,
            unwritten=answer.unwritten,
        )

    def died(self, status: ItemStatus, cause: str, now: float) -> ItemEnd:
        """Returns how the item ended when its process was killed or crashed."""
        return ItemEnd(status, cause=cause, seconds=now - (self.sent_at or now))
