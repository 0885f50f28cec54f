"""The front's side of the fleet: agents join, and their machines become outposts of the engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import msgspec

from kintune.engine.command import KeptCommand
from kintune.engine.outposts import Outpost
from kintune.errors import InputError, WireError
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
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.worker import WIRE_VERSION

__all__ = ["Front", "Hub"]

_JOIN_S = 10.0
_SKIPPED = 4  # beats that may be missed
_LONGEST_NAME = 64


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

    def __init__(self, front: Front, device_type: Callable[[bytes], str], beat_s: float = 2.0) -> None:
        """`device_type` says of which type a device is, from what its worker says of it; InputError turns it away."""
        self._front = front
        self._device_type = device_type
        self._beat_s = beat_s

    async def attend(self, line: Line) -> None:
        """One agent, from its first message until the line is cut."""
        loop = asyncio.get_running_loop()
        async with Mouth(line) as mouth:
            try:
                join = await self._hear_join(line)
                outpost = self._outpost(join, _Keeper(mouth, loop))
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
        versions = (message.fleet_version, message.wire_version)
        if versions != (FLEET_VERSION, WIRE_VERSION):
            raise InputError(
                f"this agent is of version {'.'.join(versions)}, the service of {FLEET_VERSION}.{WIRE_VERSION}; "
                "install the same Kintune on both"
            )
        return message

    def _outpost(self, join: Join, keeper: _Keeper) -> Outpost:
        """What the engine is told of an agent's machine."""
        if not 0 < len(join.name) <= _LONGEST_NAME or not join.name.isprintable():
            raise InputError(f"a machine cannot be called {join.name[:_LONGEST_NAME]!r}")
        if join.cores < 0 or not (join.cores or join.devices):
            raise InputError("this machine offers neither cores nor devices")
        resources: list[Resource] = []
        commands: dict[str, KeptCommand] = {}
        if join.cores:
            resources.append(Host(join.name, join.cores, join.memory_mb))
            commands[f"build@{join.name}"] = KeptCommand(join.name, "kintune.measure.build_worker")
        for device in join.devices:
            id = f"{join.name}/{device.name}"
            resources.append(Device(id, self._device_type(device.about)))
            commands[f"device@{id}"] = KeptCommand(join.name, "kintune.measure.device_worker", device.arguments)
        return Outpost(join.name, keeper, tuple(resources), commands)

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

    def kill(self, process: int) -> None:
        self._say(Kill(process))

    def _say(self, message: msgspec.Struct) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._mouth.say, message)


async def _turn_away(line: Line, why: TurnedAway) -> None:
    """Say so, unless nobody is there to hear it any more."""
    with contextlib.suppress(OSError):
        await line.send(msgspec.msgpack.encode(why))


def _settle(loop: asyncio.AbstractEventLoop, future: asyncio.Future[str], value: str) -> None:
    def settle() -> None:
        if not future.done():
            future.set_result(value)

    loop.call_soon_threadsafe(settle)
