"""What an agent and its front say to each other, each a msgpack message of its own.

An agent serves a machine: it joins, and then starts, feeds, listens to and kills processes as it is told.  What these
processes say is passed on as bytes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.device import Peak
from kintune.core.version import __version__
from kintune.errors import WireError
from kintune.wire.channel import UNREADABLE
from kintune.wire.child import ResourceLimits

__all__ = [
    "FLEET_VERSION",
    "Beat",
    "Clear",
    "Collect",
    "Ended",
    "FileGone",
    "FilePart",
    "FromAgent",
    "Heard",
    "Join",
    "Kill",
    "Launch",
    "Made",
    "Need",
    "OfferedDevice",
    "Printed",
    "Say",
    "ToAgent",
    "TurnedAway",
    "Want",
    "Welcome",
    "from_agent",
    "to_agent",
]

FLEET_VERSION = f"{__version__}+3"
"""What agents and fronts have in common: the version of Kintune, which builds programs, and that of these messages."""


# front -> agent -------------------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The agent has joined; it is to say something at least every `beat_s` seconds, or else counts as lost."""

    beat_s: float


class TurnedAway(msgspec.Struct, frozen=True, tag="turned_away"):
    """The agent cannot join, or no longer; `cause` says why.  Asking again is of no use unless `later`."""

    cause: str
    later: bool = False


class Collect(msgspec.Struct, frozen=True):
    """Which files of a process the front wants: those whose paths begin with `prefix`, in its directory.

    A machine on which `token_path` holds `token` sees that directory: there the process writes into it.
    """

    prefix: str
    token_path: str = ""
    token: str = ""


class Launch(msgspec.Struct, frozen=True, tag="launch"):
    """Start `python -m module arguments` with a channel to the front, and call it `process` from now on."""

    process: int
    module: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    limits: ResourceLimits = ResourceLimits()
    collect: Collect | None = None


class Say(msgspec.Struct, frozen=True, tag="say"):
    """Pass these bytes on to the process."""

    process: int
    data: bytes


class Need(msgspec.Struct, frozen=True, tag="need"):
    """The process will look under `path` for a file of `size` bytes with this SHA-256 digest.

    It hears nothing that is said after this until the file is there.
    """

    process: int
    path: str
    size: int
    digest: str


class FilePart(msgspec.Struct, frozen=True, tag="part"):
    """A part of a file that was asked for; parts come in order."""

    digest: str
    offset: int
    data: bytes


class FileGone(msgspec.Struct, frozen=True, tag="gone"):
    """A file that was asked for cannot be sent; `cause` says why."""

    digest: str
    cause: str


class Clear(msgspec.Struct, frozen=True, tag="clear"):
    """The process will look for no file that was brought before this."""

    process: int


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """Kill the process with its children."""

    process: int


ToAgent: TypeAlias = Welcome | TurnedAway | Launch | Say | Need | FilePart | FileGone | Clear | Kill


# agent -> front -------------------------------------------------------------------------------------------------------


class OfferedDevice(msgspec.Struct, frozen=True):
    """A device of an agent's machine: what it is called there, and what its worker says of it (`Hello.about`).

    `type` is its owner's name for devices like it, `arguments` and `limits` are those of its worker, `peak` is its
    measured peak.
    """

    name: str
    type: str
    arguments: tuple[str, ...]
    about: bytes
    peak: Peak | None = None
    limits: ResourceLimits = ResourceLimits()


class Join(msgspec.Struct, frozen=True, tag="join"):
    """The first message: which machine this is, and what it offers.

    `identity` tells one machine from another, whatever it is called.  `cores` and `memory_mb` are for builds; a machine
    that only has devices offers none.  `limits` are those of build workers.
    """

    name: str
    identity: str
    fleet_version: str
    wire_version: str
    cores: int = 0
    memory_mb: int = 0
    limits: ResourceLimits = ResourceLimits()
    devices: tuple[OfferedDevice, ...] = ()


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """The process says this."""

    process: int
    data: bytes


class Want(msgspec.Struct, frozen=True, tag="want"):
    """The file with this digest, which a process needs, is to be sent; `again` if what arrived did not match it."""

    digest: str
    again: bool = False


class Made(msgspec.Struct, frozen=True, tag="made"):
    """A part of a file of `size` bytes that the process has made and the front wants under `path`; parts come in order.

    `digest` is the SHA-256 digest of the whole file.
    """

    process: int
    path: str
    offset: int
    size: int
    digest: str
    data: bytes


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """The process has printed this."""

    process: int
    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The process has ended, or could not be started; nothing more is said of it."""

    process: int
    how: str


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The agent is there."""


FromAgent: TypeAlias = Join | Heard | Want | Made | Printed | Ended | Beat


_TO_AGENT: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
_FROM_AGENT: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)


def to_agent(data: bytes) -> ToAgent:
    """Decode a message of a front.

    Raises:
        WireError: it is not one.
    """
    try:
        return _TO_AGENT.decode(data)
    except UNREADABLE as error:
        raise WireError(f"{len(data)} bytes that no front says: {error}") from error


def from_agent(data: bytes) -> FromAgent:
    """Decode a message of an agent.

    Raises:
        WireError: it is not one.
    """
    try:
        return _FROM_AGENT.decode(data)
    except UNREADABLE as error:
        raise WireError(f"{len(data)} bytes that no agent says: {error}") from error
