from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kintune.core.candidate import Candidate, Choice, Location
from kintune.search.drafts import Drafts, Proposal
from kintune.search.evolve import draw
from kintune.search.space import Draft
from kintune.testing.synthetic_space import MatMul, SyntheticSpace


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace([MatMul("p", 56, 128, 64)])


def drawn(space: SyntheticSpace, count: int, *, described: bool) -> list[Candidate]:
    """Candidates of the sketches that arithmetic can describe, or of the others."""
    sketches = [s for s in space.sketches("p") if any(s in f.encoding.sketches for f in space.fields("p")) is described]
    rng = np.random.default_rng(1)
    return list(dict.fromkeys(draw(sketches[i % len(sketches)], rng) for i in range(count)))


def chosen(drafts: Drafts) -> list[Proposal]:
    return [Proposal(draft, None, origin) for draft, origin in drafts.drafts.values()]


def test_what_can_be_described_is_a_draft_as_it_was_drawn(space: SyntheticSpace) -> None:
    candidates = drawn(space, 40, described=True)
    drafts = Drafts(space, "p", set())
    drafts.add([(candidate, "evolved") for candidate in candidates])
    assert list(drafts.drafts) == candidates
    assert drafts.invalid == 0


def test_what_cannot_is_made_at_once(space: SyntheticSpace) -> None:
    candidates = drawn(space, 40, described=False)
    drafts = Drafts(space, "p", set())
    drafts.add([(candidate, "evolved") for candidate in candidates])
    made = [draft.candidate for draft in space.verify(candidates) if draft is not None]
    assert list(drafts.drafts) == list(dict.fromkeys(made))
    assert drafts.invalid == len(candidates) - len(made)


@pytest.mark.parametrize("described", [True, False])
def test_what_is_settled_are_programs_each_once(space: SyntheticSpace, described: bool) -> None:
    candidates = drawn(space, 60, described=described)
    known = [draft.candidate for draft in space.verify(candidates[:10]) if draft is not None]
    drafts = Drafts(space, "p", set(known))
    drafts.add([(candidate, "evolved") for candidate in candidates])
    settled = [proposal.draft for proposal in drafts.settle(chosen(drafts))]
    again = space.verify([draft.candidate for draft in settled])
    assert [draft.candidate for draft in again if draft is not None] == [draft.candidate for draft in settled]
    assert len({draft.candidate for draft in settled}) == len(settled) > 10
    assert not {draft.candidate for draft in settled} & set(known)
    assert drafts.invalid > 0 or not described
    assert not drafts.drafts


def test_another_name_of_a_known_program_is_left_out(space: SyntheticSpace) -> None:
    """A location that a program does not have is the root."""
    sketch = space.sketches("p")[0]
    (place,) = [number for number, axis in enumerate(sketch.axes) if isinstance(axis, Location)]
    drafts = Drafts(space, "p", set())
    program = next(draft.candidate for draft in space.verify(space.rules("p", 40)) if draft is not None)
    aliases = []
    for location in (10, 11):
        decisions = list(program.decisions)
        decisions[place] = (location,)
        aliases.append(Candidate("p", sketch.digest, tuple(decisions)))
    drafts.add([(alias, "evolved") for alias in aliases])
    settled = drafts.settle(chosen(drafts))
    assert [proposal.draft.candidate.decisions[place] for proposal in settled] == [(-1,)]


def twins(space: SyntheticSpace) -> tuple[Candidate, Candidate]:
    """Two candidates that differ in a limit of unrolling that both of their steps are within."""
    sketch = space.sketches("p")[0]
    (number,) = [i for i, axis in enumerate(sketch.axes) if isinstance(axis, Choice)]
    for draft in space.verify(space.rules("p", 200)):
        if draft is None or draft.candidate.sketch != sketch.digest:
            continue
        pair = []
        for choice in (2, 3):
            decisions = list(draft.candidate.decisions)
            decisions[number] = (choice,)
            pair.append(Candidate("p", sketch.digest, tuple(decisions)))
        (field,) = (field for field in space.fields("p") if pair[0] in field.encoding)
        left, right = field.keys(field.encoding.encode(pair))
        if left == right:
            return pair[0], pair[1]
    raise AssertionError("the rule has no candidate with so few steps")


def test_another_way_to_write_down_what_was_measured_comes_last(space: SyntheticSpace) -> None:
    left, right = twins(space)
    drafts = Drafts(space, "p", [left])
    drafts.add([(right, "evolved")])
    assert not drafts.drafts
    drafts.fetch_aside()
    assert list(drafts.drafts) == [right]


def test_of_two_ways_to_write_down_a_draft_one_is_enough(space: SyntheticSpace) -> None:
    left, right = twins(space)
    drafts = Drafts(space, "p", [])
    drafts.add([(left, "evolved")])
    drafts.add([(right, "evolved")])
    assert list(drafts.drafts) == [left]


def test_of_a_leader_all_ways_are_tried(space: SyntheticSpace) -> None:
    left, right = twins(space)
    drafts = Drafts(space, "p", [left], [left])
    drafts.add([(right, "evolved")])
    assert list(drafts.drafts) == [right]


def test_all_that_is_no_program_is_counted(space: SyntheticSpace) -> None:
    class Nothing(SyntheticSpace):
        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            return [None] * len(candidates)

    drafts = Drafts(Nothing(space.products.values()), "p", set())
    undescribed, described = (drawn(space, 5, described=which) for which in (False, True))
    for part in (undescribed[:2], undescribed[2:], described):
        drafts.add([(candidate, "evolved") for candidate in part])
    assert drafts.invalid == len(undescribed) > 2
    waiting = chosen(drafts)
    assert [proposal.draft.candidate for proposal in waiting] == described
    assert drafts.settle(waiting[:3]) == drafts.settle(waiting[3:]) == []
    assert drafts.invalid == len(undescribed) + len(described)
