from kintune.testing.space_suite import SpaceSuite
from kintune.testing.synthetic_space import MatMul, SyntheticSpace


class TestSyntheticSpace(SpaceSuite):
    workload = "product"

    def make(self) -> SyntheticSpace:
        return SyntheticSpace([MatMul("product", 56, 128, 64)])

    def test_some_candidates_are_no_programs_and_some_programs_fail(self) -> None:
        space = self.make()
        drafts = space.verify(self.drawn(200))
        programs = [draft.candidate for draft in drafts if draft is not None]
        outcomes = [space.measure(candidate) for candidate in programs]
        assert 0 < len(programs) < 200
        assert 0 < sum(outcome.ok for outcome in outcomes) < len(outcomes)
