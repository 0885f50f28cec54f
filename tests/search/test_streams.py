import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Choice, Location, Sketch, Tile
from kintune.search.processor import Processor
from kintune.search.rules import rule_candidates
from kintune.search.streams import needs_streams, stream_candidates
from kintune.testing.decisions import check_candidate

AVX512 = Processor(16, 32)
UNROLL = Choice((0, 16, 64, 512), (0.25,) * 4)


def sketch_of(spatial: list[int], reduction: list[int], digest: str = "s") -> Sketch:
    axes: list[Axis] = [Tile(extent, 4) for extent in spatial]
    return Sketch("w", digest, b"", (*axes, *(Tile(extent, 2) for extent in reduction), UNROLL, Location(24)))


@pytest.mark.parametrize(
    ("spatial", "reduction", "needed"),
    [
        ([1, 197, 3072], [768], True),  # rows one by one, or all
        ([12, 197, 197], [64], True),
        ([12, 128, 197], [64], True),  # columns that are no vectors
        ([394, 768], [768], True),
        ([16, 7], [768], True),
        ([15, 7], [768], False),
        ([128, 768], [768], False),
        ([1, 7, 7, 512], [1, 1, 2048], False),
        ([1, 1000], [768], False),  # one row: nothing streams past
        ([13, 768], [768], False),
        ([197, 17, 512], [3, 3, 64], False),  # a convolution
        ([4096], [768], False),
        ([], [197], False),
    ],
)
def test_who_needs_them(spatial: list[int], reduction: list[int], needed: bool) -> None:
    sketch = sketch_of(spatial, reduction)
    assert needs_streams(sketch, AVX512) is needed
    assert bool(list(stream_candidates([sketch], AVX512))) is needed


def test_a_panel_of_vectors_stays_while_all_rows_stream_past_it() -> None:
    first = next(stream_candidates([sketch_of([1, 197, 3072], [768])], AVX512))
    assert first.decisions[:4] == ((1, 1, 1, 1), (1, 1, 197, 1), (1, 64, 48, 1), (192, 4))


def test_a_row_stays_while_the_reduction_streams_past_it() -> None:
    _, second = islice(stream_candidates([sketch_of([12, 197, 64], [197])], AVX512), 2)
    assert second.decisions[:4] == ((12, 1, 1, 1), (1, 197, 1, 1), (1, 1, 64, 1), (197, 1))


def test_what_lies_between_the_levels_of_a_tile_is_one() -> None:
    axes = (Tile(197, 6), Tile(3072, 6), Tile(768, 3), UNROLL)
    panel, row = islice(stream_candidates([Sketch("w", "s", b"", axes)], AVX512), 2)
    assert panel.decisions[:3] == ((1, 1, 1, 1, 197, 1), (1, 64, 1, 1, 48, 1), (1, 192, 4))
    assert row.decisions[:3] == ((1, 197, 1, 1, 1, 1), (48, 1, 1, 1, 64, 1), (1, 768, 1))


def test_columns_that_are_no_vectors_are_taken_together() -> None:
    first = next(stream_candidates([sketch_of([12, 197, 197], [64])], AVX512))
    assert first.decisions[2] == (1, 1, 197, 1)


def test_the_rule_begins_with_them_and_does_not_forget_its_own() -> None:
    sketches = [sketch_of([1, 197, 768], [768], name) for name in "abc"]
    streams = list(stream_candidates(sketches, AVX512))
    found = rule_candidates(sketches, AVX512, 64)
    assert found[:3] == streams[:3]
    assert found[3] not in streams
    assert found[4:7] == streams[3:6]
    assert {candidate.sketch for candidate in streams} == {"a", "b"}


@given(
    st.lists(st.integers(1, 2048), min_size=2, max_size=4),
    st.integers(1, 4096),
    st.builds(Processor, st.sampled_from([4, 8, 16]), st.sampled_from([16, 32])),
)
def test_they_fit_their_sketches(spatial: list[int], reduction: int, machine: Processor) -> None:
    sketch = sketch_of(spatial, [reduction])
    for candidate in stream_candidates([sketch], machine):
        check_candidate(sketch, candidate, drawn=False)
        for axis, decision in zip(sketch.axes, candidate.decisions, strict=True):
            assert not isinstance(axis, Tile) or math.prod(decision) == axis.extent


def _divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if extent % d == 0)


@given(
    spatial=st.lists(st.sampled_from([1, 2, 13, 15, 16, 17, 34, 48, 51, 64, 97, 197]), max_size=3),
    columns=st.sampled_from([1, 7, 8, 24, 49, 64, 768]),
    reduction=st.lists(st.sampled_from([1, 3, 64, 768]), min_size=1, max_size=2),
    machine=st.sampled_from([AVX512, Processor(8, 16), Processor(4, 32)]),
)
def test_a_product_needs_them_if_no_register_tile_is_good(
    spatial: list[int], columns: int, reduction: list[int], machine: Processor
) -> None:
    """Of its rows, at least sixteen, fewer than four may be taken at once, or of its columns not half a vector."""
    sketch = sketch_of([*spatial, columns], reduction)
    rows = next((extent for extent in reversed(spatial) if extent > 1), 0)
    is_product = len(spatial) > 0 and sum(extent > 1 for extent in reduction) == 1 and rows >= 16
    bad = is_product and (
        _divisor(rows, machine.registers // 2 - 1) < 4 or _divisor(columns, machine.lanes) < machine.lanes // 2
    )
    assert needs_streams(sketch, machine) == bad
    found = list(stream_candidates([sketch, sketch_of([*spatial, columns], reduction, "other")], machine))
    assert [candidate.sketch for candidate in found] == ["s", "other"] * (5 if bad else 0)
    forms = [("panel", 3, 4), ("row", 4, 1), ("panel", 4, 4), ("panel", 2, 8), ("row", 6, 1)]
    at = max((i for i, extent in enumerate(spatial) if extent > 1), default=-1)
    for (kept, vectors, piece), candidate in zip(forms, found[::2], strict=False):
        *tiles, unroll, place = candidate.decisions
        width = tiles[len(spatial)][2]
        whole = [v for v in range(1, vectors + 1) if columns % (v * machine.lanes) == 0]
        one = _divisor(columns, vectors * machine.lanes)
        expected = max(whole) * machine.lanes if whole else one if one >= machine.lanes else _divisor(columns, 1024)
        assert width == expected
        rest = columns // width
        assert tiles[len(spatial)] == ((1, rest, width, 1) if kept == "panel" else (rest, 1, width, 1))
        for i, extent in enumerate(spatial):
            streams = (1, 1, extent, 1) if kept == "panel" else (1, extent, 1, 1)
            assert tiles[i] == (streams if i == at else (extent, 1, 1, 1))
        for extent, tile in zip(reduction, tiles[len(spatial) + 1 :], strict=True):
            assert tile == (extent // _divisor(extent, piece), _divisor(extent, piece))
        assert (UNROLL.values[unroll[0]], place) == (16, (-1,))
