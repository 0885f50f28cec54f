"""What an agent and its front say to each other.

An agent looks after a machine: it joins, and then starts, feeds, listens to and kills processes as it is told.  The
words of these processes pass through as bytes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.wire.child import ResourceLimits

__all__ = [
    "Beat",
    "Ended",
    "FromAgent",
    "Heard",
    "Kill",
    "Launch",
    "Printed",
    "Say",
    "ToAgent",
    "TurnedAway",
    "Welcome",
]


# front -> agent -------------------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The agent has joined; it is to say something at least every `beat_s` seconds, or else counts as lost."""

    beat_s: float


class TurnedAway(msgspec.Struct, frozen=True, tag="turned_away"):
    """The agent cannot join, or no longer; `cause` says why.  It is of no use to ask again unless `later`."""

    cause: str
    later: bool = False


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """Start `python -m module arguments` with a channel to the front, and call it `process` from now on."""

    process: int
    module: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    limits: ResourceLimits = ResourceLimits()


class Say(msgspec.Struct, frozen=True, tag="say"):
    """Pass these bytes on to the process."""

    process: int
    data: bytes


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """Kill the process with its children."""

    process: int


ToAgent: TypeAlias = Welcome | TurnedAway | Launch | Say | Kill


# agent -> front -------------------------------------------------------------------------------------------------------


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """The process says this."""

    process: int
    data: bytes


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """It has printed this."""

    process: int
    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """It is gone, or could not be started; nothing more is said of it."""

    process: int
    how: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The agent is there."""


FromAgent: TypeAlias = Heard | Printed | Ended | Beat
