import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import UNTUNED, Axis, Candidate, Choice, Location, Sketch, Tile, digest_of, fits

decisions = st.lists(st.lists(st.integers(-2, 4096), min_size=1, max_size=4).map(tuple), max_size=4).map(tuple)
candidates = st.builds(Candidate, st.text(max_size=8), st.text(max_size=8), decisions)


def test_digests_are_what_records_hold() -> None:
    """A change here makes every record unfindable."""
    assert Candidate("workload", "sketch", ((1, 7, 1, 8), (2,), (-1,))).digest == "f3cbc6dbf05a2e84540881c62e9bd5e0"
    assert digest_of(b"a", b"b") == "cf6ab613e3942391f88ed698557e1680"


@given(candidates, candidates)
def test_a_digest_tells_candidates_apart(one: Candidate, other: Candidate) -> None:
    assert (one.digest == other.digest) == (one == other)


@given(candidates)
def test_a_candidate_survives_a_journey(candidate: Candidate) -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(candidate), type=Candidate)
    assert again == candidate
    assert hash(again) == hash(candidate)
    assert again.digest == candidate.digest


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_parts_of_a_digest_do_not_run_together(one: list[bytes], other: list[bytes]) -> None:
    assert (digest_of(*one) == digest_of(*other)) == (one == other)


def test_a_sketch_survives_a_journey() -> None:
    axes: tuple[Axis, ...] = (Tile(64, 4, 16, "s0:i"), Choice((0, 16), (0.5, 0.5)), Location(24))
    sketch = Sketch("workload", "digest", b"trace", axes)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sketch), type=Sketch) == sketch


def test_the_untuned_program_has_no_decisions() -> None:
    assert Candidate.untuned("w") == Candidate("w", UNTUNED, ())


@given(
    tile=st.lists(st.integers(-4, 8), max_size=3).map(tuple),
    choice=st.lists(st.integers(-2, 4), min_size=1, max_size=2).map(tuple),
    place=st.lists(st.integers(-4, 6), max_size=2).map(tuple),
    more=st.booleans(),
)
def test_decisions_fit_if_tiles_multiply_to_their_extents_and_indices_exist(
    tile: tuple[int, ...], choice: tuple[int, ...], place: tuple[int, ...], more: bool
) -> None:
    axes: tuple[Axis, ...] = (Tile(8, 2), Choice((0, 16, 64), (1.0, 1.0, 1.0)), Location(4))
    right = len(tile) == 2 and all(factor > 0 for factor in tile) and math.prod(tile) == 8
    right = right and len(choice) == len(place) == 1 and 0 <= choice[0] < 3 and -2 <= place[0] < 4 and not more
    assert fits(axes, (tile, choice, place, *([(1,)] if more else []))) == right
    assert not fits(axes, ((-2, -4), (0,), (0,)))
    assert fits(axes, ((2, 4), (2,), (3,)))
