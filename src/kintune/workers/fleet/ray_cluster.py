"""The nodes of a Ray cluster as hosts and devices of an engine: Ray starts an agent on each.

Ray carries what agents and the front say to each other, and nothing else: what runs where is decided by our scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from kintune.core.backoff import BackOff
from kintune.errors import EngineError, EnvironmentProblem, InputError
from kintune.workers.fleet.agent_registry import TUNING, Admit, AgentRegistry, Front, WorkerCommands
from kintune.workers.fleet.backlog import Backlog
from kintune.workers.fleet.content_cache import FileContent
from kintune.workers.fleet.growth import Growth
from kintune.workers.fleet.process_supervisor import PROGRAMS
from kintune.workers.fleet.ray_node import NodeAgent, NodeOffer
from kintune.workers.fleet.ray_objects import RayObjects

__all__ = ["DEVICE_RESOURCE", "Growing", "RayCluster", "offer_of", "ray_address"]

_log = logging.getLogger(__name__)

DEVICE_RESOURCE = re.compile(r"kintune-device-([\w.:+,-]{1,64})")
"""The custom resource by which a node says how many devices of a type it has: the last of its cores, one each."""

_JOIN_S = 300.0  # a node with devices measures them first
_AGAIN_S, _LONGEST_AGAIN_S = 5.0, 300.0  # after which a node is tried again that did not stay
_STAYED_S = 600.0
_LOOK_S = 2.0  # how often Ray is asked which nodes there are; it tells nobody by itself
_ALMOST = 0.9


def ray_address(engine: str) -> str | None:
    """The address of the cluster that `--engine` names; "" for one that is found or started, None for no cluster.

    Raises:
        InputError: it names nothing.
    """
    if engine == "local":
        return None
    if engine == "ray":
        return ""
    if re.fullmatch(r"(ray://)?[\w.-]+:\d{1,5}", engine):
        return engine
    raise InputError(
        f"--engine {engine!r}: there are 'local', 'ray', and the address of a cluster, as ray://HOST:10001"
    )


def offer_of(node: Mapping[str, Any]) -> NodeOffer | None:
    """What a node of `ray.nodes()` is to offer; None if it has nothing."""
    resources = node["Resources"]
    count = int(resources.get("CPU", 0))
    types = {
        found[1]: int(amount)
        for name, amount in sorted(resources.items())
        if (found := DEVICE_RESOURCE.fullmatch(name)) and amount >= 1
    }
    building = count - sum(types.values())
    if count <= 0 or building < 0:
        return None
    memory_mb = int(resources.get("memory", 0)) >> 20
    return NodeOffer(f"ray-{node['NodeID'][:12]}", building, memory_mb, types)


class Growing(NamedTuple):
    """What decides when a cluster grows: the load, and the rule for it."""

    backlog: Backlog
    growth: Growth


class RayCluster:
    """Keeps an agent on every node of a cluster, in a thread with an event loop of its own, until `close`."""

    def __init__(
        self,
        address: str,
        front: Front,
        admit: Admit,
        workers: WorkerCommands = TUNING,
        *,
        programs: Collection[str] = PROGRAMS,
        cores: int | None = None,
        growing: Growing | None = None,
    ) -> None:
        """Connect to the cluster at `address`; "" for the one of this machine.

        If there is none, one is started, with so many `cores`.  `programs` can be started on its nodes, besides the
        `workers`.  Where it is `growing`, hosts are asked for when the queue is long, and let go when it is short.

        Raises:
            EnvironmentProblem: Ray is not installed.
            EngineError: there is no such cluster.
        """
        self._ray = _ray()
        self._address, self._cores = address, cores
        _connect(self._ray, address, cores)
        self._admit = admit
        self._objects = RayObjects(self._ray)
        self._registry = AgentRegistry(front, 5.0, workers, join_s=_JOIN_S, places_jobs=True)
        self._growing = growing
        self._unasked: int | None = None
        self._asks = False
        self._resting: set[str] = set()
        self._programs = sorted({*workers.on_hosts.values(), *workers.on_devices.values(), *programs})
        self._loop = asyncio.new_event_loop()
        self._leaving = asyncio.Event()
        self._attended: dict[str, asyncio.Task[None]] = {}
        self._waits: dict[str, BackOff] = {}
        self._offers: dict[str, NodeOffer] = {}
        self._vacant: list[NodeOffer] = []
        self._thread = threading.Thread(target=self._run, name="ray", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the cluster: agents end, and with them what they keep."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._leaving.set)
            self._thread.join(timeout=20)
        self._ray.shutdown()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._look_around())
        finally:
            self._loop.close()

    async def _look_around(self) -> None:
        try:
            while not self._leaving.is_set():
                await self._look()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), _LOOK_S)
        finally:
            for task in self._attended.values():
                task.cancel()
            if self._asks:  # Ray remembers it when nobody wants it any more
                await self._ask(0)
            await asyncio.gather(*self._attended.values(), return_exceptions=True)

    async def _look(self) -> None:
        try:
            nodes = await asyncio.to_thread(self._ray.nodes)
        except Exception as error:  # Ray's own, of many kinds
            _log.error("the Ray cluster does not answer: %s", error)
            await self._connect_again()
            return
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        self._reuse_names(alive)
        if self._growing is not None:
            await self._grow(self._growing, alive)
        for id in alive.keys() - self._attended.keys() - self._resting:
            self._attended[id] = asyncio.ensure_future(self._look_after(alive[id]))
        for id in [id for id, task in self._attended.items() if task.done()]:
            del self._attended[id]

    async def _connect_again(self) -> None:
        """Make a new connection if Ray has given the old one up, as it does when the head is away for half a minute.

        A head that was started again knows nothing of what was put into its store or asked for.
        """
        try:
            if await asyncio.to_thread(self._ray.is_initialized):
                return
            await asyncio.to_thread(self._ray.shutdown)
            await asyncio.to_thread(_connect, self._ray, self._address, self._cores)
        except Exception as error:  # Ray's own, of many kinds
            _log.error("the Ray cluster cannot be reached: %s", error)
            return
        self._objects.clear()
        if self._growing is not None:
            self._unasked = self._growing.growth.asked
        _log.info("connected to the Ray cluster again")

    def _offer_of(self, node: Mapping[str, Any]) -> NodeOffer | None:
        """Return what a node is to offer: the offer of a similar node that is gone, with its name, if there is one.

        A cluster that grows and shrinks for months would else leave behind thousands of hosts that are never back.
        """
        id = node["NodeID"]
        if id not in self._offers:
            offer = offer_of(node)
            if offer is None:
                return None
            like = [each for each in self._vacant if _can_stand_for(offer, each)]
            self._offers[id] = max(like, key=lambda each: each.memory_mb, default=offer)
            if like:
                self._vacant.remove(self._offers[id])
        return self._offers[id]

    def _reuse_names(self, alive: Collection[str]) -> None:
        """Put aside the offers of nodes that are gone with their agents, for `_offer_of` to use again."""
        for id in [id for id in self._offers if id not in alive and id not in self._attended]:
            offer = self._offers.pop(id)
            self._waits.pop(offer.name, None)
            self._vacant.append(offer)

    async def _grow(self, growing: Growing, alive: Mapping[str, Mapping[str, Any]]) -> None:
        """Ask for hosts, and leave those alone that are not needed, so that Ray may take them away."""
        load = growing.backlog.look()
        asked = growing.growth.step(self._loop.time(), load)
        if asked is not None:
            _log.info("%d cores are asked for: %.0f s is the longest wait", asked, load.wait_s)
            self._unasked = asked
        if self._unasked is not None and await self._ask(self._unasked):
            self._unasked = None
        wanted = growing.growth.asked
        if wanted is None:
            return
        offers = {id: offer for id, node in alive.items() if (offer := self._offer_of(node)) is not None}
        self._resting &= offers.keys()
        present = sum(offers[id].cores for id in offers.keys() - self._resting)
        for id in sorted(self._resting):
            if present < wanted:
                self._resting.discard(id)
                present += offers[id].cores
        for id in sorted(self._attended.keys() & offers.keys()):
            cores = offers[id].cores
            if 0 < cores <= present - wanted and not offers[id].devices and offers[id].name not in load.in_use:
                self._resting.add(id)
                self._attended[id].cancel()
                present -= cores

    async def _ask(self, cores: int) -> bool:
        """Ask for this many cores in all, and return whether the cluster has received the request."""
        self._asks = True
        try:
            await asyncio.to_thread(_request, cores)
        except Exception as error:  # Ray's own, of many kinds
            _log.error("the Ray cluster does not hear that %d cores are asked for: %s", cores, error)
            return False
        return True

    async def _look_after(self, node: Mapping[str, Any]) -> None:
        """One node, for as long as it is alive; one that does not stay is tried less and less often."""
        offer = self._offer_of(node)
        if offer is None:
            _log.warning("node %s has nothing to offer: %s", node["NodeID"][:12], node["Resources"])
            await self._leaving.wait()
            return
        began = self._loop.time()
        try:
            await self._attend(node, offer)
        except Exception as error:  # Ray's own, of many kinds
            _log.warning("no agent can be started on %s: %s", offer.name, error)
        waits = self._waits.setdefault(offer.name, BackOff(_AGAIN_S, _LONGEST_AGAIN_S))
        if self._loop.time() - began > _STAYED_S:
            waits.reset()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), waits.next_wait())

    async def _attend(self, node: Mapping[str, Any], offer: NodeOffer) -> None:
        actor = await asyncio.to_thread(self._start, node["NodeID"], offer)
        attending = asyncio.wrap_future(actor.attend.remote().future())
        attended = asyncio.ensure_future(
            self._registry.attend(_RayTransport(actor), self._admit, _RayCarrier(actor, self._objects).carry)
        )
        try:
            await asyncio.wait({attending, attended}, return_when=asyncio.FIRST_COMPLETED)
            if attending.done() and (error := attending.exception()) is not None:
                _log.warning("the agent on %s ended: %s", offer.name, str(error).strip().splitlines()[-1:])
        finally:
            for task in (attended, attending):
                task.cancel()
            await asyncio.gather(attended, attending, return_exceptions=True)
            with contextlib.suppress(Exception):  # it is gone
                self._ray.kill(actor)

    def _start(self, node: str, offer: NodeOffer) -> Any:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        held = offer.cores + sum(offer.devices.values())  # so that the node is not idle, and nobody else works there
        start = self._ray.remote(NodeAgent).options(num_cpus=held, scheduling_strategy=strategy, max_concurrency=64)
        return start.remote(msgspec.msgpack.encode(offer), self._programs)


def _can_stand_for(offer: NodeOffer, gone: NodeOffer) -> bool:
    """Whether a node that offers this can offer what another did; the memory of equal ones differs by a little."""
    alike = (offer.cores, offer.devices, offer.target) == (gone.cores, gone.devices, gone.target)
    return alike and _ALMOST * offer.memory_mb <= gone.memory_mb <= offer.memory_mb


class _RayTransport:
    """The front's end of the connection to an agent: implements `kintune.workers.fleet.transport.Transport`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._unread: list[bytes] = []

    async def send(self, data: bytes) -> None:
        try:
            await asyncio.wrap_future(self._actor.hear.remote(data).future())
        except Exception as error:  # Ray's own
            raise ConnectionError(str(error)) from error

    async def receive(self) -> bytes | None:
        while not self._unread:
            try:
                self._unread = list(await asyncio.wrap_future(self._actor.speak.remote().future()))
            except Exception:  # Ray's own: it is gone
                return None
        return self._unread.pop(0)


class _RayCarrier:
    """Brings files to an agent through the object store of the cluster."""

    def __init__(self, actor: Any, objects: RayObjects) -> None:
        self._actor = actor
        self._objects = objects

    async def carry(self, path: str, content: FileContent) -> None:
        """See `kintune.workers.fleet.file_source.Carry`."""
        references = await asyncio.to_thread(self._objects.put, path, content)
        try:
            await asyncio.wrap_future(self._actor.take.remote(content.digest, references).future())
        except Exception as error:  # Ray's own: the node, or what the store had, is gone
            self._objects.forget(content)
            raise OSError(f"Ray lost it: {str(error).strip().splitlines()[-1:]}") from error


def _ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ModuleNotFoundError as error:
        raise EnvironmentProblem(
            f"--engine ray needs {error.name}; install it with: pip install 'kintune[ray]'"
        ) from error
    return ray


def _request(cores: int) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(num_cpus=cores)


def _connect(ray: Any, address: str, cores: int | None) -> None:
    """Join a cluster, or start one."""
    settings = {"log_to_driver": False, "logging_level": logging.WARNING, "configure_logging": False}
    try:
        if address:
            ray.init(address=address, **settings)
            return
        try:
            ray.init(address="auto", **settings)
        except ConnectionError:
            ray.init(include_dashboard=False, num_cpus=cores, **settings)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise EngineError(f"there is no Ray cluster at {address or 'this machine'}: {first}") from error
