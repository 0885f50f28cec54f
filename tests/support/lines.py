"""A line within one event loop: what an agent and a front say to each other, without a network."""

from __future__ import annotations

import asyncio

__all__ = ["QuietLine", "pair"]


class QuietLine:
    """Implements `kintune.workers.fleet.transport.Transport`; `cut` ends it at both ends."""

    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: asyncio.Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._dead = False

    async def send(self, data: bytes) -> None:
        """Send a message."""
        if self._dead:
            raise ConnectionError("the line is cut")
        self._outgoing.put_nowait(data)

    async def receive(self) -> bytes | None:
        """The next message; None once the line is cut."""
        data = None if self._dead else await self._incoming.get()
        self._dead = self._dead or data is None
        return data

    def cut(self) -> None:
        """Nothing passes any more."""
        self._incoming.put_nowait(None)
        self._outgoing.put_nowait(None)


def pair() -> tuple[QuietLine, QuietLine]:
    """The two ends of a line."""
    there: asyncio.Queue[bytes | None] = asyncio.Queue()
    back: asyncio.Queue[bytes | None] = asyncio.Queue()
    return QuietLine(there, back), QuietLine(back, there)
