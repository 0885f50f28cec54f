"""Families that change while a job runs: what is committed of them is enough to go on alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from kintune.core.config import Options, Strategy
from kintune.core.messages import Committed
from kintune.core.stage_results import StageName, Summary, Updated
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended
from tests.support.toy_tools import ToyTools, toy_spec

SPACE = SyntheticSpace(
    [
        MatMul("w0", 64, 64, 64, operator="dense"),
        MatMul("w1", 64, 256, 64, operator="conv2d"),
        MatMul("w2", 48, 192, 64, operator="pool"),
    ]
)
SPEC = toy_spec(
    Options(trials=80, strategy=Strategy(families="measured", foresee="published", round_size=12, foresee_size=3))
)


def play(history: Sequence[Committed] = (), lost_at: int | None = None) -> Rehearsal:
    def lose(rehearsal: Rehearsal) -> None:
        if len(rehearsal.history) == lost_at:
            rehearsal.kill_process()

    return Rehearsal(
        partial(ToyTools, space=SPACE), SPEC, Cast(SPACE), journal=PlainJournal(history), interfere=lose
    ).run()


def changes(rehearsal: Rehearsal) -> dict[int, Updated]:
    """The updates in which a subgraph changed its family, by the event's number."""
    updates = {e.seq: e.payload for e in rehearsal.history if e.kind == StageName.UPDATE}
    decoded = {number: msgspec.msgpack.decode(payload, type=Updated) for number, payload in updates.items()}
    return {number: updated for number, updated in decoded.items() if updated.families}


def families(summary: Summary) -> dict[str, str]:
    return {end.workload: end.family for end in summary.subgraphs if end.family}


@pytest.fixture(scope="module")
def whole() -> Rehearsal:
    return play()


def test_a_subgraph_joins_those_whose_programs_rank_its_own(whole: Rehearsal) -> None:
    """All products behave alike, whatever their operators are called."""
    moved = changes(whole)
    assert moved
    for updated in moved.values():
        for workload, family in updated.families.items():
            assert family in {version.family for version in updated.versions}, f"{workload} has no model"
    assert families(ended(whole)) == {
        workload: next((u.families[workload] for u in reversed(moved.values()) if workload in u.families), started)
        for workload, started in (("w0", "measured:dense"), ("w1", "measured:conv2d"), ("w2", "measured:pool"))
    }


@pytest.mark.parametrize("after", [-3, 0, 1, 2, 9])
def test_a_run_goes_on_alike_around_a_change(whole: Rehearsal, after: int) -> None:
    """Cut, or robbed of its process, shortly before the update is committed, right then, or some events later."""
    at = next(iter(changes(whole))) + after
    for again in (play(whole.history[:at]), play(lost_at=at)):
        assert again.picks == whole.picks
        assert [*changes(again).values()] == [*changes(whole).values()]
        assert families(ended(again)) == families(ended(whole))
        assert ended(again).kernels_ms == ended(whole).kernels_ms
