"""The conformance suite of search spaces: the tests of a space inherit `SpaceSuite` and define how it is made."""

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
    """The contract as tests; `workload` is the digest of a workload of the space."""

    workload: str

    @abstractmethod
    def make(self) -> SearchSpace:
        """Return a space with the workload; every call returns an equal one."""

    def drawn(self, count: int = 8) -> list[Candidate]:
        """Return candidates drawn from all sketches in turn, the same at each call."""
        sketches = self.make().sketches(self.workload)
        generator = np.random.default_rng(7)
        return [draw(sketches[i % len(sketches)], generator) for i in range(count)]

    def test_sketches_belong_to_their_workload(self) -> None:
        """Sketches name their workload, differ from each other, and are the same at each call."""
        sketches = list(self.make().sketches(self.workload))
        assert sketches
        assert {sketch.workload for sketch in sketches} == {self.workload}
        assert len({sketch.digest for sketch in sketches}) == len(sketches)
        assert list(self.make().sketches(self.workload)) == sketches

    def test_rules_are_distinct_valid_and_without_chance(self) -> None:
        """There are at most as many as asked for, a longer list begins with a shorter one, and each fits its sketch."""
        space = self.make()
        sketches = {sketch.digest: sketch for sketch in space.sketches(self.workload)}
        rules = list(space.rules(self.workload, 8))
        assert 0 < len(rules) <= 8
        assert len(set(rules)) == len(rules)
        assert list(self.make().rules(self.workload, 3)) == rules[:3]
        for candidate in rules:
            check_candidate(sketches[candidate.sketch], candidate, drawn=False)

    def test_the_first_rule_is_a_program(self) -> None:
        """So a warm-up with one candidate for each subgraph finds a valid program."""
        space = self.make()
        (draft,) = space.verify(space.rules(self.workload, 1))
        assert draft is not None

    def test_verify_answers_in_order_and_the_same_each_time(self) -> None:
        """There is one result for each candidate, which does not depend on the others of the batch."""
        candidates = self.drawn()
        answers = list(self.make().verify(candidates))
        space = self.make()
        alone = [space.verify([candidate])[0] for candidate in reversed(candidates)][::-1]
        assert len(answers) == len(candidates)
        assert [_plain(answer) for answer in answers] == [_plain(answer) for answer in alone]
        assert any(answer is not None for answer in answers)

    def test_what_is_verified_stays_as_it_is(self) -> None:
        """Verifying the candidate of a draft gives an equal draft."""
        space = self.make()
        drafts = [draft for draft in space.verify(self.drawn()) if draft is not None]
        again = space.verify([draft.candidate for draft in drafts])
        assert [_plain(answer) for answer in again] == [_plain(draft) for draft in drafts]

    def test_features_are_finite_and_of_one_width(self) -> None:
        """Features are float32 vectors of one length without infinities and NaNs."""
        rows = [draft.features for draft in self.make().verify(self.drawn()) if draft is not None]
        matrix: NDArray[np.float32] = np.stack(rows)
        assert matrix.dtype == np.float32
        assert np.isfinite(matrix).all()

    def test_what_is_described_in_bulk_is_described_alike(self) -> None:
        """A field's features of a candidate are those of its draft; candidates of a `settled` field stay unchanged."""
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
        """Each sketch of the workload is in at most one field, and fields have no other sketches."""
        space = self.make()
        fielded = [sketch for field in space.fields(self.workload) for sketch in field.encoding.sketches]
        assert len(set(fielded)) == len(fielded)
        assert set(fielded) <= set(space.sketches(self.workload))

    def test_an_unknown_sketch_makes_no_program(self) -> None:
        """Verifying a candidate of an unknown sketch gives None and raises no error."""
        candidate = Candidate(self.workload, "no such sketch", ())
        assert list(self.make().verify([candidate])) == [None]

    def test_nothing_to_verify_gives_nothing(self) -> None:
        """Verifying no candidates gives no results."""
        assert list(self.make().verify([])) == []


def _plain(draft: Draft | None) -> tuple[Candidate, bytes] | None:
    return None if draft is None else (draft.candidate, draft.features.tobytes())
