"""Several comparisons together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune.core.verdict import Verdict


@given(st.lists(st.sampled_from(list(Verdict))))
def test_one_wrong_makes_all_wrong_and_what_was_not_compared_says_nothing(verdicts: list[Verdict]) -> None:
    compared = [each for each in verdicts if each is not Verdict.NOT_COMPARED]
    together = Verdict.of_all(verdicts)
    assert (together is Verdict.NOT_COMPARED) == (not compared)
    assert (together is Verdict.WRONG) == (Verdict.WRONG in compared)
    assert together.within_tolerance == (all(each is Verdict.RIGHT for each in compared) if compared else None)
