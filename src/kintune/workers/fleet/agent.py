"""The agent of a machine: joins a front, keeps processes for it, and comes back when the line was cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager

from kintune.core.backoff import BackOff
from kintune.errors import InputError, WireError
from kintune.workers.fleet.messages import (
    Beat,
    Bring,
    Clear,
    Ended,
    Heard,
    Join,
    Kill,
    Launch,
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
"""Opens a line to the front; raises OSError when there is no way to it."""


class Agent:
    """Looks after this machine for a front."""

    def __init__(self, join: Join, note: Callable[[str], None], programs: Collection[str] = PROGRAMS) -> None:
        """`note` is told, in a line each, what people may want to know."""
        self._join = join
        self._note = note
        self._programs = programs

    async def serve(self, connect: Connect, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Attend the front for ever, over one line after the other.

        Raises:
            InputError: it does not want this machine, and will not want it later.
        """
        waits = BackOff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            try:
                async with connect() as line:
                    if await self.attend(line):
                        waits.reset()
                    self._note("the line to the service was cut")
            except OSError as error:
                self._note(f"the service cannot be reached: {error}")
            wait = waits.next_wait()
            self._note(f"trying again in {wait:g} s")
            await sleep(wait)

    async def attend(self, line: Transport) -> bool:
        """Join over this line, and do as one is told until it is cut; whether one was welcome.

        All that was kept is killed at the end: the front takes it for lost.

        Raises:
            InputError: this machine is turned away for good.
        """
        async with FairSendQueue(line) as mouth:
            mouth.say(self._join)
            welcome = await self._welcome(line)
            if welcome is None:
                return False
            self._note(f"joined as {self._join.name}")
            household = ProcessSupervisor(_Passing(mouth), self._programs)
            beating = asyncio.ensure_future(_beat(mouth, welcome.beat_s))
            try:
                await self._obey(line, household)
            finally:
                beating.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await beating
                await household.close()
            return True

    async def _welcome(self, line: Transport) -> Welcome | None:
        try:
            answer = await asyncio.wait_for(line.receive(), _ANSWER_S)
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
                self._note(f"the service turns this machine away for now: {cause}")
        return None

    async def _obey(self, line: Transport, household: ProcessSupervisor) -> None:
        while (data := await line.receive()) is not None:
            try:
                order = to_agent(data)
            except WireError as error:
                self._note(str(error))
                return
            match order:
                case Launch():
                    household.start(order)
                case Say():
                    household.say(order.process, order.data)
                case Bring():
                    household.bring(order)
                case Clear():
                    household.clear(order.process)
                case Kill():
                    household.kill(order.process)
                case TurnedAway():
                    self._note(f"the service wants this machine no more: {order.cause}")
                    return
                case Welcome():
                    pass


class _Passing:
    """Passes on to the front what goes on in a household."""

    def __init__(self, mouth: FairSendQueue) -> None:
        self._mouth = mouth

    def heard(self, process: int, data: bytes) -> None:
        self._mouth.say(Heard(process, data), process)

    def printed(self, process: int, data: bytes) -> None:
        self._mouth.say(Printed(process, data), process)

    def ended(self, process: int, how: str) -> None:
        self._mouth.say(Ended(process, how), process)


async def _beat(mouth: FairSendQueue, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        mouth.say(Beat())
