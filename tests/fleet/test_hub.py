from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from kintune.engine.command import KeptCommand
from kintune.engine.outposts import Outpost
from kintune.errors import InputError
from kintune.fleet.hub import Hub
from kintune.fleet.messages import (
    FLEET_VERSION,
    Beat,
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
from kintune.scheduler.resources import Device, Host
from kintune.testing.lines import QuietLine, pair
from kintune.wire.worker import WIRE_VERSION

JOIN = Join(
    "board-7", "m1", FLEET_VERSION, WIRE_VERSION, cores=4, memory_mb=100,
    devices=(OfferedDevice("cpu0", ("--threads", "2"), b"a pi"),),
)  # fmt: skip


class FakeFront:
    """Notes what the engine would be told."""

    def __init__(self, refusing: str = "") -> None:
        self.refusing = refusing
        self.outposts: dict[str, Outpost] = {}
        self.told: list[tuple[object, ...]] = []

    def join(self, outpost: Outpost, refused: Callable[[str], None]) -> None:
        if self.refusing:
            refused(self.refusing)
        else:
            self.outposts[outpost.name] = outpost

    def lose(self, outpost: str, cause: str) -> None:
        del self.outposts[outpost]
        self.told.append(("lost", outpost, cause))

    def heard(self, keeper: str, process: int, data: bytes) -> None:
        self.told.append(("heard", keeper, process, data))

    def printed(self, keeper: str, process: int, data: bytes) -> None:
        self.told.append(("printed", keeper, process, data))

    def ended(self, keeper: str, process: int, how: str) -> None:
        self.told.append(("ended", keeper, process, how))


def device_type(about: bytes) -> str:
    if about == b"a toaster":
        raise InputError("nothing is tuned for toasters")
    return f"type of {about.decode()}"


def play(front: FakeFront, act: Callable[[QuietLine], Awaitable[None]], beat_s: float = 5.0) -> None:
    """Be an agent of a hub, and hang up at the end."""

    async def playing() -> None:
        ours, theirs = pair()
        attending = asyncio.ensure_future(Hub(front, device_type, beat_s).attend(theirs))
        await act(ours)
        ours.cut()
        await asyncio.wait_for(attending, 10)

    asyncio.run(playing())


async def say(line: QuietLine, *messages: msgspec.Struct) -> None:
    for message in messages:
        await line.send(msgspec.msgpack.encode(message))


async def hear(line: QuietLine) -> ToAgent:
    data = await asyncio.wait_for(line.receive(), 10)
    assert data is not None
    return to_agent(data)


def test_a_machine_becomes_an_outpost_until_its_line_is_cut() -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await say(line, JOIN)
        assert await hear(line) == Welcome(5.0)
        (outpost,) = front.outposts.values()
        assert outpost.resources == (Host("board-7", 4, 100), Device("board-7/cpu0", "type of a pi"))
        assert outpost.commands == {
            "build@board-7": KeptCommand("board-7", "kintune.measure.build_worker"),
            "device@board-7/cpu0": KeptCommand("board-7", "kintune.measure.device_worker", ("--threads", "2")),
        }

    play(front, act)
    assert front.told == [("lost", "board-7", "the line to it was cut")]


def test_words_pass_both_ways() -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await say(line, JOIN)
        await hear(line)
        keeper = front.outposts["board-7"].keeper
        keeper.start(3, KeptCommand("board-7", "a.module", ("--x",), {"A": "1"}))
        keeper.say(3, b"words")
        keeper.kill(3)
        assert await hear(line) == Launch(3, "a.module", ("--x",), {"A": "1"})
        assert await hear(line) == Say(3, b"words")
        assert await hear(line) == Kill(3)
        await say(line, Heard(3, b"answer"), Beat(), Printed(3, b"line\n"), Ended(3, "exited with code 0"))

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
        (msgspec.structs.replace(JOIN, name=""), "a machine cannot be called ''"),
        (msgspec.structs.replace(JOIN, name="a\x1b[2Jb"), "a machine cannot be called"),
        (msgspec.structs.replace(JOIN, name="x" * 65), "a machine cannot be called"),
        (Join("idle", "m", FLEET_VERSION, WIRE_VERSION), "this machine offers neither cores nor devices"),
        (
            msgspec.structs.replace(JOIN, devices=(OfferedDevice("t", (), b"a toaster"),)),
            "nothing is tuned for toasters",
        ),
    ],
)
def test_who_cannot_join_is_told_why_and_leaves_no_trace(first: msgspec.Struct, cause: str) -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await say(line, first)
        answer = await hear(line)
        assert isinstance(answer, TurnedAway)
        assert answer.cause.startswith(cause)
        assert not answer.later

    play(front, act)
    assert front.told == []


@pytest.mark.parametrize("data", [b"", b"\xc1", b"GET / HTTP/1.1\r\n\r\n", msgspec.msgpack.encode({"type": "join"})])
def test_what_is_no_message_of_an_agent_is_turned_away(data: bytes) -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await line.send(data)
        assert isinstance(await hear(line), TurnedAway)

    play(front, act)
    assert front.told == []


def test_one_who_is_turned_away_need_not_wait_to_hear_it() -> None:
    async def playing() -> None:
        ours, theirs = pair()
        ours.cut()
        await asyncio.wait_for(Hub(FakeFront(), device_type).attend(theirs), 10)

    asyncio.run(playing())


def test_garbage_from_one_who_has_joined_loses_it() -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await say(line, JOIN)
        await hear(line)
        await line.send(b"\xc1\xc1")
        while front.outposts:
            await asyncio.sleep(0.001)

    play(front, act)
    ((_, _, cause),) = front.told
    assert str(cause).startswith("2 bytes that no agent says")


def test_who_falls_silent_is_lost_and_who_beats_is_not() -> None:
    front = FakeFront()

    async def act(line: QuietLine) -> None:
        await say(line, JOIN)
        await hear(line)
        for _ in range(8):  # twice as long as silence is put up with
            await asyncio.sleep(0.05)
            await say(line, Beat())
        assert front.outposts
        while front.outposts:
            await asyncio.sleep(0.01)

    play(front, act, beat_s=0.05)
    assert front.told == [("lost", "board-7", "nothing was heard of it for 0.2 s")]


def test_whom_the_engine_does_not_want_may_ask_again() -> None:
    front = FakeFront(refusing="there is an outpost 'board-7' already")

    async def act(line: QuietLine) -> None:
        await say(line, JOIN)
        assert isinstance(await hear(line), Welcome)
        await say(line, Beat())
        answer = await hear(line)
        assert answer == TurnedAway("there is an outpost 'board-7' already", later=True)

    play(front, act)
    assert front.told == []
