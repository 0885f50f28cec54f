from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.graph.arena import Buffer, aligned, place_buffers, place_in_a_row
from kintune.runtime.package import ALIGNMENT


def _buffer(nbytes: int, first: int, duration: int) -> Buffer:
    return Buffer(nbytes, first, first + duration)


buffers = st.lists(st.builds(_buffer, st.integers(0, 1000), st.integers(0, 30), st.integers(0, 12)), max_size=40)


def live_bytes(given_buffers: Sequence[Buffer]) -> int:
    """The largest sum of the sizes of buffers that are in use at once: no placement needs less memory."""

    def at(time: int) -> int:
        return sum(aligned(b.nbytes) for b in given_buffers if b.first <= time <= b.last)

    return max((at(buffer.first) for buffer in given_buffers), default=0)


@given(buffers)
def test_buffers_that_are_live_together_do_not_overlap(given_buffers: list[Buffer]) -> None:
    arena = place_buffers(given_buffers)
    assert all(offset % ALIGNMENT == 0 for offset in arena.offsets)
    placed = list(zip(given_buffers, arena.offsets, strict=True))
    for (one, at), (other, there) in combinations(placed, 2):
        if one.nbytes and other.nbytes and one.first <= other.last and other.first <= one.last:
            assert at + one.nbytes <= there or there + other.nbytes <= at
    assert all(offset + buffer.nbytes <= arena.nbytes for buffer, offset in placed)


@given(buffers)
def test_the_arena_is_between_the_most_that_is_live_and_the_sum_of_all(given_buffers: list[Buffer]) -> None:
    live = live_bytes(given_buffers)
    assert live <= place_buffers(given_buffers).nbytes <= sum(aligned(b.nbytes) for b in given_buffers)


def _placed_simply(given_buffers: list[Buffer]) -> list[int]:
    """The offsets that are chosen by a look at all buffers for each of them."""
    offsets = [0] * len(given_buffers)
    placed: list[int] = []
    for number in sorted(range(len(offsets)), key=lambda i: (-given_buffers[i].nbytes, given_buffers[i].first, i)):
        buffer = given_buffers[number]
        if not buffer.nbytes:
            continue
        live = [i for i in placed if given_buffers[i].is_live_with(buffer)]
        best, end = (math.inf, 0), 0
        for start, stop in sorted((offsets[i], offsets[i] + aligned(given_buffers[i].nbytes)) for i in live):
            if start - end >= aligned(buffer.nbytes) and start - end < best[0]:
                best = (start - end, end)
            end = max(end, stop)
        offsets[number] = end if best[0] == math.inf else best[1]
        placed.append(number)
    return offsets


@given(buffers)
def test_the_placement_is_that_of_a_look_at_all_buffers(given_buffers: list[Buffer]) -> None:
    assert list(place_buffers(given_buffers).offsets) == _placed_simply(given_buffers)


def test_few_buffers_are_looked_at_for_each_of_a_long_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    is_live_with = Buffer.is_live_with

    def counted(buffer: Buffer, other: Buffer) -> bool:
        nonlocal looks
        looks += 1
        return is_live_with(buffer, other)

    monkeypatch.setattr(Buffer, "is_live_with", counted)
    chain = [Buffer(64 * (1 + at % 7), at, at + 1 + at % 3) for at in range(2000)]
    place_buffers([*chain, Buffer(6400, 0, 2000)])
    assert looks < 20 * len(chain)


def test_a_chain_takes_the_memory_of_its_two_largest_neighbours() -> None:
    chain = [Buffer(nbytes, at, at + 1) for at, nbytes in enumerate((640, 1280, 320, 960))]
    assert place_buffers(chain).nbytes == 640 + 1280


def test_the_smallest_gap_that_is_large_enough_is_taken() -> None:
    ended = [Buffer(6400, 0, 0), Buffer(3200, 0, 0)]
    lasting = [Buffer(6300, 0, 9), Buffer(3100, 0, 9)]
    wide, narrow, _, _, late = place_buffers([*ended, *lasting, Buffer(3000, 5, 5)]).offsets
    assert late == narrow != wide


def test_buffers_without_bytes_and_no_buffers() -> None:
    assert place_buffers([]) == ((), 0)
    assert place_buffers([Buffer(0, 0, 9), Buffer(1, 0, 9)]) == ((0, 0), ALIGNMENT)


@given(st.lists(st.integers(0, 1000)))
def test_what_lies_in_a_row_is_aligned_and_in_order(sizes: list[int]) -> None:
    row = place_in_a_row(sizes)
    assert all(offset % ALIGNMENT == 0 for offset in row.offsets)
    starts = [*row.offsets, row.nbytes]
    assert starts[0] == 0
    assert all(0 <= starts[at + 1] - starts[at] - nbytes < ALIGNMENT for at, nbytes in enumerate(sizes))
