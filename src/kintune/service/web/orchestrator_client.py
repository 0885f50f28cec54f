"""The connection to the orchestrator: sends pokes and receives events; connects again by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from kintune.core.backoff import BackOff
from kintune.errors import WireError
from kintune.service.orchestrator.events import News, Poke, decode_news, encode
from kintune.wire.channel import FrameReader, frame

__all__ = ["OrchestratorClient"]
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0
_CHUNK = 1 << 16


class OrchestratorClient:
    """One connection; `told` is called with every event of the orchestrator.

    A new connection begins with a poke, which makes up for one that was lost with the last connection.
    """

    def __init__(self, path: Path, told: Callable[[News], None], lost: Callable[[], None] = lambda: None) -> None:
        """`lost` is called when the connection has ended."""
        self._path = path
        self._told = told
        self._lost = lost
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.connected = False

    def start(self) -> None:
        """Connects, and goes on trying."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def poke(self) -> None:
        """Says that something is new in the database.  May be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._poke.set)

    async def close(self) -> None:
        """Ends the connection for good."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        waits = BackOff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._path))
            except OSError:
                await asyncio.sleep(waits.next_wait())
                continue
            waits.reset()
            self._poke.set()  # one that was written just before the connection ended is lost
            self.connected = True
            try:
                await self._talk(reader, writer)
            finally:
                self.connected = False
                self._lost()
                writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pokes = asyncio.create_task(self._send_pokes(writer))
        frames = FrameReader()
        try:
            while data := await reader.read(_CHUNK):
                for body in frames.feed(data):
                    with contextlib.suppress(msgspec.MsgspecError):
                        self._told(decode_news(body))
        except (OSError, WireError):
            return
        finally:
            pokes.cancel()

    async def _send_pokes(self, writer: asyncio.StreamWriter) -> None:
        data = frame(encode(Poke()))
        while True:
            await self._poke.wait()
            self._poke.clear()
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                self._poke.set()
                return
