from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kintune_lab.race.conductor import Conductor
from kintune_lab.race.course import Course
from tests.support.scripted_side import PassingTime, ScriptedSide, ScriptedTurn

Conduct = Callable[..., Course]


@pytest.fixture
def conduct() -> Conduct:
    """Conduct a race of scripted sides: stock, which ends, and ours, which does not."""

    def conducted(stock: Sequence[ScriptedTurn], ours: Sequence[ScriptedTurn], ratio: float = 1.0) -> Course:
        time = PassingTime()
        events: list[str] = []
        sides = [ScriptedSide("stock", stock, time, events), ScriptedSide("kintune", ours, time, events, ends=False)]
        return Conductor(sides, {s.name: ratio for s in sides}, time, lambda: 1.0).conduct(lambda course: None)

    return conducted
