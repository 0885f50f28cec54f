"""What every search space must do.  A space's tests inherit `SpaceSuite` and say how one is made."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.search.draft import breed
from kintune.search.evolve import draw
from kintune.search.space import Draft, SearchSpace
from kintune.testing.decisions import check_candidate

__all__ = ["SpaceSuite"]


class SpaceSuite(ABC):
    """The contract as tests; `workload` names one that the space has."""

    workload: str

    @abstractmethod
    def make(self) -> SearchSpace:
        """A space with the workload; every call makes an equal one."""

    def drawn(self, count: int = 8) -> list[Candidate]:
        """Candidates drawn from all sketches in turn, the same at each call."""
        sketches = self.make().sketches(self.workload)
        generator = np.random.default_rng(7)
        return [draw(sketches[i % len(sketches)], generator) for i in range(count)]

    def test_sketches_belong_to_their_workload(self) -> None:
        """They name it, differ from each other, and are the same at each call."""
        sketches = list(self.make().sketches(self.workload))
        assert sketches
        assert {sketch.workload for sketch in sketches} == {self.workload}
        assert len({sketch.digest for sketch in sketches}) == len(sketches)
        assert list(self.make().sketches(self.workload)) == sketches

    def test_rules_are_distinct_valid_and_without_chance(self) -> None:
        """At most as many as asked for, a longer list begins with the shorter one, and each fits its sketch."""
        space = self.make()
        sketches = {sketch.digest: sketch for sketch in space.sketches(self.workload)}
        rules = list(space.rules(self.workload, 8))
        assert 0 < len(rules) <= 8
        assert len(set(rules)) == len(rules)
        assert list(self.make().rules(self.workload, 3)) == rules[:3]
        for candidate in rules:
            check_candidate(sketches[candidate.sketch], candidate, drawn=False)

    def test_the_first_rule_is_a_program(self) -> None:
        """A survey of one candidate a subgraph finds one."""
        space = self.make()
        (draft,) = space.verify(space.rules(self.workload, 1))
        assert draft is not None

    def test_verify_answers_in_order_and_the_same_each_time(self) -> None:
        """One answer a candidate, whoever its neighbours are."""
        candidates = self.drawn()
        answers = list(self.make().verify(candidates))
        space = self.make()
        alone = [space.verify([candidate])[0] for candidate in reversed(candidates)][::-1]
        assert len(answers) == len(candidates)
        assert [_plain(answer) for answer in answers] == [_plain(answer) for answer in alone]
        assert any(answer is not None for answer in answers)

    def test_what_is_verified_stays_as_it_is(self) -> None:
        """A draft's candidate makes the same program again, and no other candidate of it."""
        space = self.make()
        drafts = [draft for draft in space.verify(self.drawn()) if draft is not None]
        again = space.verify([draft.candidate for draft in drafts])
        assert [_plain(answer) for answer in again] == [_plain(draft) for draft in drafts]

    def test_features_are_finite_and_of_one_width(self) -> None:
        """Float32 vectors that can be stacked."""
        rows = [draft.features for draft in self.make().verify(self.drawn()) if draft is not None]
        matrix: NDArray[np.float32] = np.stack(rows)
        assert matrix.dtype == np.float32
        assert np.isfinite(matrix).all()

    def test_what_is_described_in_bulk_is_described_alike(self) -> None:
        """A field's features of a program are those of its draft, and one that is settled is never another program."""
        space = self.make()
        for field in space.fields(self.workload):
            population = breed.draw(field.encoding, 8, np.random.default_rng(3))
            candidates = list(field.encoding.candidates(population))
            drafts = list(space.verify(candidates))
            assert not field.settled or [draft and draft.candidate for draft in drafts] == candidates
            kept = [draft for draft in drafts if draft is not None]
            rows = field.features(field.encoding.encode([draft.candidate for draft in kept]))
            assert np.array_equal(rows, np.stack([draft.features for draft in kept]))

    def test_fields_are_made_of_the_sketches(self) -> None:
        """Each sketch is in one of them at most."""
        space = self.make()
        fielded = [sketch for field in space.fields(self.workload) for sketch in field.encoding.sketches]
        assert len(set(fielded)) == len(fielded)
        assert set(fielded) <= set(space.sketches(self.workload))

    def test_an_unknown_sketch_makes_no_program(self) -> None:
        """None, not an error."""
        candidate = Candidate(self.workload, "no such sketch", ())
        assert list(self.make().verify([candidate])) == [None]

    def test_nothing_to_verify_gives_nothing(self) -> None:
        """An empty batch is one."""
        assert list(self.make().verify([])) == []


def _plain(draft: Draft | None) -> tuple[Candidate, bytes] | None:
    return None if draft is None else (draft.candidate, draft.features.tobytes())
