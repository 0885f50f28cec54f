import errno
import socket
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from kintune.core.messages import Begin, FromWorker, Hello, Item, ItemDone, ItemFailed, Shutdown, Stop, ToWorker
from kintune.errors import InputError, StorageError, TargetError, WireError
from kintune.wire.channel import Channel, child_end, front_end_of_worker
from kintune.wire.worker_loop import hello, one_line, refusal, serve


class Recipe:
    """Prefixes payloads with the stage's context; some payloads go wrong."""

    def __init__(self) -> None:
        self._context = b""

    def begin(self, kind: str, context: bytes) -> None:
        if context == b"unusable":
            raise ValueError("no such target")
        self._context = context

    def item(self, payload: bytes) -> bytes:
        if payload == b"fail":
            raise RuntimeError("first line\nsecond line")
        if payload == b"refuse":
            raise TargetError("unknown target 'x'; try 'native'")
        if payload == b"full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if payload == b"unwritten":
            raise StorageError("out.kt: cannot be written: Permission denied")
        if payload == b"big":
            return bytes(4096)
        return self._context + payload


Ends: TypeAlias = tuple[Channel[FromWorker], Channel[ToWorker]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    front, child = socket.socketpair()
    with front, child:
        yield front_end_of_worker(front), child_end(child, limit=1024)


def converse(ends: Ends, *messages: Begin | Item | Shutdown) -> list[FromWorker]:
    front, child = ends
    for message in messages:
        front.send(message)
    serve(child, hello("recipe"), Recipe())
    child.close()
    answers = []
    while (answer := front.recv()) is not None:
        answers.append(answer)
    assert isinstance(answers[0], Hello)
    return answers[1:]


@pytest.mark.parametrize(
    ("messages", "answers"),
    [
        pytest.param(
            [Begin("a", 0, "k", b"1"), Item("a", 0, 0, b"x"), Begin("b", 2, "k", b"2"), Item("b", 2, 0, b"z")],
            [ItemDone("a", 0, 0, b"1x"), ItemDone("b", 2, 0, b"2z")],
            id="items see their stage's context",
        ),
        pytest.param(
            [Begin("a", 0, "k", b""), Item("a", 0, 0, b"full"), Item("a", 0, 1, b"unwritten")],
            [
                ItemFailed("a", 0, 0, "OSError: [Errno 28] No space left on device", unwritten=True),
                ItemFailed("a", 0, 1, "out.kt: cannot be written: Permission denied", unwritten=True),
            ],
            id="a file that cannot be written is nobody's wrong input: the item can be done once there is room",
        ),
        pytest.param(
            [Begin("a", 0, "k", b""), Item("a", 0, 0, b"fail"), Item("a", 0, 1, b"refuse"), Item("a", 0, 2, b"x")],
            [
                ItemFailed("a", 0, 0, "RuntimeError: first line"),
                ItemFailed("a", 0, 1, "unknown target 'x'; try 'native'", refused=True),
                ItemDone("a", 0, 2, b"x"),
            ],
            id="an exception fails its item and no other",
        ),
        pytest.param(
            [Begin("a", 0, "k", b"unusable"), Item("a", 0, 0, b"x"), Begin("b", 0, "k", b""), Item("b", 0, 0, b"x")],
            [ItemFailed("a", 0, 0, "ValueError: no such target"), ItemDone("b", 0, 0, b"x")],
            id="an unusable context fails every item of its stage",
        ),
    ],
)
def test_items_are_answered(ends: Ends, messages: list[Begin | Item], answers: list[FromWorker]) -> None:
    assert converse(ends, *messages, Shutdown()) == answers


def test_an_item_of_another_stage_is_not_done(ends: Ends) -> None:
    (answer,) = converse(ends, Begin("a", 1, "k", b""), Item("a", 0, 0, b"x"), Shutdown())
    assert isinstance(answer, ItemFailed)
    assert "a#0, which was not begun here" in answer.cause


def test_a_result_too_large_to_send_is_a_failure(ends: Ends) -> None:
    (answer,) = converse(ends, Begin("a", 0, "k", b""), Item("a", 0, 0, b"big"), Shutdown())
    assert isinstance(answer, ItemFailed)
    assert "over the limit" in answer.cause


def test_the_loop_ends_when_the_front_is_gone(ends: Ends) -> None:
    ends[0].close()
    serve(ends[1], hello("recipe"), Recipe())


def test_a_worker_is_not_a_job(ends: Ends) -> None:
    ends[0].send(Stop("interrupted"))
    with pytest.raises(WireError, match="Stop"):
        serve(ends[1], hello("recipe"), Recipe())


def test_causes_are_one_short_line() -> None:
    assert one_line(KeyError()) == "KeyError"
    assert one_line(ValueError("\n  deep\n")) == "ValueError: deep"
    assert len(one_line(ValueError("x" * 5000))) == 400
    assert refusal(InputError("m.onnx: not there")) == ItemFailed("", 0, 0, "m.onnx: not there", refused=True)
