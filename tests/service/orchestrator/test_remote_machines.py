"""The gate, with real WebSockets between it and the agents that come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kintune.errors import EngineError, InputError
from kintune.service.access import Scope
from kintune.service.database import open_database
from kintune.service.machines import MachineRegistry
from kintune.service.orchestrator.remote_machines import Admission, AgentListener
from kintune.service.users import Users
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.remote_process import ProcessHost
from kintune.workers.fleet.messages import FLEET_VERSION, Beat, Join, OfferedDevice, TurnedAway, Welcome, to_agent
from kintune.workers.fleet.sockets import PATH, call
from kintune.workers.fleet.transport import Transport
from tests.support.boards import board_about

PI = board_about("Cortex-A76", pulse_us=500.0)
JOIN = Join(
    "board", "m1", FLEET_VERSION, WIRE_VERSION, devices=(OfferedDevice("cpu", "pi5", (), msgspec.msgpack.encode(PI)),)
)


class FakeFront:
    """Notes who is there."""

    def __init__(self) -> None:
        self.nodes: dict[str, RemoteNode] = {}
        self.lost: list[str] = []

    def join(self, node: RemoteNode, answered: Callable[[str | None], None]) -> None:
        self.nodes[node.name] = node
        answered(None)

    def lose(self, node: str, cause: str, host: ProcessHost) -> None:
        del self.nodes[node]
        self.lost.append(cause)

    def heard(self, host: str, process: int, data: bytes) -> None:
        raise AssertionError

    printed = heard

    def ended(self, host: str, process: int, how: str) -> None:
        raise AssertionError


class ListenerCase:
    """A gate on this machine, and tokens."""

    def __init__(self, directory: Path) -> None:
        self.database = open_database(str(directory / "service.sqlite"))
        self.users, self.front = Users(self.database), FakeFront()
        self.operator = self.users.add_user("operator", 0.0)
        self.joined: list[str] = []
        self.admission = Admission(
            MachineRegistry(self.database, PI.compiler),
            lambda join, types: self.joined.append(f"{join.name} {types[0].device_type.model}"),
            time.time,
        )
        self.gate = AgentListener(("127.0.0.1", 0), self.users, self.admission, self.front, again_s=0.05)

    def token(self, scope: Scope = Scope.MACHINE) -> str:
        return self.users.add_token(self.operator, "", scope, time.time(), None).text

    def play(self, token: str, act: Callable[[Transport], Awaitable[None]], path: str = PATH) -> None:
        """Come in with a token."""

        async def playing() -> None:
            async with call(f"ws://127.0.0.1:{self.gate.port}{path}", token) as line:
                await asyncio.wait_for(act(line), 20)

        asyncio.run(playing())

    def wait_until_nobody_is_there(self) -> None:
        deadline = time.monotonic() + 10
        while self.front.nodes:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self) -> None:
        self.gate.close()
        self.database.close()


@pytest.fixture
def case(tmp_path: Path) -> Iterator[ListenerCase]:
    with closing(ListenerCase(tmp_path)) as case:
        yield case


async def welcomed(line: Transport) -> None:
    await line.send(msgspec.msgpack.encode(JOIN))
    answer = await line.receive()
    assert answer is not None
    assert isinstance(to_agent(answer), Welcome)


def test_a_machine_with_a_token_works_for_the_engine_until_it_leaves(case: ListenerCase) -> None:
    async def act(line: Transport) -> None:
        await welcomed(line)
        assert list(case.front.nodes) == ["board"]
        (command,) = case.front.nodes["board"].commands.values()
        assert command.arguments == ("--pulse-us", "500", "--alike", "1.5")  # type: ignore[union-attr]

    case.play(case.token(), act)
    case.wait_until_nobody_is_there()
    assert case.front.lost == ["the connection to it was cut"]
    assert case.joined == ["board Cortex-A76"]


async def nothing(line: Transport) -> None:
    raise AssertionError("nobody should have come in")


@pytest.mark.parametrize("token", ["", "kt_x", "kt_" + 43 * "a"])
def test_nobody_comes_in_without_a_token(case: ListenerCase, token: str) -> None:
    with pytest.raises(InputError, match="the service refuses this machine: this takes a valid token"):
        case.play(token, nothing)


def test_a_persons_token_is_no_machines(case: ListenerCase) -> None:
    with pytest.raises(InputError, match="this token may admin; what was asked takes one that may machine"):
        case.play(case.token(Scope.ADMIN), nothing)


def test_there_is_nothing_else_behind_the_door(case: ListenerCase) -> None:
    with pytest.raises(InputError, match=f"agents come in at {PATH}"):
        case.play(case.token(), nothing, "/api/v1/jobs")


def test_a_token_that_is_taken_back_takes_the_machine_along(case: ListenerCase) -> None:
    token = case.token()

    async def act(line: Transport) -> None:
        await welcomed(line)
        number = case.users.visitor(token, time.time()).token
        assert number is not None
        case.users.revoke(number, time.time())
        assert await line.receive() is None

    case.play(token, act)
    case.wait_until_nobody_is_there()


def test_whom_the_roll_turns_away_hears_why(case: ListenerCase) -> None:
    async def act(line: Transport) -> None:
        await line.send(msgspec.msgpack.encode(msgspec.structs.replace(JOIN, fleet_version="0")))
        answer = await line.receive()
        assert answer is not None
        turned_away = to_agent(answer)
        assert isinstance(turned_away, TurnedAway)
        assert "install the same Kintune on both" in turned_away.cause

    case.play(case.token(), act)


def test_text_is_nothing_that_agents_say(case: ListenerCase) -> None:
    async def act(line: Transport) -> None:
        await welcomed(line)
        await line._connection.send("hello")  # type: ignore[attr-defined]
        assert await line.receive() is None

    case.play(case.token(), act)


def test_a_service_that_leaves_hangs_up(case: ListenerCase) -> None:
    async def act(line: Transport) -> None:
        await welcomed(line)
        await line.send(msgspec.msgpack.encode(Beat()))
        await asyncio.to_thread(case.gate.close)
        assert await line.receive() is None

    case.play(case.token(), act)
    with pytest.raises(OSError, match=r"."):
        case.play(case.token(), nothing)


def test_a_port_that_is_taken(case: ListenerCase) -> None:
    with pytest.raises(EngineError, match=f"agents cannot be let in at 127.0.0.1:{case.gate.port}"):
        AgentListener(("127.0.0.1", case.gate.port), case.users, case.admission, case.front)
