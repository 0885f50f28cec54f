"""Machines elsewhere: how they join the engine, by an agent's connection or as nodes of a Ray cluster.

`Admission` says as what a machine may join, `AgentListener` accepts the agents' connections, and
`open_remote_machines` opens what the settings ask for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from kintune.core.device import DeviceDescription
from kintune.errors import EngineError, InputError, KintuneError, StorageError
from kintune.records import Store
from kintune.records.database import Database
from kintune.service.access import Scope
from kintune.service.machines import MachineRegistry
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from kintune.tuning.front.placement import OWN_DEVICES, CorePlacement
from kintune.workers.engine.local import LocalEngine
from kintune.workers.fleet.agent_registry import Admit, Admitted, AgentRegistry, Front
from kintune.workers.fleet.backlog import Backlog
from kintune.workers.fleet.growth import Growth
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.ray_cluster import Growing, RayCluster, ray_address
from kintune.workers.fleet.sockets import SocketTransport, open_door

__all__ = ["Admission", "AgentListener", "OnJoin", "open_remote_machines"]
_log = logging.getLogger(__name__)


OnJoin = Callable[[Join, Sequence[DeviceDescription]], None]
"""Called with a machine that joins and the types of its devices, in the thread that reads the registry."""


class Admission:
    """Looks machines up in the registry and records who joins; `now` gives seconds since 1970."""

    def __init__(self, machines: MachineRegistry, joined: OnJoin, now: Callable[[], float]) -> None:
        self._machines = machines
        self._joined = joined
        self._now = now

    def with_token(self, token: int) -> Admit:
        """Admits a machine that comes with this token."""
        return lambda join: self._admit(join, lambda: self._machines.admit(token, join, self._now()))

    def of_a_cluster(self, join: Join) -> list[Admitted]:
        """Admits a node of a cluster, which the cluster itself has let in."""
        return self._admit(join, lambda: self._machines.recognise(join, self._now()))

    def _admit(self, join: Join, look: Callable[[], list[DeviceDescription]]) -> list[Admitted]:
        try:
            types = look()
        except InputError as error:
            _log.warning("machine %s is turned away: %s", join.name, error)
            raise
        self._joined(join, types)
        return [Admitted(device.type, self._watched(about)) for device, about in zip(join.devices, types, strict=True)]

    def _watched(self, about: DeviceDescription) -> tuple[str, ...]:
        """Returns the arguments by which a device's worker notices that the device no longer matches its type."""
        if not about.pulse_us:
            return ()
        return ("--pulse-us", f"{about.pulse_us:g}", "--alike", f"{self._machines.alike:g}")


class _AcceptedToken(NamedTuple):
    """A valid token: its number and its text."""

    token: int
    text: str


class AgentListener:
    """Accepts agents' connections, in a thread with an event loop of its own, until `close`."""

    def __init__(
        self,
        address: tuple[str, int],
        users: Users,
        admission: Admission,
        front: Front,
        now: Callable[[], float] = time.time,
        again_s: float = 30.0,
    ) -> None:
        """Starts to listen.

        Args:
            address: host and port.
            users: looks tokens up.
            admission: decides as what a machine may join.
            front: the engine that the machines work for.
            now: gives seconds since 1970.
            again_s: how often it is checked that a machine's token is still valid, in seconds.

        Raises:
            EngineError: the address cannot be opened.
        """
        self._users = users
        self._admission = admission
        self._now = now
        self._again_s = again_s
        self._registry = AgentRegistry(front)
        self._loop = asyncio.new_event_loop()
        self._leaving = asyncio.Event()
        self._open = threading.Event()
        self._problem: BaseException | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, args=address, name="agent-listener", daemon=True)
        self._thread.start()
        self._open.wait()
        if self._problem is not None:
            raise EngineError(f"agents cannot be let in at {address[0]}:{address[1]}: {self._problem}")

    def close(self) -> None:
        """Closes all connections."""
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

    def _check(self, text: str) -> _AcceptedToken:
        """Returns the token of this text, if it is one for machines."""
        visitor = self._users.visitor(text, self._now())
        visitor.require(Scope.MACHINE)
        assert visitor.token is not None
        return _AcceptedToken(visitor.token, text)

    async def _attend(self, line: SocketTransport, accepted: _AcceptedToken) -> None:
        """Serves a connection until it is cut or its token is revoked."""
        attending = asyncio.ensure_future(self._registry.attend(line, self._admission.with_token(accepted.token)))
        while not (await asyncio.wait({attending}, timeout=self._again_s))[0]:
            try:
                await asyncio.to_thread(self._check, accepted.text)
            except StorageError as error:
                _log.error("whether a machine may still be here cannot be looked up: %s", error)
            except KintuneError as error:
                _log.warning("a machine has to leave: %s", error)
                await line.close()
        await attending


def open_remote_machines(
    settings: ServiceSettings,
    database: Database,
    compiler: str,
    store: Store,
    engine: LocalEngine,
    backlog: Backlog,
    place: CorePlacement,
    cores_a_job: int,
) -> ExitStack:
    """Opens what the settings say; closing the stack closes it.

    `backlog` is told what the engine does; `place` has this machine's cores, `cores_a_job` of which a build takes.

    Raises:
        EngineError: the agents' address cannot be opened, or there is no such cluster.
    """

    def joined(join: Join, types: Sequence[DeviceDescription]) -> None:
        def note() -> None:
            try:
                for device, known in zip(join.devices, types, strict=True):
                    store.devices.add(known.device_type)
                    if device.peak is not None and store.devices.peak(known.device_type.digest) is None:
                        store.devices.note_peak(known.device_type.digest, device.peak)
            except StorageError as error:  # nobody needs it at once; it is measured again
                _log.error("what %s reaches could not be kept: %s", join.name, error)

        engine.post(note)
        if 0 < join.cores < cores_a_job:
            _log.warning(
                "machine %s has %d cores and a build takes %d, so it gets none; see --cores-a-job",
                join.name,
                join.cores,
                cores_a_job,
            )
        devices = ", ".join(device.type for device in join.devices) or "none"
        _log.info("machine %s joins; cores to build on: %d, devices: %s", join.name, join.cores, devices)

    machines = MachineRegistry(database, compiler, OWN_DEVICES | {settings.device_name}, settings.alike)
    admission = Admission(machines, joined, time.time)
    with ExitStack() as stack:
        if settings.agents_port:
            listener = AgentListener((settings.agents_host, settings.agents_port), Users(database), admission, engine)
            stack.callback(listener.close)
            _log.info("machines elsewhere may join at port %d", listener.port)
        address = ray_address(settings.engine)
        if address is not None:
            growing = Growing(backlog, Growth(settings.grow_after_s, settings.grow_to)) if settings.grow_to else None
            cluster = RayCluster(address, engine, admission.of_a_cluster, cores=len(place.host), growing=growing)
            stack.callback(cluster.close)
            _log.info("the nodes of the Ray cluster may join")
        return stack.pop_all()
