from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.messages import Begin, Item, ItemDone, ItemFailed
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.worker_connection import ItemEnd, WorkerConnection, WorkItem


class Deaf:
    """Implements `kintune.workers.engine.process.Child`."""

    name = tail = "w"

    def post(self, message: msgspec.Struct) -> None:
        pass

    def bring(self, paths: Sequence[str]) -> None:
        pass

    def kill(self, how: str = "") -> str:
        return how


def test_it_tells_answers_to_what_was_asked_from_others() -> None:
    ends: list[ItemEnd] = []
    reactor = Reactor(lambda: 0.0)
    connection = WorkerConnection(Deaf(), reactor, lambda: 0.0)
    assert not connection.answer(ItemDone("j/s", 0, 0, b"nobody asked"))
    connection.give(WorkItem("me", Begin("j/s", 1, "build", b""), Item("j/s", 1, 0, b""), 60, ends.append))
    assert not connection.answer(ItemDone("j/s", 1, 0, b"before it was sent"))
    connection.send(lambda: None)
    assert not connection.answer(ItemFailed("j/s", 0, 0, "of another attempt"))
    assert ends == []
    assert connection.answer(ItemDone("j/s", 1, 0, b"done"))
    assert not connection.answer(ItemDone("j/s", 1, 0, b"twice"))
    assert [end.payload for end in ends] == [b"done"]
    assert connection.stale_answers == 4
    reactor.close()
