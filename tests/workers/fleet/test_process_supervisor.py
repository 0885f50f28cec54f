"""Processes kept for somebody else: real ones."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from pathlib import Path

import msgspec
import psutil
import pytest

from kintune.core.messages import Begin, Hello, Item, ItemDone, ItemFailed, Shutdown
from kintune.errors import WireError
from kintune.wire.channel import encoded, reader_of_worker
from kintune.wire.child import last_words
from kintune.workers.fleet.content_cache import CACHE_VARIABLE, ContentCache
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.file_transfer import StagingDirectory, sweep
from kintune.workers.fleet.messages import Collect, FileGone, FilePart, Launch, Made, Need, Want
from kintune.workers.fleet.ownership import owner
from kintune.workers.fleet.process_supervisor import ProcessSupervisor
from tests.support.script import Act, Deed

WORKER = "tests.support.scripted_worker"


class Notes:
    """What a supervisor tells."""

    def __init__(self) -> None:
        self.said: dict[int, bytes] = {}
        self.out: dict[int, bytes] = {}
        self.how: dict[int, str] = {}
        self.made_parts: list[Made] = []
        self.wanted: list[Want] = []
        self.news = asyncio.Event()

    def heard(self, process: int, data: bytes) -> None:
        self.said[process] = self.said.get(process, b"") + data
        self.news.set()

    def printed(self, process: int, data: bytes) -> None:
        self.out[process] = self.out.get(process, b"") + data

    def made(self, process: int, parts: Iterator[Made]) -> None:
        self.made_parts += parts

    def ended(self, process: int, how: str) -> None:
        self.how[process] = how
        self.news.set()

    def messages(self, process: int) -> list[object]:
        return [*reader_of_worker().feed(self.said.get(process, b""))]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 30)


def play(act: Callable[[ProcessSupervisor, Notes], Awaitable[None]], cache: Path | None = None) -> Notes:
    """Act on a supervisor that keeps scripted workers; nothing of it is left but the files in `cache`.

    Whatever file it wants consists of the bytes "onetwo".
    """

    async def playing() -> Notes:
        notes = Notes()

        def bring(want: Want) -> None:
            notes.wanted.append(want)
            loop = asyncio.get_running_loop()
            loop.call_soon(fetcher.part, FilePart(want.digest, 0, b"one"))
            loop.call_soon(fetcher.part, FilePart(want.digest, 3, b"two"))

        fetcher = FileFetcher(ContentCache(cache or Path(tempfile.gettempdir())), bring)
        supervisor = ProcessSupervisor(notes, fetcher, {WORKER})
        await act(supervisor, notes)
        await supervisor.close()
        assert len(supervisor) == 0
        return notes

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    notes = asyncio.run(playing())
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    return notes


def order(deed: Deed) -> bytes:
    begin = Begin("s", 0, "build", b"")
    return encoded(begin) + encoded(Item("s", 0, 0, deed.encode()))


def test_what_is_said_passes_both_ways_and_the_end_is_told() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(7, WORKER))
        supervisor.say(7, order(Deed(text="hello")))  # before it is up
        await notes.until(lambda: len(notes.messages(7)) == 2)
        supervisor.say(7, encoded(Shutdown()))
        await notes.until(lambda: 7 in notes.how)

    notes = play(act)
    greeting, answer = notes.messages(7)
    assert isinstance(greeting, Hello)
    assert isinstance(answer, ItemDone)
    assert answer.payload == b"hello"
    assert notes.how == {7: "exited with code 0"}


@pytest.mark.parametrize(
    ("deed", "how"),
    [(Deed(Act.KILL, number=signal.SIGSEGV), "killed by SIGSEGV"), (Deed(Act.EXIT, number=3), "exited with code 3")],
)
def test_how_a_process_died_is_told_with_what_it_printed(deed: Deed, how: str) -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.say(1, order(deed))
        await notes.until(lambda: 1 in notes.how)

    notes = play(act)
    assert notes.how == {1: how}
    words, _ = last_words(notes.out.get(1, b"").decode())
    assert words == ("about to die" if deed.act is Act.KILL else "")


def test_of_what_a_process_prints_too_much_only_the_last_is_passed_on() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.say(1, order(Deed(Act.FLOOD, "x", number=16 << 20)))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        supervisor.say(1, order(Deed(Act.KILL, number=signal.SIGKILL)))
        await notes.until(lambda: 1 in notes.how)

    notes = play(act)
    assert 8 << 20 <= len(notes.out[1]) < 9 << 20
    assert notes.out[1].endswith(b"xabout to die\n")


def test_a_process_that_hangs_is_killed_when_it_is_told() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.say(1, order(Deed(Act.HANG)))
        await notes.until(lambda: len(notes.messages(1)) == 1)
        supervisor.kill(1)
        await notes.until(lambda: 1 in notes.how)

    assert play(act).how == {1: "killed"}


def test_one_that_is_killed_before_it_is_up_does_not_come_up() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.kill(1)
        await notes.until(lambda: 1 in notes.how)

    assert play(act).how == {1: "killed"}


def test_only_our_programs_are_started() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, "http.server", ("--bind", "0.0.0.0")))
        await notes.until(lambda: 1 in notes.how)

    assert play(act).how == {1: "http.server is none of the programs that can be started here"}


def test_those_that_are_left_are_killed_at_the_end_and_strangers_are_ignored() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        for number in (1, 2):
            supervisor.start(Launch(number, WORKER))
        await notes.until(lambda: len(notes.said) == 2)
        supervisor.say(99, b"anybody?")
        supervisor.kill(99)

    assert play(act).how == {1: "killed", 2: "killed"}


def test_large_messages_pass() -> None:
    size = 3_000_000

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.say(1, order(Deed(Act.BIG, number=size)))
        await notes.until(lambda: len(notes.said.get(1, b"")) > size)

    answer = play(act).messages(1)[-1]
    assert isinstance(answer, ItemDone)
    assert len(answer.payload) == size


def test_messages_have_tags_that_tell_them_apart() -> None:
    with pytest.raises(WireError):
        reader_of_worker().feed(encoded(Launch(1, WORKER)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Launch(1, WORKER)), type=Launch) == Launch(1, WORKER)


DIGEST = hashlib.sha256(b"onetwo").hexdigest()


def test_files_are_a_processs_own_and_gone_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, cache = tmp_path / "temporary", tmp_path / "cache"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.start(Launch(2, WORKER))
        supervisor.need(Need(1, "/there/net.kt", 6, DIGEST))
        for process in (1, 2):
            supervisor.say(process, order(Deed(Act.READ, text="/there/net.kt")))
        await notes.until(lambda: all(len(notes.messages(process)) == 2 for process in (1, 2)))
        (kept,) = cache.glob("kintune-staging-*/*.kt")
        assert kept.samefile(cache / DIGEST)  # no copy, and none in memory if temporary files lie there
        assert list(temporary.iterdir()) == []
        supervisor.clear(1)
        assert not kept.exists()

    notes = play(act, cache)
    found, missing = (notes.messages(process)[1] for process in (1, 2))
    assert isinstance(found, ItemDone)
    assert found.payload == b"onetwo"
    assert isinstance(missing, ItemFailed)
    assert [path.name for path in cache.iterdir()] == [DIGEST]
    assert notes.wanted == [Want(DIGEST)]
    notes = play(act, cache)
    assert notes.wanted == []  # it is kept on this machine


def test_a_file_that_is_too_large_ends_the_process_that_needs_it(tmp_path: Path) -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        await notes.until(lambda: bool(notes.messages(1)))
        supervisor.need(Need(1, "/there/vast.onnx", 1 << 62, DIGEST))
        await notes.until(lambda: 1 in notes.how)

    assert play(act, tmp_path).how[1].startswith("vast.onnx is too large for this machine: it has ")


def test_what_a_process_hands_over_goes_before_what_it_says_of_it(tmp_path: Path) -> None:
    wanted = str(tmp_path / "net.kt")

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER, collect=Collect(wanted)))
        supervisor.say(1, order(Deed(Act.MAKE, text=wanted)))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        digest = hashlib.sha256(wanted.encode()).hexdigest()
        assert notes.made_parts == [Made(1, wanted, 0, len(wanted), digest, wanted.encode())]

    play(act)
    assert not (tmp_path / "net.kt").exists()


def test_a_process_writes_where_the_front_wants_it_if_that_is_to_be_seen(tmp_path: Path) -> None:
    wanted, token = str(tmp_path / "net.kt"), tmp_path / "token"
    token.write_text("secret")

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER, collect=Collect(wanted, str(token), "secret")))
        supervisor.say(1, order(Deed(Act.MAKE, text=wanted)))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        assert notes.made_parts == []

    play(act)
    assert (tmp_path / "net.kt").read_text() == wanted


def test_what_killed_agents_have_left_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = tmp_path / "temporary", tmp_path / "cache"
    monkeypatch.setattr(tempfile, "tempdir", str(folders[0]))
    monkeypatch.setenv(CACHE_VARIABLE, str(folders[1]))
    mine, dead = (f"kintune-staging-{owner().partition('-')[0]}-{number}-a" for number in (os.getpid(), 999999999))
    for folder in folders:
        for name in (mine, dead):
            (folder / name).mkdir(parents=True)
    sweep()
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [[mine], [mine]]


def test_where_the_cache_cannot_be_written_to_files_are_temporary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "cache").touch()
    assert StagingDirectory(tmp_path / "cache").made.parent.parent == tmp_path


def test_a_front_says_little_of_a_programs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER, environment={"LD_PRELOAD": "/evil.so", "TVM_NUM_THREADS": "3"}))
        await notes.until(lambda: bool(notes.messages(1)))
        (child,) = (each for each in psutil.Process().children() if WORKER in each.cmdline())
        assert child.environ()["LD_PRELOAD"] == ""
        assert child.environ()["TVM_NUM_THREADS"] == "3"

    play(act)


def test_what_a_process_hands_over_outlives_it(tmp_path: Path) -> None:
    """What is sent later is read later: the connection may be slow."""
    wanted, unread = str(tmp_path / "net.kt"), list[Iterator[Made]]()

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        notes.made = lambda _, parts: unread.append(parts)
        supervisor.start(Launch(1, WORKER, collect=Collect(wanted)))
        supervisor.say(1, order(Deed(Act.MAKE, text=wanted)))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        supervisor.kill(1)
        await notes.until(lambda: 1 in notes.how)

    play(act)
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    assert [*chain(*unread)] == [Made(1, wanted, 0, len(wanted), digest, wanted.encode())]


def test_one_whose_child_keeps_the_output_open_has_ended_all_the_same() -> None:
    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        supervisor.say(1, order(Deed(Act.ORPHAN)))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        answer = notes.messages(1)[1]
        assert isinstance(answer, ItemDone)
        try:
            supervisor.kill(1)
            await notes.until(lambda: 1 in notes.how)
        finally:
            os.kill(int(answer.payload), signal.SIGKILL)
        await asyncio.sleep(0.1)  # the pipe is closed

    assert play(act).how == {1: "killed"}


def test_a_number_is_not_killed_once_its_process_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that the process needed may still be on its way, and then not come."""
    killed: list[int] = []
    kill = os.killpg
    monkeypatch.setattr(os, "killpg", lambda number, how: killed.append(number) or kill(number, how))

    async def playing() -> int:
        notes = Notes()
        fetcher = FileFetcher(ContentCache(tmp_path), notes.wanted.append)
        supervisor = ProcessSupervisor(notes, fetcher, {WORKER})
        supervisor.start(Launch(1, WORKER))
        await notes.until(lambda: bool(notes.messages(1)))
        supervisor.need(Need(1, "/there/net.kt", 6, DIGEST))
        while not notes.wanted:
            await asyncio.sleep(0.001)
        supervisor.kill(1)
        await notes.until(lambda: 1 in notes.how)
        before = len(killed)
        fetcher.gone(FileGone(DIGEST, "net.kt has changed"))
        await supervisor.close()
        return len(killed) - before

    assert asyncio.run(playing()) == 0
    assert killed


def test_a_directory_that_somebody_has_cleaned_up_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    async def act(supervisor: ProcessSupervisor, notes: Notes) -> None:
        supervisor.start(Launch(1, WORKER))
        await notes.until(lambda: bool(notes.messages(1)))
        (directory,) = cache.iterdir()
        shutil.rmtree(directory)
        supervisor.clear(1)
        assert directory.stat().st_mode & 0o777 == 0o700
        supervisor.need(Need(1, "/there/net.kt", 6, DIGEST))
        supervisor.say(1, order(Deed(Act.READ, text="/there/net.kt")))
        await notes.until(lambda: len(notes.messages(1)) == 2)
        shutil.rmtree(cache)
        supervisor.clear(1)
        await notes.until(lambda: 1 in notes.how)

    notes = play(act, cache)
    answer = notes.messages(1)[1]
    assert isinstance(answer, ItemDone)
    assert answer.payload == b"onetwo"
    assert notes.how == {1: "no place for its files: No such file or directory"}
