from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from kintune.errors import InputError, StorageError
from kintune.scheduler.resources import Device, Host
from kintune.wire.child import ResourceLimits
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.process import RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.fleet.agent_registry import Admitted, AgentRegistry
from kintune.workers.fleet.messages import (
    FLEET_VERSION,
    Beat,
    Bring,
    Clear,
    Ended,
    Heard,
    Join,
    Kill,
    Launch,
    OfferedDevice,
    Printed,
    Say,
    ToAgent,
    TurnedAway,
    Welcome,
    to_agent,
)
from tests.support.memory_transport import MemoryTransport, pair

CORES = ResourceLimits(cores=(2, 3))
JOIN = Join(
    "board-7", "m1", FLEET_VERSION, WIRE_VERSION, cores=4, memory_mb=100,
    limits=ResourceLimits(50), devices=(OfferedDevice("cpu0", "pi", ("--threads", "2"), b"a pi", None, CORES),),
)  # fmt: skip


class FakeFront:
    """Notes what the engine would be told."""

    def __init__(self, refusing: str = "") -> None:
        self.refusing = refusing
        self.nodes: dict[str, RemoteNode] = {}
        self.told: list[tuple[object, ...]] = []

    def join(self, node: RemoteNode, answered: Callable[[str | None], None]) -> None:
        if not self.refusing:
            self.nodes[node.name] = node
        answered(self.refusing or None)

    def lose(self, node: str, cause: str, host: ProcessHost) -> None:
        if node in self.nodes and self.nodes[node].process_host is host:
            del self.nodes[node]
            self.told.append(("lost", node, cause))

    def heard(self, host: str, process: int, data: bytes) -> None:
        self.told.append(("heard", host, process, data))

    def printed(self, host: str, process: int, data: bytes) -> None:
        self.told.append(("printed", host, process, data))

    def ended(self, host: str, process: int, how: str) -> None:
        self.told.append(("ended", host, process, how))


def admit(join: Join) -> list[Admitted]:
    if any(device.about == b"a toaster" for device in join.devices):
        raise InputError("nothing is tuned for toasters")
    if join.name == "early":
        raise StorageError("the disk is full")
    return [Admitted(f"type of {device.about.decode()}", ("--known", "5")) for device in join.devices]


def play(front: FakeFront, act: Callable[[MemoryTransport], Awaitable[None]], beat_s: float = 5.0) -> None:
    """Be an agent of a registry, and hang up at the end."""

    async def playing() -> None:
        ours, theirs = pair()
        attending = asyncio.ensure_future(AgentRegistry(front, beat_s).attend(theirs, admit))
        await act(ours)
        ours.cut()
        await asyncio.wait_for(attending, 10)

    asyncio.run(playing())


async def say(transport: MemoryTransport, *messages: msgspec.Struct) -> None:
    for message in messages:
        await transport.send(msgspec.msgpack.encode(message))


async def hear(transport: MemoryTransport) -> ToAgent:
    data = await asyncio.wait_for(transport.receive(), 10)
    assert data is not None
    return to_agent(data)


def test_a_machine_becomes_an_node_until_its_transport_is_cut() -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        assert await hear(transport) == Welcome(5.0)
        (node,) = front.nodes.values()
        assert node.resources == (Host("board-7", 4, 100), Device("board-7/cpu0", "type of a pi"))
        assert node.commands == {
            "build@board-7": RemoteCommand("board-7", "kintune.workers.build_worker", limits=ResourceLimits(50)),
            "device@board-7/cpu0": RemoteCommand(
                "board-7", "kintune.workers.device_worker", ("--threads", "2", "--known", "5"), limits=CORES
            ),
        }

    play(front, act)
    assert front.told == [("lost", "board-7", "the connection to it was cut")]


def test_words_pass_both_ways() -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        await hear(transport)
        host = front.nodes["board-7"].process_host
        host.start(3, RemoteCommand("board-7", "a.module", ("--x",), {"A": "1"}))
        host.say(3, b"words")
        assert await hear(transport) == Launch(3, "a.module", ("--x",), {"A": "1"})
        assert await hear(transport) == Say(3, b"words")
        host.kill(3)
        assert await hear(transport) == Kill(3)
        await say(transport, Heard(3, b"answer"), Beat(), Printed(3, b"line\n"), Ended(3, "exited with code 0"))

    play(front, act)
    assert front.told[:-1] == [
        ("heard", "board-7", 3, b"answer"),
        ("printed", "board-7", 3, b"line\n"),
        ("ended", "board-7", 3, "exited with code 0"),
    ]


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (Beat(), "an agent begins with whom it speaks for"),
        (
            msgspec.structs.replace(JOIN, fleet_version="0"),
            f"this agent is of version 0.{WIRE_VERSION}, the service of",
        ),
        (msgspec.structs.replace(JOIN, name=""), "nothing can be called ''"),
        (msgspec.structs.replace(JOIN, name="a\x1b[2Jb"), "nothing can be called"),
        (msgspec.structs.replace(JOIN, name="x" * 65), "nothing can be called"),
        (msgspec.structs.replace(JOIN, name="build@here"), "nothing can be called 'build@here'"),
        (msgspec.structs.replace(JOIN, cores=-1), "this machine offers neither"),
        (msgspec.structs.replace(JOIN, cores=10**9), "no machine has 1000000000 cores"),
        (msgspec.structs.replace(JOIN, devices=2 * JOIN.devices), "two devices of this machine are called alike"),
        (Join("idle", "m", FLEET_VERSION, WIRE_VERSION), "this machine offers neither cores nor devices"),
        (
            msgspec.structs.replace(JOIN, devices=(OfferedDevice("t", "toaster", (), b"a toaster"),)),
            "nothing is tuned for toasters",
        ),
    ],
)
def test_who_cannot_join_is_told_why_and_leaves_no_trace(first: msgspec.Struct, cause: str) -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, first)
        answer = await hear(transport)
        assert isinstance(answer, TurnedAway)
        assert answer.cause.startswith(cause)
        assert not answer.later

    play(front, act)
    assert front.told == []


def test_who_comes_while_nobody_can_be_let_in_may_ask_again() -> None:
    async def act(transport: MemoryTransport) -> None:
        await say(transport, msgspec.structs.replace(JOIN, name="early"))
        assert await hear(transport) == TurnedAway("the disk is full", later=True)

    play(FakeFront(), act)


def test_who_says_nothing_at_first_may_ask_again() -> None:
    async def playing() -> None:
        ours, theirs = pair()
        attending = asyncio.ensure_future(AgentRegistry(FakeFront(), join_s=0.05).attend(theirs, admit))
        assert await hear(ours) == TurnedAway("nothing was said for 0.05 s", later=True)
        await asyncio.wait_for(attending, 10)

    asyncio.run(playing())


def test_files_go_before_what_is_said_of_them_part_by_part(tmp_path: Path) -> None:
    front = FakeFront()
    large, empty = tmp_path / "large.kt", tmp_path / "empty.npz"
    large.write_bytes(bytes(range(256)) * 5000)
    empty.touch()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        await hear(transport)
        host = front.nodes["board-7"].process_host
        host.bring(3, (str(large), str(tmp_path / "missing"), str(empty)))
        host.say(3, b"prove it")
        assert await hear(transport) == Clear(3)
        one, two, three = [await hear(transport) for _ in range(3)]
        assert isinstance(one, Bring)
        assert isinstance(two, Bring)
        assert one.data + two.data == large.read_bytes()
        assert (one.path, one.offset, two.offset, one.size) == (str(large), 0, len(one.data), 1_280_000)
        assert three == Bring(3, str(empty), 0, 0, b"")
        assert await hear(transport) == Say(3, b"prove it")

    play(front, act)


def test_much_is_said_in_parts_and_a_process_that_is_killed_hears_no_more(tmp_path: Path) -> None:
    front = FakeFront()
    large = tmp_path / "large.kt"
    large.write_bytes(bytes(5 << 20))

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        await hear(transport)
        host = front.nodes["board-7"].process_host
        host.say(3, b"abc" * (1 << 20))
        parts = [await hear(transport) for _ in range(3)]
        assert [part.process for part in parts if isinstance(part, Say)] == [3, 3, 3]
        assert b"".join(part.data for part in parts if isinstance(part, Say)) == b"abc" * (1 << 20)
        host.start(4, RemoteCommand("board-7", "a.module"))
        host.bring(4, (str(large),))
        host.say(4, b"prove it")
        host.kill(4)
        assert await hear(transport) == Launch(4, "a.module")
        assert await hear(transport) == Kill(4)
        host.say(3, b"more")
        assert await hear(transport) == Say(3, b"more")

    play(front, act)


GARBAGE = (b"", b"\xc1", b"\x91" * 5000, b"\x82\xa4type\xa4join\xa4name\xa1\xff", b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("data", [*GARBAGE, msgspec.msgpack.encode({"type": "join"})])
def test_what_is_no_message_of_an_agent_is_turned_away(data: bytes) -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await transport.send(data)
        assert isinstance(await hear(transport), TurnedAway)

    play(front, act)
    assert front.told == []


def test_one_who_is_turned_away_need_not_wait_to_hear_it() -> None:
    async def playing() -> None:
        ours, theirs = pair()
        ours.cut()
        await asyncio.wait_for(AgentRegistry(FakeFront()).attend(theirs, admit), 10)

    asyncio.run(playing())


def test_garbage_from_one_who_has_joined_loses_it() -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        await hear(transport)
        await transport.send(b"\xc1\xc1")
        while front.nodes:
            await asyncio.sleep(0.001)

    play(front, act)
    ((_, _, cause),) = front.told
    assert str(cause).startswith("2 bytes that no agent says")


def test_who_falls_silent_is_lost_and_who_beats_is_not() -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        await hear(transport)
        for _ in range(8):  # twice as long as silence is put up with
            await asyncio.sleep(0.05)
            await say(transport, Beat())
        assert front.nodes
        while front.nodes:
            await asyncio.sleep(0.01)

    play(front, act, beat_s=0.05)
    assert front.told == [("lost", "board-7", "nothing was heard of it for 0.2 s")]


def test_whom_the_engine_does_not_want_may_ask_again() -> None:
    front = FakeFront(refusing="there is a node 'board-7' already")

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        answer = await hear(transport)
        assert answer == TurnedAway("there is a node 'board-7' already", later=True)

    play(front, act)
    assert front.told == []
