"""Where machines elsewhere come in: their agents' lines, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kintune.errors import EngineError, InputError, KintuneError, StorageError
from kintune.fleet.hub import Admit, Admitted, Front, Hub
from kintune.fleet.messages import Join
from kintune.fleet.sockets import SocketLine, open_door
from kintune.measure.about import DeviceAbout
from kintune.service.access import Scope
from kintune.service.people import People
from kintune.service.roll import Roll

__all__ = ["Gate"]

_log = logging.getLogger(__name__)


class _Guest(NamedTuple):
    """A token that is good, and its text."""

    token: int
    text: str


class Gate:
    """Listens until `close`.

    Args:
        address: host and port.
        people: who knows the tokens.
        roll: who knows the machines.
        front: the engine that they come to work for.
        joined: told of each device that comes, as what its type is known.
        now: seconds since 1970.
        again_s: how often it is asked whether a machine's token is good still.
    """

    def __init__(
        self,
        address: tuple[str, int],
        people: People,
        roll: Roll,
        front: Front,
        joined: Callable[[Join, Sequence[DeviceAbout]], None],
        now: Callable[[], float] = time.time,
        again_s: float = 30.0,
    ) -> None:
        """Raises EngineError when nobody can be let in at this address."""
        self._people = people
        self._roll = roll
        self._joined = joined
        self._now = now
        self._again_s = again_s
        self._hub = Hub(front)
        self._loop = asyncio.new_event_loop()
        self._leaving = asyncio.Event()
        self._open = threading.Event()
        self._problem: BaseException | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, args=address, name="gate", daemon=True)
        self._thread.start()
        self._open.wait()
        if self._problem is not None:
            raise EngineError(f"agents cannot be let in at {address[0]}:{address[1]}: {self._problem}")

    def close(self) -> None:
        """Hang up on everybody."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._leaving.set)
            self._thread.join(timeout=10)

    def _run(self, host: str, port: int) -> None:
        try:
            self._loop.run_until_complete(self._stay_open(host, port))
        except OSError as error:
            self._problem = error
        finally:
            self._open.set()
            self._loop.close()

    async def _stay_open(self, host: str, port: int) -> None:
        async with open_door(host, port, self._check, self._attend) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._open.set()
            await self._leaving.wait()

    def _check(self, text: str) -> _Guest:
        """Whose token this is."""
        visitor = self._people.visitor(text, self._now())
        visitor.require(Scope.MACHINE)
        assert visitor.token is not None
        return _Guest(visitor.token, text)

    async def _attend(self, line: SocketLine, guest: _Guest) -> None:
        """Until the line is cut, or the token is taken back."""
        attending = asyncio.ensure_future(self._hub.attend(line, self._admission(guest.token)))
        while not (await asyncio.wait({attending}, timeout=self._again_s))[0]:
            try:
                await asyncio.to_thread(self._check, guest.text)
            except StorageError as error:
                _log.error("whether a machine may still be here cannot be looked up: %s", error)
            except KintuneError as error:
                _log.warning("a machine has to leave: %s", error)
                await line.close()
        await attending

    def _admission(self, token: int) -> Admit:
        def admit(join: Join) -> list[Admitted]:
            try:
                types = self._roll.admit(token, join, self._now())
            except InputError as error:
                _log.warning("machine %s is turned away: %s", join.name, error)
                raise
            self._joined(join, types)
            return [Admitted(device.type, self._watched(about)) for device, about in zip(join.devices, types, strict=True)]

        return admit


    def _watched(self, about: DeviceAbout) -> tuple[str, ...]:
        """What a device's worker is told, so that it notices when it is no longer what its type is."""
        if not about.pulse_us:
            return ()
        return ("--pulse-us", f"{about.pulse_us:g}", "--alike", f"{self._roll.alike:g}")
