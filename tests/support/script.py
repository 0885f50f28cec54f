"""What scripted workers and jobs can be told to do."""

from __future__ import annotations

from enum import Enum

import msgspec

from kintune.core.messages import Work

__all__ = ["Act", "Deed", "Moment", "Plot", "Trap"]


class Act(str, Enum):
    """What becomes of an item."""

    ECHO = "echo"  # answer with its text
    FAIL = "fail"  # raise
    REFUSE = "refuse"  # raise an InputError
    FULL = "full"  # raise a StorageError
    KILL = "kill"  # die by the signal `number`
    EXIT = "exit"  # leave with the code `number`
    HANG = "hang"  # never return, deaf to everything
    FLOOD = "flood"  # print its text `number` times, or without end if that is 0
    BIG = "big"  # answer with `number` bytes
    GARBAGE = "garbage"  # say what is no message
    UNWELL = "unwell"  # say that nothing can be trusted here
    READ = "read"  # answer with what the file holds that its text names
    ORPHAN = "orphan"  # start a process that leaves the group and keeps the output open, and answer with its number
    MAKE = "make"  # write its text into the file that it names, for the front, and answer with nothing
    STALE = "stale"  # answer an item that nobody asked for, then echo


class Deed(msgspec.Struct, frozen=True):
    """An item's payload: what to do.  With `once`, a path, it is done only while no file is there; later it echoes."""

    act: Act = Act.ECHO
    text: str = ""
    number: int = 0
    once: str = ""

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(self)


class Moment(str, Enum):
    """When a job's process can be made to die."""

    START = "start"
    OPEN = "open"
    ACCEPT = "accept"
    CLOSED = "closed"
    STOP = "stop"


class Trap(msgspec.Struct, frozen=True):
    """Die by SIGKILL at the `number`-th such moment of a process; with `once`, a path, only if no file is there yet."""

    moment: Moment
    number: int = 0
    once: str = ""


class Plot(msgspec.Struct, frozen=True):
    """A job's specification: it offers each round once all stages of the last one are closed, and then finishes.

    Where something was committed before, opening it takes `opening_s`.
    """

    rounds: tuple[tuple[Work, ...], ...]
    traps: tuple[Trap, ...] = ()
    refuse: str = ""
    full: str = ""
    opening_s: float = 0
    silent: bool = False

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(self)
