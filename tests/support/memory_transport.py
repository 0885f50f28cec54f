"""A connection between an agent and a front within one event loop, without a network."""

from __future__ import annotations

import asyncio

__all__ = ["MemoryTransport", "pair"]


class MemoryTransport:
    """Implements `kintune.workers.fleet.transport.Transport`; `cut` closes it at both ends."""

    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: asyncio.Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._dead = False

    async def send(self, data: bytes) -> None:
        """Send a message."""
        if self._dead:
            raise ConnectionError("the connection is cut")
        self._outgoing.put_nowait(data)

    async def receive(self) -> bytes | None:
        """The next message; None once the connection is cut."""
        data = None if self._dead else await self._incoming.get()
        self._dead = self._dead or data is None
        return data

    def cut(self) -> None:
        """Close the connection at both ends."""
        self._incoming.put_nowait(None)
        self._outgoing.put_nowait(None)


def pair() -> tuple[MemoryTransport, MemoryTransport]:
    """The two ends of a connection."""
    there: asyncio.Queue[bytes | None] = asyncio.Queue()
    back: asyncio.Queue[bytes | None] = asyncio.Queue()
    return MemoryTransport(there, back), MemoryTransport(back, there)
