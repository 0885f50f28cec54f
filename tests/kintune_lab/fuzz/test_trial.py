"""Which nodes are left out of a model that is refused."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kintune_lab.fuzz.trial import Trial
from kintune_lab.fuzz.verdict import GraphVerdict, VerdictKind


@pytest.mark.parametrize("alone", [set(), {0}, {3, 8}, {5, 6, 9}, set(range(10))])
def test_nodes_that_are_refused_alone_are_found_by_halves(monkeypatch: pytest.MonkeyPatch, alone: set[int]) -> None:
    """Nodes 1 and 2 are refused together only."""
    tried: list[Sequence[int]] = []
    trial = Trial(cast(Any, SimpleNamespace()), [])

    def look(kept: Sequence[int], *, only_import: bool = False) -> GraphVerdict:
        tried.append(kept)
        is_refused = not alone.isdisjoint(kept) or {1, 2} <= set(kept)
        return GraphVerdict(VerdictKind.REFUSED if is_refused else VerdictKind.RIGHT, str(list(kept)))

    monkeypatch.setattr(trial, "_try", look)
    assert trial._refused_alone(range(10)) == {at: f"[{at}]" for at in alone}
    assert len(tried) <= 18
