"""One item on its way through one process: sent, waited for, answered, or ended with the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kintune.core.messages import Begin, Item, ItemDone, ItemFailed, ItemStatus
from kintune.wire.reading import tidy

__all__ = ["Errand", "ItemEnd"]


class ItemEnd(msgspec.Struct, frozen=True):
    """How one item ended, `seconds` after it was sent.

    `refused` means that no retry can help.
    """

    status: ItemStatus
    payload: bytes = b""
    cause: str = ""
    seconds: float = 0.0
    refused: bool = False

    @property
    def lost(self) -> bool:
        """Whether the process ended with the item, by its own fault or for taking too long."""
        return self.status in (ItemStatus.CRASHED, ItemStatus.TIMED_OUT)


@dataclass
class Errand:
    """An item for a process, with whom to tell how it ended; `sent_at` is None until it is on its way.

    `files` are paths of the front that the stage's items name.  `owner` is whatever the one who made it recognises it
    by.
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
        """What the answer says."""
        seconds = now - (self.sent_at or now)
        if isinstance(answer, ItemDone):
            return ItemEnd(ItemStatus.OK, answer.payload, seconds=seconds)
        return ItemEnd(ItemStatus.FAILED, cause=tidy(answer.cause), seconds=seconds, refused=answer.refused)

    def died(self, status: ItemStatus, cause: str, now: float) -> ItemEnd:
        """The process was killed, or killed itself, with the item."""
        return ItemEnd(status, cause=cause, seconds=now - (self.sent_at or now))
