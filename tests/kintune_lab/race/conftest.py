from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kintune_lab.race.turn_scheduler import RaceRecord, TurnScheduler
from tests.support.scripted_tuner import PassingTime, ScriptedTuner, ScriptedTurn

RunTurns = Callable[..., RaceRecord]


@pytest.fixture
def run_turns() -> RunTurns:
    """Run the turns of two scripted tuners: stock, which ends, and ours, which does not."""

    def run(stock: Sequence[ScriptedTurn], ours: Sequence[ScriptedTurn], ratio: float = 1.0) -> RaceRecord:
        time = PassingTime()
        events: list[str] = []
        tuners = [ScriptedTuner("stock", stock, time, events), ScriptedTuner("kintune", ours, time, events, ends=False)]
        return TurnScheduler(tuners, {s.name: ratio for s in tuners}, time, lambda: 1.0).run(lambda record: None)

    return run
