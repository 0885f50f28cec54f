"""The agent of a machine: joins a front, runs processes for it, and joins again after the connection was lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager

from kintune.core.backoff import BackOff
from kintune.errors import InputError, WireError
from kintune.workers.fleet.content_cache import ContentCache
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.messages import (
    Beat,
    Clear,
    Ended,
    FileGone,
    FilePart,
    Heard,
    Join,
    Kill,
    Launch,
    Made,
    Need,
    Printed,
    Say,
    TurnedAway,
    Welcome,
    to_agent,
)
from kintune.workers.fleet.process_supervisor import PROGRAMS, ProcessSupervisor
from kintune.workers.fleet.transport import FairSendQueue, Transport

__all__ = ["Agent"]

_ANSWER_S = 30.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0

Connect = Callable[[], AbstractAsyncContextManager[Transport]]
"""Opens a connection to the front; raises OSError when there is no way to it."""


class Agent:
    """Runs processes on this machine for a front."""

    def __init__(
        self,
        join: Join,
        note: Callable[[str], None],
        programs: Collection[str] = PROGRAMS,
        cache: ContentCache | None = None,
    ) -> None:
        """`note` is called with lines for the user; files are kept in `cache`, or in the user's cache directory."""
        self._join = join
        self._note = note
        self._programs = programs
        self._cache = cache if cache is not None else ContentCache()

    async def serve(self, connect: Connect, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Serve the front for ever, over one connection after another.

        Raises:
            InputError: the front turns this machine away for good.
        """
        waits = BackOff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            try:
                async with connect() as transport:
                    if await self.attend(transport):
                        waits.reset()
                    self._note("the connection to the service was cut")
            except OSError as error:
                self._note(f"the service cannot be reached: {error}")
            wait = waits.next_wait()
            self._note(f"trying again in {wait:g} s")
            await sleep(wait)

    async def attend(self, transport: Transport) -> bool:
        """Join over this connection, and do what the front orders until it is lost; returns whether the front accepted.

        All processes are killed at the end: the front takes them for lost.

        Raises:
            InputError: this machine is turned away for good.
        """
        async with FairSendQueue(transport) as queue:
            queue.say(self._join)
            welcome = await self._welcome(transport)
            if welcome is None:
                return False
            self._note(f"joined as {self._join.name}")
            fetcher = FileFetcher(self._cache, queue.say)
            supervisor = ProcessSupervisor(_Passing(queue), fetcher, self._programs)
            beating = asyncio.ensure_future(_beat(queue, welcome.beat_s))
            try:
                await self._obey(transport, supervisor, fetcher)
            finally:
                beating.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await beating
                await supervisor.close()
            return True

    async def _welcome(self, transport: Transport) -> Welcome | None:
        try:
            answer = await asyncio.wait_for(transport.receive(), _ANSWER_S)
        except asyncio.TimeoutError:
            self._note(f"the service did not answer for {_ANSWER_S:g} s")
            return None
        try:
            message = None if answer is None else to_agent(answer)
        except WireError as error:
            self._note(str(error))
            return None
        match message:
            case Welcome() as welcome:
                return welcome
            case TurnedAway(cause=cause, later=False):
                raise InputError(f"the service turns this machine away: {cause}")
            case TurnedAway(cause=cause):
                self._note(f"the service refuses this machine for now: {cause}")
        return None

    async def _obey(self, transport: Transport, supervisor: ProcessSupervisor, fetcher: FileFetcher) -> None:
        while (data := await transport.receive()) is not None:
            try:
                order = to_agent(data)
            except WireError as error:
                self._note(str(error))
                return
            match order:
                case Launch():
                    supervisor.start(order)
                case Say():
                    supervisor.say(order.process, order.data)
                case Need():
                    supervisor.need(order)
                case FilePart():
                    fetcher.part(order)
                case FileGone():
                    fetcher.gone(order)
                case Clear():
                    supervisor.clear(order.process)
                case Kill():
                    supervisor.kill(order.process)
                case TurnedAway():
                    self._note(f"the service has removed this machine: {order.cause}")
                    return
                case Welcome():
                    pass


class _Passing:
    """Passes on to the front what supervised processes say and print, and how they end."""

    def __init__(self, queue: FairSendQueue) -> None:
        self._queue = queue

    def heard(self, process: int, data: bytes) -> None:
        self._queue.say(Heard(process, data), process)

    def printed(self, process: int, data: bytes) -> None:
        self._queue.say(Printed(process, data), process)

    def made(self, process: int, parts: Iterator[Made]) -> None:
        self._queue.say_all(parts, process)

    def ended(self, process: int, how: str) -> None:
        self._queue.say(Ended(process, how), process)


async def _beat(queue: FairSendQueue, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        queue.say(Beat())
