"""The front's side of the fleet: agents join, and their machines become nodes of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from kintune.errors import InputError, StorageError, WireError
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.process import RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.fleet.content_cache import FileDigests
from kintune.workers.fleet.file_source import Carry, FileSource
from kintune.workers.fleet.file_transfer import Collector, with_token
from kintune.workers.fleet.messages import (
    FLEET_VERSION,
    Beat,
    Ended,
    Heard,
    Join,
    Kill,
    Launch,
    Made,
    Printed,
    Say,
    TurnedAway,
    Want,
    Welcome,
    from_agent,
)
from kintune.workers.fleet.transport import FairSendQueue, Transport

__all__ = ["TUNING", "Admit", "Admitted", "AgentRegistry", "Front", "WorkerCommands"]

_SKIPPED = 4  # beats that may be missed
_MOST_CORES, _MOST_MEMORY_MB = 4096, 1 << 26
_PART = 1 << 20  # bytes of what is said to a process that go over the connection at once
_NAME = re.compile(r"[A-Za-z0-9][\w.:,-]{0,63}", re.ASCII)


class Admitted(NamedTuple):
    """A device that may join: its type, as the scheduler knows it, and further arguments of its worker."""

    type: str
    arguments: tuple[str, ...] = ()


Admit = Callable[[Join], Sequence[Admitted]]
"""Returns as what each device of a machine joins, in order; raises InputError to turn the machine away.

Called in a thread.
"""


class WorkerCommands(NamedTuple):
    """The module that is run as the worker for each kind of stage, on hosts and on devices."""

    on_hosts: Mapping[str, str]
    on_devices: Mapping[str, str]


TUNING = WorkerCommands({"build": "kintune.workers.build_worker"}, {"device": "kintune.workers.device_worker"})
"""The worker commands of tuning jobs."""


class Front(Protocol):
    """The engine, as the registry uses it; its methods may be called from any thread."""

    def join(self, node: RemoteNode, answered: Callable[[str | None], None]) -> None:
        """Let stages run on this node; `answered` is called with None if it joined, otherwise with the reason."""

    def lose(self, node: str, cause: str, host: ProcessHost) -> None:
        """Run nothing on this node for now, if this host is the one that joined by that name."""

    def heard(self, node: str, process: int, data: bytes) -> None:
        """A remote process says this."""

    def printed(self, node: str, process: int, data: bytes) -> None:
        """A remote process has printed this."""

    def ended(self, node: str, process: int, how: str) -> None:
        """A remote process has ended."""


class _Silence(Exception):
    """An agent says nothing for too long."""


class AgentRegistry:
    """Serves agents, any number at once, in one event loop."""

    def __init__(
        self,
        front: Front,
        beat_s: float = 2.0,
        workers: WorkerCommands = TUNING,
        *,
        join_s: float = 10.0,
        places_jobs: bool = False,
    ) -> None:
        """`join_s` is how long an agent may take to say who it is; jobs run on hosts here only if it `places_jobs`."""
        self._front = front
        self._workers = workers
        self._join_s = join_s
        self._places_jobs = places_jobs
        self._beat_s = beat_s
        self._digests = FileDigests()

    async def attend(self, transport: Transport, admit: Admit, carry: Carry | None = None) -> None:
        """Serve one agent until its connection is cut; `admit` says whether, and as what, it may join.

        Files reach it by `carry` where that is given.
        """
        loop = asyncio.get_running_loop()
        async with FairSendQueue(transport) as queue:
            try:
                join = await self._hear_join(transport)
                admitted = await asyncio.to_thread(admit, join)
                host = _AgentHost(queue, loop, FileSource(queue, self._digests, carry))
                node = _node(join, admitted, host, self._workers, places_jobs=self._places_jobs)
            except (StorageError, _Silence) as error:
                await _turn_away(transport, TurnedAway(str(error), later=True))
                return
            except (InputError, WireError) as error:
                await _turn_away(transport, TurnedAway(str(error)))
                return
            answer: asyncio.Future[str | None] = loop.create_future()

            def answered(refusal: str | None) -> None:
                if refusal is None:
                    queue.say(Welcome(self._beat_s))  # before anything that the engine says to it
                if not answer.done():
                    answer.set_result(refusal)

            cause = "nobody listens to it any more"
            self._front.join(node, lambda refusal: _in(loop, partial(answered, refusal)))
            try:
                refusal = await answer
                if refusal is None:
                    cause = await self._listen(transport, queue, node.name, host)
                else:
                    await _turn_away(transport, TurnedAway(refusal, later=True))
            finally:
                host.close()
                self._front.lose(node.name, cause, host)

    async def _hear_join(self, transport: Transport) -> Join:
        try:
            data = await asyncio.wait_for(transport.receive(), self._join_s)
        except asyncio.TimeoutError:
            raise _Silence(f"nothing was said for {self._join_s:g} s") from None
        message = None if data is None else from_agent(data)
        if not isinstance(message, Join):
            raise WireError("an agent begins with whom it speaks for")
        _check(message)
        return message

    async def _listen(self, transport: Transport, queue: FairSendQueue, name: str, host: _AgentHost) -> str:
        """Pass the agent's messages to the engine until the connection ends; returns why it ended."""
        while True:
            try:
                data = await self._hear_within(transport)
            except _Silence as silence:
                return str(silence)
            if data is None or queue.broken:
                return "the connection to it was cut"
            try:
                message = from_agent(data)
            except WireError as error:
                return str(error)
            match message:
                case Heard():
                    self._front.heard(name, message.process, message.data)
                case Printed():
                    self._front.printed(name, message.process, message.data)
                case Want():
                    host.files.want(message)
                case Made():
                    try:
                        host.collector.take(message)
                    except InputError as error:
                        host.kill(message.process)
                        self._front.ended(name, message.process, str(error))
                    except WireError as error:
                        return str(error)
                case Ended():
                    host.forget(message.process)
                    self._front.ended(name, message.process, message.how)
                case Beat():
                    pass
                case Join():
                    return "it joined twice over one connection"

    async def _hear_within(self, transport: Transport) -> bytes | None:
        """Returns the agent's next message, or None at the end, unless several beats in a row are missed before.

        Each beat is waited for by itself: if this process was stopped, that counts as one, and what came meanwhile is
        still heard.

        Raises:
            _Silence: they were missed.
        """
        hearing = asyncio.ensure_future(transport.receive())
        try:
            for _ in range(_SKIPPED):
                if (await asyncio.wait({hearing}, timeout=self._beat_s))[0]:
                    return hearing.result()
        finally:
            hearing.cancel()
        raise _Silence(f"nothing was heard of it for {_SKIPPED * self._beat_s:g} s")


class _AgentHost:
    """Implements `kintune.workers.engine.remote_process.ProcessHost`; called in the engine's thread.

    `files` and `collector` belong to the event loop, as do `forget` and `close`.
    """

    def __init__(self, queue: FairSendQueue, loop: asyncio.AbstractEventLoop, files: FileSource) -> None:
        self.files = files
        self.collector = Collector()
        self._queue = queue
        self._loop = loop

    def start(self, process: int, command: RemoteCommand) -> None:
        collect = with_token(command.collect) if command.collect else None
        launch = Launch(process, command.module, command.arguments, dict(command.environment), command.limits, collect)
        _in(self._loop, partial(self._start, process, launch))

    def say(self, process: int, data: bytes) -> None:
        say = partial(self._queue.say_all, _in_parts(process, data), process)
        _in(self._loop, partial(self.files.do, process, say))

    def bring(self, process: int, paths: Sequence[str]) -> None:
        _in(self._loop, partial(self.files.bring, process, paths))

    def kill(self, process: int) -> None:
        _in(self._loop, partial(self._kill, process))

    def forget(self, process: int) -> None:
        """The process is gone."""
        self.files.drop(process)
        self.collector.forget(process)

    def close(self) -> None:
        """All processes of the agent are gone."""
        self.files.close()
        self.collector.close()

    def _start(self, process: int, launch: Launch) -> None:
        if launch.collect is not None:
            self.collector.expect(process, launch.collect.prefix)
        self._queue.say(launch, process)

    def _kill(self, process: int) -> None:
        self.forget(process)
        self._queue.say_last(Kill(process), process)


def _in_parts(process: int, data: bytes) -> Iterator[Say]:
    """Splits bytes for a process, so that no part is too large and messages of others can go in between."""
    for begin in range(0, len(data), _PART):
        yield Say(process, data[begin : begin + _PART])


def _node(
    join: Join, admitted: Sequence[Admitted], host: _AgentHost, workers: WorkerCommands, *, places_jobs: bool
) -> RemoteNode:
    """Return what the engine is told of an agent's machine."""
    resources: list[Resource] = []
    commands: dict[str, RemoteCommand] = {}
    if join.cores:
        resources.append(Host(join.name, join.cores, join.memory_mb))
        for kind, module in workers.on_hosts.items():
            commands[f"{kind}@{join.name}"] = RemoteCommand(join.name, module, limits=join.limits)
    for device, known in zip(join.devices, admitted, strict=True):
        id = f"{join.name}/{device.name}"
        arguments = (*device.arguments, *known.arguments)
        resources.append(Device(id, known.type))
        for kind, module in workers.on_devices.items():
            commands[f"{kind}@{id}"] = RemoteCommand(join.name, module, arguments, limits=device.limits)
    return RemoteNode(join.name, host, tuple(resources), commands, join.limits if places_jobs else None)


def _check(join: Join) -> None:
    """Check what an agent says of its machine.

    Raises:
        InputError: it cannot be used.
    """
    versions = (join.fleet_version, join.wire_version)
    if versions != (FLEET_VERSION, WIRE_VERSION):
        raise InputError(
            f"this machine has Kintune {'.'.join(versions)}, the service {FLEET_VERSION}.{WIRE_VERSION}; "
            "install the same Kintune on both"
        )
    for name in (join.name, *(device.name for device in join.devices)):
        if not _NAME.fullmatch(name):
            raise InputError(f"nothing can be called {name[:64]!r}: names are up to 64 letters, digits and . _ - : ,")
    if len({device.name for device in join.devices}) < len(join.devices):
        raise InputError("two devices of this machine are called alike")
    if join.cores < 0 or join.memory_mb < 0 or not (join.cores or join.devices):
        raise InputError("this machine offers neither cores nor devices")
    if join.cores > _MOST_CORES or join.memory_mb > _MOST_MEMORY_MB:
        raise InputError(f"no machine has {join.cores} cores and {join.memory_mb} MB")


async def _turn_away(transport: Transport, why: TurnedAway) -> None:
    """Tell the agent why it is turned away, unless the connection is dead."""
    with contextlib.suppress(OSError):
        await transport.send(msgspec.msgpack.encode(why))


def _in(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    """Have the thread of an event loop call `act`, unless the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act)
