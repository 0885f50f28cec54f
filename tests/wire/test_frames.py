import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import WireError
from kintune.wire.channel import HEADER_BYTES, FrameReader, frame


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
