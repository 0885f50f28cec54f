import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, Sketch, Tile
from kintune.search.processor import Processor
from kintune.search.rules import rule_candidates
from kintune.search.streams import needs_streams
from kintune.testing.decisions import check_candidate

UNROLL = Choice((0, 16, 64, 512), (0.25,) * 4)
extents = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 7, 13, 49, 97, 1000, 1009]))
machines = st.builds(Processor, st.sampled_from([4, 8, 16]), st.sampled_from([16, 32]))


def _sketch(spatial: list[int], reduction: list[int], trace: bytes = b"") -> Sketch:
    axes: list[Axis] = [Tile(extent, 4) for extent in spatial]
    axes += [Tile(extent, 2) for extent in reduction]
    return Sketch("w", f"{spatial}{reduction}{trace!r}", trace, (*axes, UNROLL, Location(24)))


@given(st.lists(extents, max_size=4), st.lists(extents, max_size=3), machines, st.integers(1, 64))
def test_candidates_are_valid_distinct_and_few(
    spatial: list[int], reduction: list[int], machine: Processor, limit: int
) -> None:
    sketch = _sketch(spatial, reduction)
    found = rule_candidates([sketch], machine, limit)
    assert 0 < len(found) <= limit
    assert len(set(found)) == len(found)
    for candidate in found:
        check_candidate(sketch, candidate, drawn=False)
        for axis, decision in zip(sketch.axes, candidate.decisions, strict=True):
            if isinstance(axis, Tile) and axis.parts > 2:
                assert decision[-1] <= axis.max_inner


@given(st.lists(extents, max_size=4), st.lists(extents, max_size=3), machines, st.integers(1, 32))
def test_a_longer_list_begins_with_the_shorter_one(
    spatial: list[int], reduction: list[int], machine: Processor, limit: int
) -> None:
    sketches = [_sketch(spatial, reduction, trace) for trace in (b"RFactor", b"tiled", b"ReverseComputeAt")]
    assert rule_candidates(sketches, machine, 64)[:limit] == rule_candidates(sketches, machine, limit)


@given(st.lists(extents, min_size=1, max_size=4), machines)
def test_the_first_candidate_keeps_its_tile_in_registers(spatial: list[int], machine: Processor) -> None:
    sketch = _sketch(spatial, [64])
    (first,) = rule_candidates([sketch], machine, 1)
    inner = [decision[-1] for decision in first.decisions[: len(spatial)]]
    vectors = -(-inner[-1] // machine.lanes)
    for rows in inner[:-1]:
        vectors *= rows
    assert vectors <= machine.registers


@pytest.mark.parametrize(
    ("spatial", "inner"),
    [
        ([1, 1, 1], [1, 1, 1]),
        ([1, 7, 7, 512], [1, 1, 7, 32]),
        ([1, 1000], [1, 8]),
        ([1, 1009], [1, 1]),
        ([128, 768], [8, 32]),
    ],
)
def test_the_register_tile_of_an_avx512_machine(spatial: list[int], inner: list[int]) -> None:
    (first,) = rule_candidates([_sketch(spatial, [64])], Processor(16, 32), 1)
    assert [decision[-1] for decision in first.decisions[: len(spatial)]] == inner


@given(st.lists(extents, min_size=2, max_size=5), machines)
def test_each_axis_takes_the_most_rows_that_are_left_from_the_inside_out(
    spatial: list[int], machine: Processor
) -> None:
    (first,) = rule_candidates([_sketch([*spatial, 64], [64])], machine, 1)
    if needs_streams(_sketch([*spatial, 64], [64]), machine):
        return
    inner = [decision[-1] for decision in first.decisions[: len(spatial) + 1]]
    rows = (machine.registers - 4) // (inner[-1] // machine.lanes)
    assert inner[-1] == 2 * machine.lanes
    for extent, own in zip(reversed(spatial), reversed(inner[:-1]), strict=True):
        assert own == max(d for d in range(1, min(rows, 64) + 1) if extent % d == 0)
        rows //= own


def test_the_reduction_comes_first_in_one_piece() -> None:
    (first,) = rule_candidates([_sketch([64, 64], [4608])], Processor(), 1)
    assert first.decisions[2] == (1, 4608)
    deep = Sketch("w", "deep", b"", (Tile(64, 4), Tile(64, 4), Tile(4608, 3), UNROLL))
    assert rule_candidates([deep], Processor(), 1)[0].decisions[2] == (1, 1, 4608)


def test_a_factored_reduction_gives_each_lane_a_part() -> None:
    (first,) = rule_candidates([_sketch([], [4096])], Processor(16, 32), 1)
    assert first.decisions[0] == (256, 16)


def test_fused_sketches_come_before_plain_ones_and_those_before_factored_ones() -> None:
    sketches = [_sketch([64, 64], [64], trace) for trace in (b"RFactor", b"tiled", b"ReverseComputeAt")]
    first = rule_candidates(sketches, Processor(), 3)
    assert [candidate.sketch for candidate in first] == [sketch.digest for sketch in reversed(sketches)]


def test_without_sketches_there_are_no_candidates() -> None:
    assert rule_candidates([], Processor(), 8) == []


@pytest.mark.parametrize(
    ("isa", "lanes", "registers"),
    [
        (["sse4_2", "avx", "avx2", "avx512f"], 16, 32),
        (["sse4_2", "avx", "avx2"], 8, 16),
        (["fp", "asimd"], 4, 32),
        (["sse4_2"], 4, 16),
        ([], 4, 16),
    ],
)
def test_what_an_instruction_set_offers(isa: list[str], lanes: int, registers: int) -> None:
    machine = Processor.of(isa)
    assert (machine.lanes, machine.registers) == (lanes, registers)


def _facts(candidate: Candidate) -> tuple[int, int, int, bool, bool, int]:
    """Of a candidate of a product: piece, vectors, unroll limit, channels outside, producer inside, rows of a tile."""
    rows, columns, depth, unroll, place = candidate.decisions
    return depth[1], columns[3] // 16, UNROLL.values[unroll[0]], columns[0] > 1, place != (-1,), rows[3]


def test_all_shapes_of_a_product_in_their_order() -> None:
    """First three by hand; then pieces, vectors, limits and places in turn, the last ones soonest."""
    sketch = _sketch([4096, 4096], [4608])
    found = [_facts(each) for each in rule_candidates([sketch], Processor(16, 32), 1000)]
    whole = 4608
    assert found[:3] == [
        (whole, 2, 64, False, False, 8),
        (whole, 2, 64, True, False, 8),
        (whole, 2, 64, False, True, 8),
    ]
    assert len(found) == len(set(found)) == 3 * 3 * 3 * 2 * 2 * 2
    order = [(piece, vectors, unroll) for piece, vectors, unroll, *_ in found]
    assert list(dict.fromkeys(order)) == [
        (piece, vectors, unroll) for piece in (whole, 64, 16) for vectors in (2, 4, 1) for unroll in (64, 512, 16)
    ]
    places = [facts[3:5] for facts in found if facts[:3] == (64, 4, 16)]
    assert places == [(False, False)] * 2 + [(False, True)] * 2 + [(True, False)] * 2 + [(True, True)] * 2
    for _, vectors, *_, rows in found:  # of 32 registers four are for operands; a square tile has half of the rows
        most = 28 // vectors
        assert rows in {max(d for d in (1, 2, 4, 8, 16, 32) if d <= limit) for limit in (most, most // 2)}
    assert {rows for _, vectors, *_, rows in found if vectors == 4} == {4, 2}
    assert {rows for _, vectors, *_, rows in found if vectors == 1} == {16, 8}


def test_few_rows_are_not_made_square() -> None:
    """Of sixteen registers twelve are for sums: three rows of four vectors, or six of two, of which half is three."""
    found = [_facts(each) for each in rule_candidates([_sketch([12, 64], [64])], Processor(16, 16), 1000)]
    assert {rows for _, vectors, *_, rows in found if vectors == 4} == {3}
    assert {rows for _, vectors, *_, rows in found if vectors == 2} == {6, 3}
    found = [_facts(each) for each in rule_candidates([_sketch([12, 64], [64])], Processor(16, 20), 1000)]
    assert {rows for _, vectors, *_, rows in found if vectors == 4} == {4, 2}


@pytest.mark.parametrize(
    ("spatial", "place"), [([64, 64], 3), ([4, 64, 64], 5), ([2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 64], 23)]
)
def test_a_producer_is_computed_inside_the_tile_or_at_the_root(spatial: list[int], place: int) -> None:
    places = {each.decisions[-1] for each in rule_candidates([_sketch(spatial, [64])], Processor(16, 32), 64)}
    assert places == {(-1,), (place,)}


def test_without_tiles_a_producer_is_computed_inside_first() -> None:
    first, second, *_ = rule_candidates([_sketch([], [4096])], Processor(16, 32), 8)
    assert (first.decisions[-1], second.decisions[-1]) == ((1,), (-1,))
    pair = rule_candidates([_sketch([], [4096]), _sketch([], [64])], Processor(16, 32), 2)
    assert pair == [first, second]
    few = Sketch("w", "few", b"", (Tile(64, 2), UNROLL, Location(1)))
    assert rule_candidates([few], Processor(16, 32), 1)[0].decisions[-1] == (0,)


def test_the_nearest_limit_is_taken() -> None:
    sketch = Sketch("w", "s", b"", (Tile(64, 4), Tile(64, 4), Tile(64, 2), Choice((0, 60, 500), (1.0, 1.0, 1.0))))
    found = rule_candidates([sketch], Processor(16, 32), 1000)
    assert [value for (value,) in dict.fromkeys(each.decisions[3] for each in found)] == [1, 2, 0]


def test_limits_of_loops_and_pieces_are_powers_of_two() -> None:
    """Also where any number may be chosen."""
    limits = tuple(range(1024))
    sketch = Sketch("w", "s", b"", (Tile(64, 4), Tile(64, 4), Tile(17 * 64 * 65, 2), Choice(limits, (1.0,) * 1024)))
    found = [each.decisions for each in rule_candidates([sketch], Processor(16, 32), 1000)]
    assert list(dict.fromkeys(unroll for *_, (unroll,) in found)) == [64, 512, 16]
    assert list(dict.fromkeys(piece for *_, (_, piece), _ in found)) == [17 * 64 * 65, 64, 16]
