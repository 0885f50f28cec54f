"""The agent against a registry and an engine, with real processes; and alone, where the front misbehaves."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import InputError
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.job_run import JobEnd, JobLaunch
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from kintune.workers.fleet.agent import Agent
from kintune.workers.fleet.agent_registry import Admitted, AgentRegistry
from kintune.workers.fleet.content_cache import ContentCache
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.file_source import FileSource
from kintune.workers.fleet.messages import FLEET_VERSION, Join, OfferedDevice, TurnedAway, Welcome
from kintune.workers.fleet.transport import Transport
from tests.support.journal import MemoryJournal
from tests.support.memory_transport import MemoryTransport, pair
from tests.support.script import Act, Deed, Plot
from tests.support.scripted_job import Told

JOIN = Join(
    "board", "m1", FLEET_VERSION, WIRE_VERSION,
    devices=(OfferedDevice("cpu0", "cpu", ("--kind", "device"), b""),),
)  # fmt: skip


_SCRIPTED_MODULE = "tests.support.scripted_worker"
_PROGRAM, _SCRIPTED = map(msgspec.msgpack.encode, ("kintune.workers.device_worker", _SCRIPTED_MODULE))


def _admit(join: Join) -> list[Admitted]:
    return [Admitted(device.type) for device in join.devices]


class Rewired(Agent):
    """An agent whose device worker is the scripted one."""

    async def attend(self, line: Transport) -> bool:
        return await super().attend(_Rewiring(line))


class _Rewiring:
    def __init__(self, line: Transport) -> None:
        self._line = line

    async def send(self, data: bytes) -> None:
        await self._line.send(data)

    async def receive(self) -> bytes | None:
        data = await self._line.receive()
        return None if data is None else data.replace(_PROGRAM, _SCRIPTED)


class Fleet:
    """An engine, a registry in a thread, and an agent there whose line can be cut."""

    def __init__(self, log: Path) -> None:
        self.notes: list[str] = []
        self.engine = LocalEngine(
            Scheduler(Sequential(), RetryLimits(backoff_s=0.01, resources_may_join=True)),
            MemoryJournal(),
            {},
            (Host("here", 1, 1000),),
            log=log,
            elsewhere={"device"},
        )
        self._lines: list[MemoryTransport] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        registry = AgentRegistry(self.engine, beat_s=0.5)

        @asynccontextmanager
        async def connect() -> AsyncIterator[Transport]:
            ours, theirs = pair()
            self._lines.append(ours)
            attending = asyncio.ensure_future(registry.attend(theirs, _admit))
            yield ours
            ours.cut()
            await attending

        async def sleep(_: float) -> None:
            await asyncio.sleep(0.01)

        agent = Rewired(JOIN, self.notes.append, {_SCRIPTED_MODULE}, ContentCache(log.parent / "cache"))
        asyncio.run_coroutine_threadsafe(agent.serve(connect, sleep), self._loop)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._lines[-1].cut)

    def run(self, *deeds: Deed, files: tuple[str, ...] = ()) -> JobEnd:
        stage = Stage("profile", "j", "device", Demand(device="cpu", exclusive=True))
        work = Work(stage, "device", b"", tuple(deed.encode() for deed in deeds), 60, files=files)
        job = Command((sys.executable, "-m", "tests.support.scripted_job"))
        with self.engine:
            return self.engine.run([JobLaunch("j", job, Plot(((work,),)).encode())])["j"]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path / "run.log")
    yield fleet
    fleet.close()


def answers(end: JobEnd) -> list[tuple[ItemStatus, bytes]]:
    assert end.finished is not None, end
    return [(e.status, e.payload) for e in msgspec.msgpack.decode(end.finished.summary, type=Told).events]


def test_a_stage_runs_on_an_agents_device(fleet: Fleet) -> None:
    end = fleet.run(Deed(text="a"), Deed(Act.KILL, number=11), Deed(text="b"))
    assert answers(end) == [(ItemStatus.OK, b"a"), (ItemStatus.CRASHED, b""), (ItemStatus.OK, b"b")]
    assert fleet.notes[0] == "joined as board"


def test_files_of_the_front_are_found_by_their_paths_there(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "network.kt"
    file.write_bytes(b"3 megabytes" * 300_000)
    end = fleet.run(Deed(Act.READ, text=str(file)), files=(str(file),))
    ((status, payload),) = answers(end)
    assert (status, payload) == (ItemStatus.OK, file.read_bytes())


def test_files_reach_an_agent_that_does_not_see_the_front_s_and_are_kept_there(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileFetcher, "_is_here", lambda *_: False)
    wanted: list[str] = []
    want = FileSource.want
    monkeypatch.setattr(FileSource, "want", lambda self, each: wanted.append(each.digest) or want(self, each))
    file = tmp_path / "network.kt"
    file.write_bytes(b"3 megabytes" * 300_000)
    reading = Deed(Act.READ, text=str(file))
    end = fleet.run(reading, Deed(Act.KILL, number=11), reading, files=(str(file),))
    data = file.read_bytes()
    assert answers(end) == [(ItemStatus.OK, data), (ItemStatus.CRASHED, b""), (ItemStatus.OK, data)]
    assert len(wanted) == 1  # the second worker's copy comes from the cache
    (kept,) = (path for path in (tmp_path / "cache").iterdir() if path.is_file())
    assert kept.name == wanted[0]


def test_a_line_that_is_cut_costs_nothing_but_time(fleet: Fleet, tmp_path: Path) -> None:
    cutting = threading.Timer(0.8, fleet.cut)
    cutting.start()
    end = fleet.run(Deed(text="a"), Deed(Act.HANG, text="b", once=str(tmp_path / "hung")))
    cutting.join()
    assert answers(end) == [(ItemStatus.OK, b"a"), (ItemStatus.OK, b"b")]
    assert fleet.notes[:4] == [
        "joined as board",
        "the connection to the service was cut",
        "trying again in 1 s",
        "joined as board",
    ]


def test_one_that_is_turned_away_for_good_says_so() -> None:
    async def playing() -> None:
        ours, theirs = pair()
        await theirs.send(msgspec.msgpack.encode(TurnedAway("the token is another machine's")))
        with pytest.raises(InputError, match="turns this machine away: the token is another machine's"):
            await Agent(JOIN, lambda _: None).attend(ours)

    asyncio.run(playing())


@pytest.mark.parametrize("answer", [TurnedAway("full", later=True), None])
def test_one_that_is_not_welcome_now_is_not_taken_for_one_that_was(answer: TurnedAway | None) -> None:
    async def playing() -> bool:
        ours, theirs = pair()
        if answer is None:
            theirs.cut()
        else:
            await theirs.send(msgspec.msgpack.encode(answer))
        return await Agent(JOIN, lambda _: None).attend(ours)

    assert asyncio.run(playing()) is False


def test_a_front_that_begins_with_nonsense_is_left() -> None:
    notes: list[str] = []

    async def playing() -> bool:
        ours, theirs = pair()
        await theirs.send(b"HTTP/1.1 502 Bad Gateway")
        return await Agent(JOIN, notes.append).attend(ours)

    assert asyncio.run(playing()) is False
    assert notes[0].startswith("24 bytes that no front says")


def test_a_front_that_talks_nonsense_is_left() -> None:
    notes: list[str] = []

    async def playing() -> bool:
        ours, theirs = pair()
        await theirs.send(msgspec.msgpack.encode(Welcome(5.0)))
        await theirs.send(b"\xc1")
        return await Agent(JOIN, notes.append).attend(ours)

    assert asyncio.run(playing()) is True
    assert notes[-1].startswith("1 bytes that no front says")


def test_waits_grow_while_the_service_cannot_be_reached() -> None:
    waits: list[float] = []

    @asynccontextmanager
    async def connect() -> AsyncIterator[Transport]:
        raise ConnectionRefusedError("nobody listens")
        yield pair()[0]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Agent(JOIN, lambda _: None).serve(connect, sleep))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
