from __future__ import annotations

import asyncio
import errno
import hashlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.wire.staging import staged_name
from kintune.workers.fleet.content_cache import ContentCache
from kintune.workers.fleet.file_fetcher import FileFetcher
from kintune.workers.fleet.file_transfer import StagingDirectory
from kintune.workers.fleet.messages import FileGone, FilePart, Need, Want

DATA = b"weights"
DIGEST = hashlib.sha256(DATA).hexdigest()
NEED = Need(1, "/front/net.onnx", len(DATA), DIGEST)


class Machine:
    """A fetcher, what it has asked for, and two staging directories."""

    def __init__(self, folder: Path) -> None:
        self.wanted: list[Want] = []
        self.fetcher = FileFetcher(ContentCache(folder / "cache"), self.wanted.append)
        self.staging = StagingDirectory(folder / "staging"), StagingDirectory(folder / "staging")

    def placed(self, number: int, path: str = NEED.path) -> Path:
        return self.staging[number].path / staged_name(path)

    async def until(self, count: int) -> None:
        while len(self.wanted) < count:
            await asyncio.sleep(0.001)


def play(folder: Path, act: Callable[[Machine], Awaitable[None]]) -> None:
    async def playing() -> None:
        machine = Machine(folder)
        try:
            await asyncio.wait_for(act(machine), 30)
        finally:
            for each in machine.staging:
                each.remove()

    asyncio.run(playing())


def test_a_file_is_fetched_once_however_many_need_it(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = [asyncio.ensure_future(machine.fetcher.place(NEED, each)) for each in machine.staging]
        await machine.until(1)
        await asyncio.sleep(0.01)
        machine.fetcher.part(FilePart(DIGEST, 0, DATA[:3]))
        machine.fetcher.part(FilePart(DIGEST, 3, DATA[3:]))
        await asyncio.gather(*placing)
        assert [machine.placed(number).read_bytes() for number in (0, 1)] == [DATA, DATA]
        assert machine.wanted == [Want(DIGEST)]
        machine.fetcher.part(FilePart(DIGEST, 7, b"too late"))

    play(tmp_path, act)


def test_nothing_is_copied_where_the_path_leads_to_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(DATA)

    async def act(machine: Machine) -> None:
        await machine.fetcher.place(Need(1, str(file), len(DATA), DIGEST), machine.staging[0])
        assert machine.placed(0, str(file)).resolve() == file.resolve()
        assert not (tmp_path / "cache").exists()
        file.write_bytes(b"another")  # of the same size: then it is another machine's
        placing = asyncio.ensure_future(
            machine.fetcher.place(Need(1, str(file), len(DATA), DIGEST), machine.staging[0])
        )
        await machine.until(1)
        machine.fetcher.part(FilePart(DIGEST, 0, DATA))
        await placing
        assert machine.placed(0, str(file)).read_bytes() == DATA
        assert file.read_bytes() == b"another"

    play(tmp_path, act)


def test_what_arrives_otherwise_is_asked_for_once_more(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(1)
        machine.fetcher.part(FilePart(DIGEST, 0, b"damaged"))
        assert machine.wanted == [Want(DIGEST), Want(DIGEST, again=True)]
        machine.fetcher.part(FilePart(DIGEST, 0, DATA))
        await placing
        assert machine.placed(0).read_bytes() == DATA

    play(tmp_path, act)


def test_twice_is_once_too_often(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(1)
        for _ in range(2):
            machine.fetcher.part(FilePart(DIGEST, 0, b"damaged"))
        with pytest.raises(InputError, match=r"net\.onnx arrived twice otherwise than it was announced; its SHA-256"):
            await placing
        assert list((tmp_path / "cache").iterdir()) == []

    play(tmp_path, act)


def test_why_a_file_does_not_come_is_passed_on(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(1)
        machine.fetcher.gone(FileGone(DIGEST, "net.onnx has changed"))
        with pytest.raises(InputError, match=r"net\.onnx has changed"):
            await placing
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(2)
        machine.fetcher.part(FilePart(DIGEST, 0, DATA[:3]))
        machine.fetcher.close()
        with pytest.raises(InputError, match="the connection to the service was cut"):
            await placing
        assert list((tmp_path / "cache").iterdir()) == []

    play(tmp_path, act)


def test_what_is_looked_for_while_the_connection_is_cut_is_not_waited_for(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        machine.fetcher.close()  # before anything is asked for
        with pytest.raises(InputError, match="the connection to the service was cut"):
            await placing
        assert machine.wanted == []

    play(tmp_path, act)


class Full(io.BytesIO):
    """A file on a full disk: what is left in its buffer cannot be written when it is closed, either."""

    def write(self, _: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        super().close()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_ends_the_one_file(tmp_path: Path) -> None:
    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(1)
        (coming,) = machine.fetcher._coming.values()
        coming.arrival._file.close()
        coming.arrival._file = Full()
        machine.fetcher.part(FilePart(DIGEST, 0, DATA))
        with pytest.raises(InputError, match=r"net\.onnx cannot be kept in .*: No space left on device"):
            await placing
        assert list((tmp_path / "cache").iterdir()) == []

    play(tmp_path, act)


def test_a_file_that_makes_room_for_another_before_it_is_used_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([tmp_path / "made room", None])
    monkeypatch.setattr(ContentCache, "find", lambda *_: next(found))

    async def act(machine: Machine) -> None:
        placing = asyncio.ensure_future(machine.fetcher.place(NEED, machine.staging[0]))
        await machine.until(1)
        machine.fetcher.part(FilePart(DIGEST, 0, DATA))
        await placing
        assert machine.placed(0).read_bytes() == DATA

    play(tmp_path, act)


def test_one_that_makes_room_again_and_again_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContentCache, "find", lambda *_: tmp_path / "made room")

    async def act(machine: Machine) -> None:
        with pytest.raises(InputError, match=r"net\.onnx had to make room for others"):
            await machine.fetcher.place(NEED, machine.staging[0])

    play(tmp_path, act)
