"""The front's side of the fleet: agents join, and their machines become outposts of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kintune.engine.command import KeptCommand
from kintune.engine.outposts import Outpost
from kintune.errors import InputError, StorageError, WireError
from kintune.fleet.line import Line, Mouth
from kintune.fleet.messages import (
    FLEET_VERSION,
    Beat,
    Ended,
    Heard,
    Join,
    Kill,
    Launch,
    Printed,
    Say,
    TurnedAway,
    Welcome,
    from_agent,
)
from kintune.fleet.parcel import parcel
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.worker import WIRE_VERSION

__all__ = ["TUNING", "Admit", "Admitted", "Front", "Hub", "Workers"]

_JOIN_S = 10.0
_SKIPPED = 4  # beats that may be missed
_NAME = re.compile(r"[A-Za-z0-9][\w.:,-]{0,63}", re.ASCII)


class Admitted(NamedTuple):
    """A device that may join: its type, as the scheduler knows it, and what its worker is told besides."""

    type: str
    arguments: tuple[str, ...] = ()


Admit = Callable[[Join], Sequence[Admitted]]
"""Says of each device of a machine as what it may join; InputError turns the machine away.  Called in a thread."""


class Workers(NamedTuple):
    """Which of our programs do stages of each kind, on hosts and on devices."""

    on_hosts: Mapping[str, str]
    on_devices: Mapping[str, str]


TUNING = Workers({"build": "kintune.measure.build_worker"}, {"device": "kintune.measure.device_worker"})
"""Those of tuning jobs."""


class Front(Protocol):
    """The engine, as the hub needs it; its methods may be called from any thread."""

    def join(self, outpost: Outpost, refused: Callable[[str], None]) -> None:
        """Stages can run there from now on."""

    def lose(self, outpost: str, cause: str) -> None:
        """Nothing can run there for now."""

    def heard(self, keeper: str, process: int, data: bytes) -> None:
        """A kept process says this."""

    def printed(self, keeper: str, process: int, data: bytes) -> None:
        """It has printed this."""

    def ended(self, keeper: str, process: int, how: str) -> None:
        """It is gone."""


class Hub:
    """Attends agents, any number at once, in one event loop."""

    def __init__(self, front: Front, beat_s: float = 2.0, workers: Workers = TUNING) -> None:
        self._front = front
        self._workers = workers
        self._beat_s = beat_s

    async def attend(self, line: Line, admit: Admit) -> None:
        """One agent, from its first message until the line is cut; `admit` says whether, and as what, it may join."""
        loop = asyncio.get_running_loop()
        async with Mouth(line) as mouth:
            try:
                join = await self._hear_join(line)
                admitted = await asyncio.to_thread(admit, join)
                outpost = _outpost(join, admitted, _Keeper(mouth, loop), self._workers)
            except StorageError as error:
                await _turn_away(line, TurnedAway(str(error), later=True))
                return
            except (InputError, WireError) as error:
                await _turn_away(line, TurnedAway(str(error)))
                return
            refusal: asyncio.Future[str] = loop.create_future()
            self._front.join(outpost, lambda cause: _settle(loop, refusal, cause))
            mouth.say(Welcome(self._beat_s))
            cause = await self._listen(line, outpost.name, refusal)
            if refusal.done():
                await _turn_away(line, TurnedAway(refusal.result(), later=True))
            else:
                self._front.lose(outpost.name, cause)

    async def _hear_join(self, line: Line) -> Join:
        try:
            data = await asyncio.wait_for(line.receive(), _JOIN_S)
        except asyncio.TimeoutError:
            raise WireError(f"nothing was said for {_JOIN_S:g} s") from None
        message = None if data is None else from_agent(data)
        if not isinstance(message, Join):
            raise WireError("an agent begins with whom it speaks for")
        _check(message)
        return message

    async def _listen(self, line: Line, name: str, refusal: asyncio.Future[str]) -> str:
        """Tell the engine what the agent says, until it says no more; why that is."""
        while not refusal.done():
            try:
                data = await asyncio.wait_for(line.receive(), _SKIPPED * self._beat_s)
            except asyncio.TimeoutError:
                return f"nothing was heard of it for {_SKIPPED * self._beat_s:g} s"
            if data is None:
                return "the line to it was cut"
            try:
                message = from_agent(data)
            except WireError as error:
                return str(error)
            match message:
                case Heard():
                    self._front.heard(name, message.process, message.data)
                case Printed():
                    self._front.printed(name, message.process, message.data)
                case Ended():
                    self._front.ended(name, message.process, message.how)
                case Beat():
                    pass
                case Join():
                    return "it joined twice over one line"
        return ""


class _Keeper:
    """Implements `kintune.engine.kept.Keeper` over a line; called in the engine's thread."""

    def __init__(self, mouth: Mouth, loop: asyncio.AbstractEventLoop) -> None:
        self._mouth = mouth
        self._loop = loop

    def start(self, process: int, command: KeptCommand) -> None:
        self._say(Launch(process, command.module, command.arguments, dict(command.environment), command.limits))

    def say(self, process: int, data: bytes) -> None:
        self._say(Say(process, data))

    def bring(self, process: int, paths: Sequence[str]) -> None:
        self._say_all(parcel(process, paths))

    def kill(self, process: int) -> None:
        self._say(Kill(process))

    def _say(self, message: msgspec.Struct) -> None:
        self._say_all((message,))

    def _say_all(self, messages: Iterable[msgspec.Struct]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._mouth.say_all, messages)


def _outpost(join: Join, admitted: Sequence[Admitted], keeper: _Keeper, workers: Workers) -> Outpost:
    """What the engine is told of an agent's machine."""
    resources: list[Resource] = []
    commands: dict[str, KeptCommand] = {}
    if join.cores:
        resources.append(Host(join.name, join.cores, join.memory_mb))
        for kind, module in workers.on_hosts.items():
            commands[f"{kind}@{join.name}"] = KeptCommand(join.name, module, limits=join.limits)
    for device, known in zip(join.devices, admitted, strict=True):
        id = f"{join.name}/{device.name}"
        arguments = (*device.arguments, *known.arguments)
        resources.append(Device(id, known.type))
        for kind, module in workers.on_devices.items():
            commands[f"{kind}@{id}"] = KeptCommand(join.name, module, arguments, limits=device.limits)
    return Outpost(join.name, keeper, tuple(resources), commands)


def _check(join: Join) -> None:
    """Raises InputError where nothing can be made of what an agent says."""
    versions = (join.fleet_version, join.wire_version)
    if versions != (FLEET_VERSION, WIRE_VERSION):
        raise InputError(
            f"this agent is of version {'.'.join(versions)}, the service of {FLEET_VERSION}.{WIRE_VERSION}; "
            "install the same Kintune on both"
        )
    for name in (join.name, *(device.name for device in join.devices)):
        if not _NAME.fullmatch(name):
            raise InputError(f"nothing can be called {name[:64]!r}: names are up to 64 letters, digits and . _ - : ,")
    if len({device.name for device in join.devices}) < len(join.devices):
        raise InputError("two devices of this machine are called alike")
    if join.cores < 0 or join.memory_mb < 0 or not (join.cores or join.devices):
        raise InputError("this machine offers neither cores nor devices")


async def _turn_away(line: Line, why: TurnedAway) -> None:
    """Say so, unless nobody is there to hear it any more."""
    with contextlib.suppress(OSError):
        await line.send(msgspec.msgpack.encode(why))


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[str], value: str) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(value)

    loop.call_soon_threadsafe(settle)
