from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from kintune.core.candidate import Candidate, Location
from kintune.errors import BuildError
from kintune.search.evolve import draw

if TYPE_CHECKING:
    from tests.support.workloads import TinyConv

pytestmark = pytest.mark.tvm


def test_replaying_gives_the_same_program_each_time(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.replay import Replayer, save_workload

    rng = np.random.default_rng(0)
    for sketch in tiny_conv.sketches:
        candidate = draw(sketch, rng)
        once, again = (Replayer(tiny_conv.module, tiny_conv.target)(sketch, candidate) for _ in range(2))
        assert once.candidate == again.candidate
        assert save_workload(once.schedule.mod) == save_workload(again.schedule.mod)


def test_what_replay_took_replays_to_itself(tiny_conv: TinyConv) -> None:
    """Also where a compute location does not exist and is replaced."""
    from kintune.compiler.space.replay import Replayer, save_workload

    replay = Replayer(tiny_conv.module, tiny_conv.target)
    rng = np.random.default_rng(1)
    replaced = 0
    for sketch in tiny_conv.sketches:
        for _ in range(3):
            asked = draw(sketch, rng)
            far = tuple(
                (axis.choices - 1,) if isinstance(axis, Location) else decision
                for axis, decision in zip(sketch.axes, asked.decisions, strict=True)
            )
            candidate = Candidate(asked.workload, asked.sketch, far)
            taken = replay(sketch, candidate)
            replaced += taken.candidate.decisions != far
            again = replay(sketch, taken.candidate)
            assert again.candidate == taken.candidate == replay.settle(sketch, candidate)
            assert save_workload(again.schedule.mod) == save_workload(taken.schedule.mod)
    assert replaced


@pytest.mark.parametrize("damage", ["too few", "wrong product", "wrong parts"])
def test_impossible_decisions_are_refused(tiny_conv: TinyConv, damage: str) -> None:
    from kintune.compiler.space.replay import Replayer

    sketch = tiny_conv.sketches[0]
    candidate = draw(sketch, np.random.default_rng(0))
    decisions = {
        "too few": candidate.decisions[:-1],
        "wrong product": ((3, 1, 1, 5), *candidate.decisions[1:]),
        "wrong parts": ((1, 1), *candidate.decisions[1:]),
    }[damage]
    with pytest.raises(BuildError) as caught:
        Replayer(tiny_conv.module, tiny_conv.target)(sketch, Candidate("conv", sketch.digest, decisions))
    assert "\n" not in str(caught.value)


def test_the_untuned_candidate_is_the_workload(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.replay import apply_candidate

    untuned = Candidate.untuned("conv")
    assert apply_candidate(tiny_conv.module, None, untuned, tiny_conv.target) is tiny_conv.module


def test_a_workload_survives_a_journey(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.replay import load_workload, save_workload

    blob = save_workload(tiny_conv.module)
    assert save_workload(load_workload(blob)) == blob
