from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.service.job_status import JobStatus
from kintune.service.orchestrator.events import Changed, EventBus, News, Poke, Standing, Standings, decode_news, encode
from kintune.service.web.orchestrator_client import OrchestratorClient
from kintune.wire.channel import FrameReader, frame


class Ear:
    """Counts pokes."""

    def __init__(self) -> None:
        self.count = 0
        self.heard = threading.Event()

    def __call__(self) -> None:
        self.count += 1
        self.heard.set()


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def bus(tmp_path: Path, ear: Ear) -> Iterator[EventBus]:
    made = EventBus(tmp_path / "bus.sock", ear)
    yield made
    made.close()


def dial(tmp_path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(tmp_path / "bus.sock"))
    return connection


def read_news(connection: socket.socket, count: int) -> list[News]:
    frames, found = FrameReader(), list[News]()
    while len(found) < count:
        found += [decode_news(body) for body in frames.feed(connection.recv(65536))]
    return found


def hangs_up(connection: socket.socket) -> bool:
    """Whether the other end hangs up; what it says before is read."""
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


def poke_and_wait(connection: socket.socket, ear: Ear) -> None:
    ear.heard.clear()
    connection.sendall(frame(encode(Poke())))
    assert ear.heard.wait(10)


def test_pokes_come_in_and_news_go_out(tmp_path: Path, bus: EventBus, ear: Ear) -> None:
    with dial(tmp_path) as one, dial(tmp_path) as two:
        for connection in (one, two):
            poke_and_wait(connection, ear)
        bus.publish(Changed("j1", JobStatus.TUNING))
        assert read_news(one, 1) == read_news(two, 1) == [Changed("j1", JobStatus.TUNING)]


def test_who_comes_later_is_told_how_hosts_and_devices_stand(tmp_path: Path, bus: EventBus) -> None:
    first, latest = (Standings((Standing("board", "device", "pi5", lost, 1.0),)) for lost in ("", "cut"))
    bus.publish(first)
    bus.publish(Changed("j1", JobStatus.TUNING))
    bus.publish(latest)
    with dial(tmp_path) as late:
        assert read_news(late, 1) == [latest]


def test_the_socket_is_the_owner_s(tmp_path: Path, bus: EventBus) -> None:
    assert (tmp_path / "bus.sock").stat().st_mode & 0o777 == 0o600


def test_one_who_does_not_read_is_dropped_and_disturbs_nobody(tmp_path: Path, bus: EventBus, ear: Ear) -> None:
    with dial(tmp_path) as deaf, dial(tmp_path) as good:
        poke_and_wait(deaf, ear)
        poke_and_wait(good, ear)
        for number in range(120):
            bus.publish(Changed(f"j{number}", JobStatus.FAILED, "x" * 100_000))
            (news,) = read_news(good, 1)
            assert news.job == f"j{number}"
        assert hangs_up(deaf)


def test_nonsense_is_hung_up_on(tmp_path: Path, bus: EventBus, ear: Ear) -> None:
    with dial(tmp_path) as connection:
        connection.sendall(b"\xff" * 100)
        assert connection.recv(10) == b""
    with dial(tmp_path) as connection:
        poke_and_wait(connection, ear)


def test_a_socket_left_behind_is_replaced(tmp_path: Path, ear: Ear) -> None:
    EventBus(tmp_path / "bus.sock", ear).close()
    (tmp_path / "bus.sock").write_text("left behind")
    EventBus(tmp_path / "bus.sock", ear).close()


def test_a_path_that_is_too_long_is_said_to_be(tmp_path: Path, ear: Ear) -> None:
    with pytest.raises(InputError, match="too long"):
        EventBus(tmp_path / ("x" * 120), ear)


def test_a_poke_that_comes_to_nothing_ends_nothing(tmp_path: Path) -> None:
    heard = threading.Event()
    answers = iter([RuntimeError("not ready"), None])

    def poked() -> None:
        if error := next(answers):
            raise error
        heard.set()

    with closing(EventBus(tmp_path / "bus.sock", poked)), dial(tmp_path) as connection:
        connection.sendall(2 * frame(encode(Poke())))
        assert heard.wait(10)


def test_a_line_dials_and_pokes_again_when_the_orchestrator_comes_back(tmp_path: Path, ear: Ear) -> None:
    async def play() -> list[News]:
        told: asyncio.Queue[News] = asyncio.Queue()
        line = OrchestratorClient(tmp_path / "bus.sock", told.put_nowait)
        line.start()
        line.poke()  # nobody is there yet
        found: list[News] = []
        for number in range(2):
            ear.heard.clear()
            bus = EventBus(tmp_path / "bus.sock", ear)
            await asyncio.to_thread(ear.heard.wait, 10)
            bus.publish(Changed(f"j{number}", JobStatus.DONE))
            found.append(await asyncio.wait_for(told.get(), 10))
            await asyncio.to_thread(bus.close)
            while line.connected:
                await asyncio.sleep(0.01)
        await line.close()
        return found

    assert asyncio.run(play()) == [Changed("j0", JobStatus.DONE), Changed("j1", JobStatus.DONE)]
    assert ear.count == 2
