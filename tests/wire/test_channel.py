from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.messages import (
    Accept,
    Begin,
    Committed,
    Finished,
    Hello,
    Item,
    ItemDone,
    ItemFailed,
    ItemStatus,
    OfferStages,
    Open,
    Progress,
    Shutdown,
    StageClosed,
    Stop,
    Work,
)
from kintune.core.stage import Demand, Stage
from kintune.errors import WireError
from kintune.wire.channel import (
    HEADER_BYTES,
    Channel,
    FrameReader,
    child_end,
    frame,
    front_end_of_job,
    front_end_of_worker,
    tidy,
)

floats = st.floats(allow_nan=False)

counts = st.integers(0, 2**31)

text = st.text(max_size=20)

blob = st.binary(max_size=100)


def many(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(elements, max_size=3).map(tuple)


demands = st.builds(Demand, cores=counts, memory_mb=counts, device=st.none() | text, exclusive=st.booleans())

stages = st.builds(
    Stage,
    id=text,
    job=text,
    kind=text,
    demand=demands,
    affinity=st.none() | text,
    duration_key=text,
    attempt=counts,
    after=many(text),
)

works = st.builds(
    Work, stage=stages, worker=text, context=blob, items=many(blob), item_timeout_s=floats, droppable=st.booleans()
)

events = st.builds(
    Committed,
    seq=counts,
    at=floats,
    stage=text,
    attempt=counts,
    kind=text,
    index=counts,
    status=st.sampled_from(ItemStatus),
    payload=blob,
    cause=text,
    seconds=floats,
)

to_worker = st.one_of(
    st.builds(Open, job=text, spec=blob, history=many(events)),
    st.builds(Begin, stage=text, attempt=counts, kind=text, context=blob),
    st.builds(Item, stage=text, attempt=counts, index=counts, payload=blob),
    st.builds(Accept, event=events),
    st.builds(StageClosed, stage=text, attempt=counts, at=floats, elapsed=floats),
    st.builds(Stop, reason=text),
    st.just(Shutdown()),
)

from_worker = st.one_of(
    st.builds(Hello, worker=text, pid=counts, version=text, about=blob),
    st.builds(ItemDone, stage=text, attempt=counts, index=counts, payload=blob),
    st.builds(ItemFailed, stage=text, attempt=counts, index=counts, cause=text, refused=st.booleans()),
)

from_job = st.one_of(
    from_worker,
    st.builds(OfferStages, works=many(works)),
    st.builds(Progress, payload=blob),
    st.builds(Finished, failed=st.booleans(), reason=text, summary=blob),
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    front, child = socket.socketpair()
    with front, child:
        yield front, child


def unconnected(make: Any) -> Channel[Any]:
    with socket.socket() as sock:
        channel: Channel[Any] = make(sock)
    return channel


@pytest.mark.parametrize(
    ("make", "messages"),
    [(child_end, to_worker), (front_end_of_worker, from_worker), (front_end_of_job, from_job)],
)
@given(data=st.data())
def test_messages_survive_any_cut_of_the_stream(make: Any, messages: Any, data: st.DataObject) -> None:
    sent = data.draw(st.lists(messages, max_size=5))
    stream = b"".join(frame(msgspec.msgpack.encode(message)) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    channel = unconnected(make)
    received: list[Any] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += channel.feed(stream[start:end])
    assert received == sent


@given(garbage=st.binary(max_size=60))
def test_garbage_is_a_wire_error_or_nothing_yet(garbage: bytes) -> None:
    channel = unconnected(front_end_of_job)
    try:
        received = channel.feed(frame(garbage))
    except WireError:
        return
    assert [type(message).__module__ for message in received] == ["kintune.core.messages"]


def test_a_worker_may_not_speak_as_a_job() -> None:
    with pytest.raises(WireError, match="not a message expected here"):
        unconnected(front_end_of_worker).feed(frame(msgspec.msgpack.encode(Progress(b""))))


def test_blocking_ends_talk_and_see_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    front, child = front_end_of_worker(pair[0]), child_end(pair[1])
    front.send(Begin("s", 0, "build", b"context"))
    front.send(Shutdown())
    assert child.recv() == Begin("s", 0, "build", b"context")
    assert child.recv() == Shutdown()
    front.close()
    assert child.recv() is None


def test_an_end_inside_a_frame_is_torn_for_a_child(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(frame(msgspec.msgpack.encode(Shutdown()))[:-1])
    pair[0].close()
    with pytest.raises(WireError, match="inside a frame"):
        child_end(pair[1]).recv()


def test_an_oversized_message_is_refused_and_the_channel_stays_usable(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    child, front = child_end(pair[1], limit=64), front_end_of_worker(pair[0])
    with pytest.raises(WireError, match="over the limit"):
        child.send(ItemDone("s", 0, 0, b"x" * 65))
    child.send(ItemDone("s", 0, 0, b""))
    assert front.receive() == [ItemDone("s", 0, 0, b"")]


def test_the_front_never_blocks_on_a_child_that_does_not_read(pair: tuple[socket.socket, socket.socket]) -> None:
    front, child = front_end_of_worker(pair[0]), child_end(pair[1])
    big = Item("s", 0, 0, bytes(8 << 20))
    front.post(big)
    front.post(Shutdown())
    assert front.unsent
    received: list[object] = []
    while len(received) < 2:
        received += child.receive() or []
        front.flush()
    assert received == [big, Shutdown()]
    assert not front.unsent


def test_receiving_tells_silence_from_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    front = front_end_of_worker(pair[0])
    assert front.receive() == []
    pair[1].sendall((1000).to_bytes(HEADER_BYTES, "little") + b"cut short")
    pair[1].close()
    assert front.receive() == []
    assert front.receive() is None


@given(bodies=st.lists(st.binary(max_size=200), max_size=12), data=st.data())
def test_bodies_survive_any_cut_of_the_stream(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = FrameReader()
    read: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        read += reader.feed(stream[start:end])
    reader.finish()
    assert read == bodies


@given(body=st.binary(min_size=1, max_size=50), data=st.data())
def test_a_stream_that_ends_inside_a_frame_is_torn(body: bytes, data: st.DataObject) -> None:
    whole = frame(body)
    reader = FrameReader()
    assert reader.feed(whole[: data.draw(st.integers(1, len(whole) - 1))]) == []
    with pytest.raises(WireError, match="inside a frame"):
        reader.finish()


def test_the_limit_holds_for_what_is_sent() -> None:
    assert len(frame(b"x" * 8, limit=8)) == HEADER_BYTES + 8
    with pytest.raises(WireError, match="9 bytes is over the limit of 8"):
        frame(b"x" * 9, limit=8)


def test_the_limit_holds_for_what_is_announced_before_it_comes() -> None:
    with pytest.raises(WireError, match="announces 9 bytes"):
        FrameReader(limit=8).feed((9).to_bytes(HEADER_BYTES, "little"))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("killed by SIGSEGV", "killed by SIGSEGV"),
        ("two\nlines\r\n", "two lines"),
        ("nul\0 and \x1b[2Jcolour", "nul and [2Jcolour"),
        ("", ""),
    ],
)
def test_words_become_a_line(said: str, kept: str) -> None:
    assert tidy(said) == kept


def test_long_stories_are_cut() -> None:
    assert tidy("x" * 10**6) == "x" * 399 + "…"
