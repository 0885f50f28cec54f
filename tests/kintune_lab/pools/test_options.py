from __future__ import annotations

from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.pools.options import Pace


def test_the_first_step_says_nothing_of_the_time_left_and_later_ones_go_by_those_before() -> None:
    now, shown = 100.0, list[CellProgress]()
    pace = Pace("search", 4, shown.append, lambda: now)
    pace.begin(0)
    now = 102.0
    pace.begin(1)
    now = 110.0
    pace.begin(3)
    assert shown == [
        CellProgress("search 1 of 4", 0.0, None),
        CellProgress("search 2 of 4", 0.25, 6.0),
        CellProgress("search 4 of 4", 0.75, 10.0 / 3.0),
    ]
