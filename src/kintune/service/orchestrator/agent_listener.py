"""Where machines elsewhere come in: their agents' lines, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from kintune.errors import EngineError, KintuneError, StorageError
from kintune.service.access import Scope
from kintune.service.orchestrator.admission import Admission
from kintune.service.users import Users
from kintune.workers.fleet.agent_registry import AgentRegistry, Front
from kintune.workers.fleet.sockets import SocketTransport, open_door

__all__ = ["AgentListener"]

_log = logging.getLogger(__name__)


class _Guest(NamedTuple):
    """A token that is good, and its text."""

    token: int
    text: str


class AgentListener:
    """Listens until `close`.

    Args:
        address: host and port.
        people: who knows the tokens.
        admission: says as what they may join.
        front: the engine that they come to work for.
        now: seconds since 1970.
        again_s: how often it is asked whether a machine's token is good still.
    """

    def __init__(
        self,
        address: tuple[str, int],
        people: Users,
        admission: Admission,
        front: Front,
        now: Callable[[], float] = time.time,
        again_s: float = 30.0,
    ) -> None:
        """Raises EngineError when nobody can be let in at this address."""
        self._people = people
        self._admission = admission
        self._now = now
        self._again_s = again_s
        self._registry = AgentRegistry(front)
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

    async def _attend(self, line: SocketTransport, guest: _Guest) -> None:
        """Until the line is cut, or the token is taken back."""
        attending = asyncio.ensure_future(self._registry.attend(line, self._admission.with_token(guest.token)))
        while not (await asyncio.wait({attending}, timeout=self._again_s))[0]:
            try:
                await asyncio.to_thread(self._check, guest.text)
            except StorageError as error:
                _log.error("whether a machine may still be here cannot be looked up: %s", error)
            except KintuneError as error:
                _log.warning("a machine has to leave: %s", error)
                await line.close()
        await attending
