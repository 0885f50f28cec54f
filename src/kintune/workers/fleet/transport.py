"""A connection between an agent and a front, whatever carries it: whole messages, in order, both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Protocol

import msgspec

__all__ = ["FairSendQueue", "Transport"]


class Transport(Protocol):
    """One end of a connection."""

    async def send(self, data: bytes) -> None:
        """Send a message.

        Raises:
            OSError: the connection is dead.
        """
        ...

    async def receive(self) -> bytes | None:
        """The next message; None once the other end has hung up, or the connection is dead."""
        ...


class FairSendQueue:
    """Sends messages over a connection; who adds one to the queue does not wait until it is sent.

    Messages for one process, or for none, keep their order; the processes take turns, message by message, so that one
    with much to send does not hold up the others.  A file takes turns like a process.

    Used as a context manager, it sends until the end of the block.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: dict[Hashable, deque[msgspec.Struct | Iterator[msgspec.Struct]]] = {}
        self._turns: deque[Hashable] = deque()  # of those in `_waiting`
        self._news = asyncio.Event()
        self._speaking: asyncio.Task[None] | None = None

    def say(self, message: msgspec.Struct, process: Hashable = None) -> None:
        """Send a message when it is its turn.  To be called in the event loop's thread, like the methods below."""
        self._put(message, process)

    def say_all(self, messages: Iterable[msgspec.Struct], process: Hashable) -> None:
        """Send several messages, each made when it is its turn, unless `say_last` is called first."""
        self._put(iter(messages), process)

    def say_last(self, message: msgspec.Struct, process: Hashable) -> None:
        """Give this process the next turn, drop what is left of its `say_all`, and send this last."""
        self._put(message, process)
        self._waiting[process] = deque(each for each in self._waiting[process] if isinstance(each, msgspec.Struct))
        self._turns.remove(process)
        self._turns.appendleft(process)

    @property
    def broken(self) -> bool:
        """Whether nothing is sent any more, since the connection is dead."""
        return self._speaking is not None and self._speaking.done()

    def _put(self, what: msgspec.Struct | Iterator[msgspec.Struct], process: Hashable) -> None:
        if process not in self._waiting:
            self._waiting[process] = deque()
            self._turns.append(process)
        self._waiting[process].append(what)
        self._news.set()

    async def __aenter__(self) -> FairSendQueue:
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
                message = self._next()
                if message is not None:
                    await self._transport.send(msgspec.msgpack.encode(message))
                else:
                    self._news.clear()
                    await self._news.wait()

    def _next(self) -> msgspec.Struct | None:
        while self._turns:
            process = self._turns.popleft()
            waiting = self._waiting[process]
            message = self._next_of(waiting)
            if waiting:
                self._turns.append(process)
            else:
                del self._waiting[process]
            if message is not None:
                return message
        return None

    def _next_of(self, waiting: deque[msgspec.Struct | Iterator[msgspec.Struct]]) -> msgspec.Struct | None:
        while waiting:
            head = waiting[0]
            if isinstance(head, msgspec.Struct):
                waiting.popleft()
                return head
            message = next(head, None)
            if message is not None:
                return message
            waiting.popleft()
        return None
