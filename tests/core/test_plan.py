from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.plan import RoundEntry, at_most

entries = st.lists(st.builds(RoundEntry, st.sampled_from("abc"), st.integers(1, 64), st.just("search")), max_size=6)


@given(entries, st.integers(-3, 200))
def test_as_many_candidates_as_there_are_trials_and_no_more(planned: list[RoundEntry], trials: int) -> None:
    kept = at_most(planned, trials)
    assert sum(entry.size for entry in kept) == min(max(0, trials), sum(entry.size for entry in planned))
    assert [entry.workload for entry in kept] == [entry.workload for entry in planned[: len(kept)]]
    assert list(kept[:-1]) == planned[: len(kept)][:-1]
    assert all(entry.size > 0 for entry in kept)
