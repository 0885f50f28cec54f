import itertools
import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import (
    UNTUNED,
    Axis,
    Candidate,
    Choice,
    Location,
    NamedChoice,
    Sketch,
    Tile,
    described,
    digest_of,
    fits,
)
from tests.support.axes import named_choices

decisions = st.lists(st.lists(st.integers(-2, 4096), min_size=1, max_size=4).map(tuple), max_size=4).map(tuple)
candidates = st.builds(Candidate, st.text(max_size=8), st.text(max_size=8), decisions)


TILE = NamedChoice(("rows", "vectors"), ((6, 4), (12, 2)))


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
    axes: tuple[Axis, ...] = (Tile(64, 4, 16, "s0:i"), Choice((0, 16), (0.5, 0.5)), TILE, Location(24))
    sketch = Sketch("workload", "digest", b"trace", axes)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sketch), type=Sketch) == sketch


def test_decisions_are_described_by_name() -> None:
    axes: tuple[Axis, ...] = (Tile(64, 4, 16, "s0:i"), Choice((0, 16), (0.5, 0.5)), TILE, Location(24))
    assert described(axes, ((1, 8, 1, 8), (1,), (12, 2), (-1,))) == "s0:i=1*8*1*8 choice=16 rows=12 vectors=2 at=-1"


@given(named_choices, st.lists(st.integers(0, 64), max_size=4).map(tuple))
def test_a_named_decision_has_a_value_for_each_name(axis: NamedChoice, decision: tuple[int, ...]) -> None:
    """Whatever the listed values are: these may change, while records keep what was picked."""
    assert fits((axis,), (decision,)) == (len(decision) == len(axis.names))


def test_the_untuned_program_has_no_decisions() -> None:
    assert Candidate.untuned("w") == Candidate("w", UNTUNED, ())


def test_decisions_fit_if_tiles_multiply_to_their_extents_and_indices_exist() -> None:
    for tile in itertools.product(range(-8, 9), repeat=3):
        assert fits((Tile(8, 3),), (tile,)) == (min(tile) > 0 and math.prod(tile) == 8)
    assert not fits((Tile(8, 3),), ((2, 4),))
    for index in range(-5, 8):
        assert fits((Choice((0, 16, 64), (1.0, 1.0, 1.0)),), ((index,),)) == (0 <= index < 3)
        assert fits((Location(4),), ((index,),)) == (-2 <= index < 4)
        assert not fits((Location(4),), ((index, 0),))
    axes = (Tile(8, 2), Location(4))
    assert fits(axes, ((2, 4), (0,)))
    assert not fits(axes, ((2, 4),))
    assert not fits(axes, ((2, 4), (0,), (0,)))
    assert not fits(axes, ((2, 4), (9,)))
