from __future__ import annotations

import asyncio
import os
import threading

import pytest

from kintune.service.web import background_tasks as errands
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.background_tasks import BackgroundTasks, sweep


def lost(rooms: ApplicationState, data: bytes) -> str:
    """A file that nobody refers to, and that has lain there for long."""
    file = rooms.content.put_bytes(data)
    os.utime(rooms.content.path(file), (1.0, 1.0))
    return file


def test_what_nobody_refers_to_goes_once_it_is_old(rooms: ApplicationState) -> None:
    old = lost(rooms, b"old")
    new = rooms.content.put_bytes(b"new")
    os.utime(rooms.content.path(new), (rooms.now(), rooms.now()))
    assert sweep(rooms) == 1
    assert (rooms.content.has(old), rooms.content.has(new)) == (False, True)


def test_what_comes_again_while_others_are_swept_away_stays(
    rooms: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {lost(rooms, text): text for text in (b"one", b"two")}
    remove = rooms.content.remove

    def meanwhile(file: str) -> None:
        remove(file)
        for other in texts.keys() - {file}:
            rooms.content.put_bytes(texts[other])
            os.utime(rooms.content.path(other), (rooms.now(), rooms.now()))

    monkeypatch.setattr(rooms.content, "remove", meanwhile)
    assert sweep(rooms) == 1
    assert len(list(rooms.content.digests())) == 1


def test_nothing_goes_while_it_is_backed_up(rooms: ApplicationState) -> None:
    file = lost(rooms, b"old")
    with rooms.content.unswept():
        assert sweep(rooms) == 0
    assert rooms.content.has(file)
    assert sweep(rooms) == 1


def test_a_sweep_that_fails_is_not_the_last(rooms: ApplicationState, monkeypatch: pytest.MonkeyPatch) -> None:
    again, failures = threading.Event(), iter([OSError("disk is away")])

    def sweep_incoming(before: float) -> None:
        for failure in failures:
            raise failure
        again.set()

    async def play() -> bool:
        running = BackgroundTasks(rooms)
        running.start()
        try:
            return await asyncio.to_thread(again.wait, 10)
        finally:
            await running.close()

    monkeypatch.setattr(errands, "_SWEEP_S", 0.01)
    monkeypatch.setattr(rooms.content, "sweep_incoming", sweep_incoming)
    assert asyncio.run(play())
