"""An agent inside a Ray cluster: an actor on each node, whose connection to the front is Ray's."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Collection, Sequence

import msgspec

from kintune.errors import InputError
from kintune.workers.fleet.agent import Agent
from kintune.workers.fleet.file_transfer import PART_BYTES, sweep
from kintune.workers.fleet.messages import FilePart, Join
from kintune.workers.fleet.offer import OfferedDevices, offer_cores, offer_devices

__all__ = ["NodeAgent", "NodeOffer"]

_log = logging.getLogger(__name__)


class NodeOffer(msgspec.Struct, frozen=True):
    """What a node is to offer: how many cores to build on, and how many devices of each type, one core each."""

    name: str
    cores: int
    memory_mb: int
    devices: dict[str, int] = {}
    target: str = "native"

    def place(self, usable: Sequence[int]) -> tuple[tuple[int, ...], list[OfferedDevices]]:
        """Which of these cores build, and which of them are devices: those come last.

        Raises:
            InputError: there are too few.
        """
        wanted = self.cores + sum(self.devices.values())
        if wanted > len(usable):
            raise InputError(f"{self.name} is to offer {wanted} cores, and its processes may use {len(usable)}")
        first, devices = len(usable) - sum(self.devices.values()), []
        for type, count in self.devices.items():
            devices.append(OfferedDevices(type, {f"cpu:{core}": (core,) for core in usable[first : first + count]}))
            first += count
        return tuple(usable[: self.cores]), devices


class NodeAgent:
    """The actor.  `attend` does the work; `hear` and `speak` are the two directions of its connection."""

    def __init__(self, offer: bytes, programs: Collection[str]) -> None:
        """`offer` is an encoded `NodeOffer`; nothing but `programs` is started."""
        self._programs = frozenset(programs)
        self._offer = msgspec.msgpack.decode(offer, type=NodeOffer)
        self._heard: asyncio.Queue[bytes] = asyncio.Queue()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()

    async def attend(self) -> None:
        """Join, and do what the front orders."""
        join = await asyncio.to_thread(_join, self._offer)
        await Agent(join, _log.info, self._programs).attend(self)

    async def hear(self, data: bytes) -> None:
        """The front says this."""
        self._heard.put_nowait(data)

    async def speak(self) -> list[bytes]:
        """What is to be said to the front: everything by now, and at least one thing."""
        said = [await self._said.get()]
        while not self._said.empty():
            said.append(self._said.get_nowait())
        return said

    async def take(self, digest: str, references: Sequence[Awaitable[bytes]]) -> None:
        """The front has put the file with this digest, in parts, into the object store, where these refer to it."""
        offset = 0
        for reference in references:
            data = memoryview(await reference)
            for begin in range(0, max(1, len(data)), PART_BYTES):
                part = bytes(data[begin : begin + PART_BYTES])
                self._heard.put_nowait(msgspec.msgpack.encode(FilePart(digest, offset, part)))
                offset += len(part)
            await asyncio.sleep(0)

    # the agent's end of the connection

    async def send(self, data: bytes) -> None:
        """See `kintune.workers.fleet.transport.Transport`."""
        self._said.put_nowait(data)

    async def receive(self) -> bytes | None:
        """See `Transport`; it ends with the actor."""
        return await self._heard.get()


def _join(offer: NodeOffer) -> Join:
    sweep()  # Ray ends actors without a word
    cores, types = offer.place(sorted(os.sched_getaffinity(0)))
    join = offer_cores(offer.name, cores, offer.memory_mb)
    for devices in types:
        more = offer_devices(offer.name, devices, offer.target, _log.info, urgent=False)
        join = msgspec.structs.replace(join, devices=(*join.devices, *more.devices))
    return join
