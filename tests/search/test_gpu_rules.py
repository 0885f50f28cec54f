"""The first candidates for GPUs: what the rule says of threads, register tiles, reductions and their order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, Sketch, Tile, fits
from kintune.search import gpu_rules
from kintune.search.bounds import divisors
from kintune.search.gpu_rules import gpu_rule_candidates

FETCH = Choice((1, 2, 3, 4), (0.25,) * 4)
UNROLL = Choice((0, 16, 64, 512, 1024), (0.2,) * 5)


def sketch(spatial: Sequence[int], reduced: Sequence[int] = (), trace: bytes = b"", digest: str = "s") -> Sketch:
    """Loops that are tiled in five parts, reductions in three; two fetches, one limit of unrolling, one producer."""
    axes: list[Axis] = [Tile(extent, 5, 64, f"s{i}:x") for i, extent in enumerate(spatial)]
    axes += [Tile(extent, 3, 64, f"r{i}:k") for i, extent in enumerate(reduced)]
    return Sketch("w", digest, trace, (*axes, FETCH, UNROLL, Location(6), FETCH))


def blocks(candidate: Candidate, spatial: int) -> int:
    return math.prod(decision[0] for decision in candidate.decisions[:spatial])


@settings(max_examples=8)
@given(
    spatial=st.lists(st.sampled_from([1, 3, 8, 12, 49, 64, 144, 512, 720, 1009]), min_size=1, max_size=4),
    reduced=st.lists(st.sampled_from([1, 3, 7, 8, 9, 16, 27, 512]), max_size=2),
)
def test_what_holds_for_each_of_them(spatial: list[int], reduced: list[int]) -> None:
    of = sketch(spatial, reduced)
    found = gpu_rule_candidates([of], 400)
    assert len(set(found)) == len(found) <= 400
    assert found[:7] == gpu_rule_candidates([of], 7)
    missing = [max(0, math.ceil(math.log2(128 / blocks(each, len(spatial))))) for each in found]
    assert missing == sorted(missing)
    last, longest = len(spatial) - 1, max(range(len(spatial) - 1), key=lambda i: spatial[i], default=len(spatial) - 1)
    for candidate in found:
        assert fits(of.axes, candidate.decisions)
        assert all(type(number) is int for decision in candidate.decisions for number in decision)
        tiles = candidate.decisions[: len(spatial)]
        assert math.prod(tile[2] for tile in tiles) <= 256
        for i, (_, virtual, threads, middle, own) in enumerate(tiles):
            assert middle == 1
            assert virtual <= 2
            assert own <= (8 if i in (last, longest) else 1)
            assert i in (last, longest) or virtual == 1
            assert threads >= 1
        for extent, tile in zip(reduced, candidate.decisions[len(spatial) :], strict=False):
            assert tile[1] == 1
            assert tile[2] == extent if extent <= 8 else tile[2] <= 32
        *_, fetch, unroll, place, again = candidate.decisions
        assert fetch == again
        assert fetch[0] in (0, 3)
        assert UNROLL.values[unroll[0]] in (16, 64, 512)
        assert place == (-1,)


def test_the_first_one_of_a_large_product() -> None:
    """A block of 256 threads, 16 of them along the columns, and four by four sums each; 16 of the reduction at once."""
    rows, columns, depth, fetch, unroll, *_ = gpu_rule_candidates([sketch([4096, 4096], [512])], 1)[0].decisions
    assert columns == (64, 1, 16, 1, 4)
    assert rows == (64, 1, 16, 1, 4)
    assert depth == (32, 1, 16)
    assert (FETCH.values[fetch[0]], UNROLL.values[unroll[0]]) == (4, 64)


def test_where_all_is_offered_each_shape_is_as_the_rule_says() -> None:
    """Extents that all small numbers divide, and all values to choose from."""
    spatial = [Tile(25200, 5, 64, f"s{i}:x") for i in range(2)]
    fetch, unroll = (Choice(tuple(range(1, most)), (1.0,) * (most - 1)) for most in (9, 1025))
    of = Sketch("w", "s", b"", (*spatial, Tile(32 * 9 * 11 * 17, 3, 64, "r2:k"), fetch, unroll))
    found = [
        (f + 1, u + 1, rows[1], piece, rows[4], columns[4])
        for rows, columns, (_, _, piece), (f,), (u,) in (each.decisions for each in gpu_rule_candidates([of], 5000))
        if rows[1] == columns[1]
    ]
    tiles = ((4, 4), (8, 4), (2, 4), (4, 2), (8, 8), (1, 4), (2, 2), (4, 1), (1, 1))
    expected = itertools.product((4, 1), (64, 512, 16), (1, 2), (16, 8, 32), (256, 128, 64), tiles)
    assert found == [(f, u, virtual, piece, *tile) for f, u, virtual, piece, _, tile in expected]


def test_the_next_ones_vary_the_register_tile_and_then_the_threads() -> None:
    found = gpu_rule_candidates([sketch([4096, 4096], [512])], 27)
    tiles = [(each.decisions[0][4], each.decisions[1][4]) for each in found]
    assert tiles[:9] == [(4, 4), (8, 4), (2, 4), (4, 2), (8, 8), (1, 4), (2, 2), (4, 1), (1, 1)]
    assert tiles[9:18] == tiles[18:] == tiles[:9]
    threads = [each.decisions[0][2] * each.decisions[1][2] for each in found]
    assert threads == [256] * 9 + [128] * 9 + [64] * 9


def test_then_the_pieces_of_the_reduction_virtual_threads_unrolling_and_fetches() -> None:
    found = gpu_rule_candidates([sketch([4096, 4096], [512])], 5000)
    base = [c for c in found if c.decisions[0][2:] == c.decisions[1][2:] == (16, 1, 4)]
    parts = [(c.decisions[2][2], c.decisions[0][1], UNROLL.values[c.decisions[4][0]], c.decisions[3][0]) for c in base]
    assert parts[:7] == [
        *((16, 1, 64, 3), (8, 1, 64, 3), (32, 1, 64, 3), (16, 2, 64, 3), (8, 2, 64, 3), (32, 2, 64, 3)),
        (16, 1, 512, 3),
    ]
    assert len(parts) == 36
    assert parts[18] == (16, 1, 64, 0)


@pytest.mark.parametrize(
    ("spatial", "threads"),
    [
        ([4096, 4096], (16, 16)),
        ([8, 4096], (2, 128)),  # the rows have too little for more
        ([4096], (256,)),
        ([4096, 8], (128, 2)),
        ([2, 3, 4096], (2, 3, 32)),
    ],
)
def test_threads_lie_along_the_columns_first_but_for_sixteen(spatial: list[int], threads: tuple[int, ...]) -> None:
    first = gpu_rule_candidates([sketch(spatial, [512])], 1)[0]
    own = [decision[4] for decision in first.decisions[: len(spatial)]]
    found = tuple(decision[2] for decision in first.decisions[: len(spatial)])
    assert math.prod(found) <= 256
    assert all(extent % (each * part) == 0 for extent, each, part in zip(spatial, found, own, strict=True))
    assert found[-1] >= min(16, spatial[-1] // own[-1])


def test_sketches_that_copy_ahead_come_after_plain_ones() -> None:
    ahead = sketch([4096, 4096], [512], b'{"software_pipeline": 1}', "ahead")
    found = gpu_rule_candidates([ahead, sketch([4096, 4096], [512])], 4)
    assert [candidate.sketch for candidate in found] == ["s", "ahead", "s", "ahead"]


def test_a_sum_without_spatial_loops_has_its_candidates_too() -> None:
    (first, *_) = gpu_rule_candidates([sketch([], [4096])], 8)
    assert first.decisions[0] == (256, 1, 16)
    one = Sketch("w", "one", b"", (Tile(4096, 1), Tile(6, 2)))
    assert gpu_rule_candidates([one], 8)[0].decisions == ((4096,), (1, 6))


def test_a_sketch_without_spatial_loops_lacks_no_blocks() -> None:
    found = gpu_rule_candidates([sketch([8, 8], [512]), sketch([], [4096], digest="sum")], 500)
    last = max(number for number, each in enumerate(found) if each.sketch == "sum")
    assert last < min(number for number, each in enumerate(found) if each.sketch == "s")


@settings(max_examples=10)
@given(st.integers(1, 4096))
def test_a_reduction_is_cut_into_pieces_as_large_as_may_be(extent: int) -> None:
    first = gpu_rule_candidates([sketch([], [extent])], 1)[0].decisions[0]
    expected = extent if extent <= 8 else max(d for d in divisors(extent) if d <= 16)
    assert first == (extent // expected, 1, expected)


def test_threads_that_are_left_lie_along_the_inner_ones_of_the_other_axes() -> None:
    """Eight along the columns, eight along the longest, and four along the axis before these."""
    wanted = gpu_rules._Shape(256, rows=1, columns=1, virtual=1, piece=16, fetch=4, unroll=64)
    tiles = gpu_rules._spatial_tiles([Tile(extent, 4, 64) for extent in (4, 4, 8, 8)], wanted)
    assert [threads for _, _, threads, _ in tiles] == [1, 4, 8, 8]
