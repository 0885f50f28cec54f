from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from kintune.core.version import __version__
from kintune.errors import InputError, StorageError
from kintune.scheduler.resources import Device, Host
from kintune.wire.child import ResourceLimits
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.process import RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.fleet.agent_registry import Admitted, AgentRegistry
from kintune.workers.fleet.file_transfer import sees, with_token
from kintune.workers.fleet.messages import (
    FLEET_VERSION,
    Beat,
    Clear,
    Collect,
    Ended,
    FileGone,
    FilePart,
    Heard,
    Join,
    Kill,
    Launch,
    Made,
    Need,
    OfferedDevice,
    Printed,
    Say,
    ToAgent,
    TurnedAway,
    Want,
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
            f"this machine has Kintune 0.{WIRE_VERSION}, the service {FLEET_VERSION}.",
        ),
        (
            msgspec.structs.replace(JOIN, fleet_version=FLEET_VERSION.replace(__version__, "0.0.9")),
            "this machine has Kintune 0.0.9",
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


def content(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


async def joined(transport: MemoryTransport, front: FakeFront) -> ProcessHost:
    await say(transport, JOIN)
    await hear(transport)
    return front.nodes["board-7"].process_host


def test_files_are_announced_before_what_is_said_of_them_and_sent_when_they_are_wanted(tmp_path: Path) -> None:
    front = FakeFront()
    large, empty = tmp_path / "large.kt", tmp_path / "empty.npz"
    large.write_bytes(bytes(range(256)) * 5000)
    empty.touch()

    async def act(transport: MemoryTransport) -> None:
        host = await joined(transport, front)
        size, digest = content(large.read_bytes())
        for _ in range(2):  # the second time the digests are known
            host.bring(3, (str(large), str(tmp_path / "missing"), str(empty)))
            host.say(3, b"prove it")
            assert await hear(transport) == Clear(3)
            assert await hear(transport) == Need(3, str(large), size, digest)
            assert await hear(transport) == Need(3, str(empty), *content(b""))
            assert await hear(transport) == Say(3, b"prove it")
        await say(transport, Want(digest))
        one, two = [await hear(transport) for _ in range(2)]
        assert isinstance(one, FilePart)
        assert isinstance(two, FilePart)
        assert one.data + two.data == large.read_bytes()
        assert (one.digest, one.offset, two.offset) == (digest, 0, len(one.data))
        await say(transport, Want(content(b"")[1]))
        assert await hear(transport) == FilePart(content(b"")[1], 0, b"")

    play(front, act)


def test_a_file_that_has_changed_meanwhile_is_not_sent(tmp_path: Path) -> None:
    front = FakeFront()
    model = tmp_path / "net.onnx"
    model.write_bytes(b"before")

    async def act(transport: MemoryTransport) -> None:
        host = await joined(transport, front)
        host.bring(3, (str(model),))
        assert await hear(transport) == Clear(3)
        need = await hear(transport)
        assert isinstance(need, Need)
        model.write_bytes(b"after!")
        await say(transport, Want(need.digest, again=True))
        cause = "net.onnx has changed at the service while it was needed; try again"
        assert await hear(transport) == FileGone(need.digest, cause)
        model.write_bytes(b"short")
        await say(transport, Want(need.digest))
        assert await hear(transport) == FilePart(need.digest, 0, b"short")
        assert await hear(transport) == FileGone(need.digest, cause)
        model.unlink()
        await say(transport, Want(need.digest))
        gone = await hear(transport)
        assert gone == FileGone(need.digest, "net.onnx cannot be sent by the service: No such file or directory")

    play(front, act)


def test_no_file_is_sent_that_was_not_announced() -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        await joined(transport, front)
        await say(transport, Want("/etc/shadow"))
        assert await hear(transport) == FileGone("/etc/shadow", "the file was not announced")

    play(front, act)


def made(process: int, path: Path, data: bytes, digest: str = "") -> Made:
    size, right = content(data)
    return Made(process, str(path), 0, size, digest or right, data)


def test_what_a_process_has_made_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        host = await joined(transport, front)
        host.start(3, RemoteCommand("board-7", "a.module", collect=str(tmp_path / "net.kt")))
        launch = await hear(transport)
        assert isinstance(launch, Launch)
        assert launch.collect is not None
        assert launch.collect.prefix == str(tmp_path / "net.kt")
        assert Path(launch.collect.token_path).read_text() == launch.collect.token
        size, digest = content(b"executable")
        place = str(tmp_path / "net.kt.unproven")
        await say(transport, Made(3, place, 0, size, digest, b"execut"), Made(3, place, 6, size, digest, b"able"))
        await say(transport, Heard(3, b"done"), made(4, tmp_path / "of-one-that-is-gone", b""), Beat())
        while not front.told:
            await asyncio.sleep(0.001)
        assert Path(place).read_bytes() == b"executable"
        await say(transport, Made(3, str(tmp_path / "net.kt"), 0, 99, digest, b"half"))

    play(front, act)
    assert front.told[0] == ("heard", "board-7", 3, b"done")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".kintune-visible", "net.kt.unproven"]


@pytest.mark.parametrize("name", ["../net.kt", "other.kt", "net.kt/../../x", "net.kt/x"])
def test_nothing_else_of_the_front_is_written(tmp_path: Path, name: str) -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        host = await joined(transport, front)
        host.start(3, RemoteCommand("board-7", "a.module", collect=str(tmp_path / "net.kt")))
        await hear(transport)
        await say(transport, made(3, tmp_path / name, b"evil"))
        while front.nodes:
            await asyncio.sleep(0.001)

    play(front, act)
    ((_, _, cause),) = front.told
    assert str(cause).startswith("it made a file that nobody wants: ")


def test_a_result_that_arrives_otherwise_than_it_was_made_ends_its_process(tmp_path: Path) -> None:
    front = FakeFront()

    async def act(transport: MemoryTransport) -> None:
        host = await joined(transport, front)
        host.start(3, RemoteCommand("board-7", "a.module", collect=str(tmp_path / "net.kt")))
        await hear(transport)
        await say(transport, made(3, tmp_path / "net.kt", b"damaged", digest="0" * 64))
        assert await hear(transport) == Kill(3)

    play(front, act)
    cause = "net.kt arrived otherwise than it was made; its SHA-256 differs"
    assert front.told[0] == ("ended", "board-7", 3, cause)
    assert not (tmp_path / "net.kt").exists()


def test_where_no_token_can_be_written_files_are_brought_back(tmp_path: Path) -> None:
    assert with_token(str(tmp_path / "gone/net.kt")) == Collect(str(tmp_path / "gone/net.kt"))
    assert not sees(with_token(str(tmp_path / "gone/net.kt")))
    assert sees(with_token(str(tmp_path / "net.kt")))


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


class Distant(MemoryTransport):
    """What is said takes a few turns of the event loop to arrive, as over a network."""

    async def receive(self) -> bytes | None:
        data = await super().receive()
        for _ in range(8):
            await asyncio.sleep(0)
        return data


def test_an_agent_is_not_lost_because_this_process_was_stopped() -> None:
    front = FakeFront()

    async def playing() -> None:
        ours, theirs = pair()
        theirs = Distant(theirs._incoming, theirs._outgoing)
        attending = asyncio.ensure_future(AgentRegistry(front, beat_s=0.2).attend(theirs, admit))
        await joined(ours, front)
        await asyncio.sleep(0.05)
        time.sleep(1.0)  # more beats than may be missed
        await say(ours, Beat())
        await asyncio.sleep(0.3)
        assert front.nodes
        ours.cut()
        await asyncio.wait_for(attending, 10)

    asyncio.run(playing())
    assert front.told == [("lost", "board-7", "the connection to it was cut")]


class OneWay(MemoryTransport):
    """Nothing but a first message can be sent any more; what comes in is heard."""

    sent = 0

    async def send(self, data: bytes) -> None:
        self.sent += 1
        if self.sent > 1:
            raise ConnectionError("Ray lost it")
        await super().send(data)


def test_an_agent_that_hears_nothing_any_more_is_lost() -> None:
    """What it is told would be waited for, although it beats."""
    front = FakeFront()

    async def playing() -> None:
        ours, theirs = pair()
        theirs = OneWay(theirs._incoming, theirs._outgoing)
        attending = asyncio.ensure_future(AgentRegistry(front).attend(theirs, admit))
        host = await joined(ours, front)
        host.kill(3)
        for _ in range(100):
            await asyncio.sleep(0.01)
            await say(ours, Beat())
            if attending.done():
                break
        await asyncio.wait_for(attending, 1)

    asyncio.run(playing())
    assert front.told == [("lost", "board-7", "the connection to it was cut")]


def test_whom_the_engine_does_not_want_may_ask_again() -> None:
    front = FakeFront(refusing="there is a node 'board-7' already")

    async def act(transport: MemoryTransport) -> None:
        await say(transport, JOIN)
        answer = await hear(transport)
        assert answer == TurnedAway("there is a node 'board-7' already", later=True)

    play(front, act)
    assert front.told == []
