from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kintune_lab.race.turn_scheduler import RaceRecord, TurnScheduler
from tests.support.scripted_tuner import PassingTime, ScriptedSide, ScriptedTurn

Conduct = Callable[..., RaceRecord]


@pytest.fixture
def conduct() -> Conduct:
    """Conduct a race of scripted sides: stock, which ends, and ours, which does not."""

    def conducted(stock: Sequence[ScriptedTurn], ours: Sequence[ScriptedTurn], ratio: float = 1.0) -> RaceRecord:
        time = PassingTime()
        events: list[str] = []
        sides = [ScriptedSide("stock", stock, time, events), ScriptedSide("kintune", ours, time, events, ends=False)]
        return TurnScheduler(sides, {s.name: ratio for s in sides}, time, lambda: 1.0).run(lambda record: None)

    return conducted
