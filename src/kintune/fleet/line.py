"""A connection between an agent and a front, whatever carries it: whole messages, in order, both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

__all__ = ["Line", "Mouth"]


class Line(Protocol):
    """One end of a connection."""

    async def send(self, data: bytes) -> None:
        """Send a message.  Raises OSError when the line is dead."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None once the other end has hung up, or the line is dead."""
        ...


class Mouth:
    """Says things over a line in their order, from whoever wants something said; nobody waits for the line.

    Used as a context manager, it speaks until the end of the block.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiting: asyncio.Queue[Iterable[msgspec.Struct]] = asyncio.Queue()
        self._speaking: asyncio.Task[None] | None = None

    def say(self, message: msgspec.Struct) -> None:
        """Say it as soon as what was said before is out.  Belongs to the thread of the event loop."""
        self.say_all((message,))

    def say_all(self, messages: Iterable[msgspec.Struct]) -> None:
        """The same of several, each of which is made when it is its turn."""
        self._waiting.put_nowait(messages)

    async def __aenter__(self) -> Mouth:
        self._speaking = asyncio.ensure_future(self._speak())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._speaking is not None:
            self._speaking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._speaking

    async def _speak(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                for message in await self._waiting.get():
                    await self._line.send(msgspec.msgpack.encode(message))
