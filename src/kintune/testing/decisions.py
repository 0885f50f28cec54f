"""Assertions that decisions are valid for their axes."""

from __future__ import annotations

import math

from kintune.core.candidate import Axis, Candidate, Choice, Decision, NamedChoice, Sketch, Tile

__all__ = ["check_candidate", "check_decision"]


def check_candidate(sketch: Sketch, candidate: Candidate, *, drawn: bool) -> None:
    """Assert that the candidate fills in every axis of the sketch; `drawn` ones also keep to the limits of drawing."""
    assert (candidate.workload, candidate.sketch) == (sketch.workload, sketch.digest)
    assert len(candidate.decisions) == len(sketch.axes)
    for axis, decision in zip(sketch.axes, candidate.decisions, strict=True):
        check_decision(axis, decision, drawn=drawn)


def check_decision(axis: Axis, decision: Decision, *, drawn: bool) -> None:
    """Assert that the decision is valid for the axis; a `drawn` one also keeps to the limit of drawing."""
    assert all(type(part) is int for part in decision)
    if isinstance(axis, Tile):
        assert len(decision) == axis.parts
        assert min(decision) >= 1
        assert math.prod(decision) == axis.extent
        assert not drawn or decision[-1] <= axis.max_inner
        return
    if isinstance(axis, NamedChoice):
        assert decision in axis.values
        return
    (index,) = decision
    least, end = (0, len(axis.values)) if isinstance(axis, Choice) else (-2, axis.choices)
    assert least <= index < end
